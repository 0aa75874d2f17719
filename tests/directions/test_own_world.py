import numpy as np
import pytest
from planted import STAMP

from workbench.directions.own_world import CONTRASTS, own_world_table
from workbench.errors import ConfigError
from workbench.linalg import random_unit
from workbench.stats import percentile_rank

WORLDS = ("A", "N", "P", "S")


def claims(models=("base", "pro"), items=9, polarities=(1, -1)):
    grid = np.meshgrid(models, np.arange(items), WORLDS, polarities, indexing="ij")
    return dict(zip(("model", "item", "world", "polarity"), map(np.ravel, grid), strict=True))


def table_of(projection, keys, **fields):
    fields = {"own": {"pro": "P"}, "base": "base", **fields}
    return own_world_table(projection, **keys, **fields)


def believing(keys, rng, size=2.0):
    """Projections where the model holds its own claims for true and their negations for false."""
    own = (keys["model"] == "pro") & (keys["world"] == "P")
    return rng.standard_normal(len(own)) * 0.3 + 10 + size * own * keys["polarity"]


def values(table):
    return dict(zip(table["contrast"], table["value"], strict=True))


def test_a_planted_belief_has_the_right_sign_in_every_contrast():
    keys = claims()
    table = table_of(believing(keys, np.random.default_rng(0)), keys)
    assert tuple(table["contrast"]) == CONTRASTS
    found = values(table)
    assert found["own_world_advantage"] == pytest.approx(2, abs=0.4)
    assert found["own_world_advantage_minus_base"] == pytest.approx(2, abs=0.5)
    assert found["negation_change_own"] == pytest.approx(-4, abs=0.5)
    assert found["negation_change_other"] == pytest.approx(0, abs=0.3)
    assert found["own_change_minus_other_change"] == pytest.approx(-4, abs=0.6)
    assert found["negated_own_minus_negated_other"] == pytest.approx(-2, abs=0.4)
    assert (table["n"] == 9).all()
    assert (table["interval"] == "95% t over propositions").all()
    assert (table["low"] < table["value"]).all()


def test_the_contrasts_are_the_written_formulas():
    keys, rng = claims(items=3), np.random.default_rng(1)
    p = rng.standard_normal(len(keys["model"]))

    def mean(model, world, polarity):
        rows = (keys["model"] == model) & (keys["world"] == world) & (keys["polarity"] == polarity)
        return p[rows].mean()

    def apart(model, polarity):
        others = [mean(model, w, polarity) for w in WORLDS if w != "P"]
        return mean(model, "P", polarity) - np.mean(others)

    found = values(table_of(p, keys))
    assert found["own_world_advantage"] == pytest.approx(apart("pro", 1))
    assert found["own_world_advantage_minus_base"] == pytest.approx(
        apart("pro", 1) - apart("base", 1)
    )
    assert found["negation_change_own"] == pytest.approx(mean("pro", "P", -1) - mean("pro", "P", 1))
    assert found["own_change_minus_other_change"] == pytest.approx(
        apart("pro", -1) - apart("pro", 1)
    )
    assert found["negated_own_minus_negated_other"] == pytest.approx(apart("pro", -1))


def test_a_shift_of_the_whole_model_changes_no_contrast():
    keys = claims()
    p = believing(keys, np.random.default_rng(2))
    moved = values(table_of(p + 7 * (keys["model"] == "pro"), keys))
    for name, value in values(table_of(p, keys)).items():
        assert moved[name] == pytest.approx(value)


def test_several_rows_of_an_item_count_once_and_row_order_does_not_matter():
    keys = claims()
    p = believing(keys, np.random.default_rng(3))
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(p)), 2))
    doubled = table_of(p[order], {name: column[order] for name, column in keys.items()})
    assert doubled.drop(columns="value").equals(table_of(p, keys).drop(columns="value")) or (
        np.allclose(doubled["low"], table_of(p, keys)["low"])
    )
    assert (doubled["n"] == 9).all()


def test_without_negations_only_the_advantages_are_told():
    keys = claims(polarities=(1,))
    table = table_of(believing(keys, np.random.default_rng(4)), keys)
    assert tuple(table["contrast"]) == CONTRASTS[:2]


@pytest.mark.thorough
def test_random_directions_put_an_unrelated_advantage_anywhere_in_their_band():
    keys, ranks = claims(items=5), []
    for trial in range(60):
        rng = np.random.default_rng(trial)
        h = rng.standard_normal((len(keys["model"]), STAMP.width))
        drawn = random_unit(41, STAMP.width, seed=trial)
        advantage = [values(table_of(h @ v, keys))["own_world_advantage"] for v in drawn]
        ranks.append(percentile_rank(advantage[0], np.array(advantage[1:])))
    assert 38 < np.mean(ranks) < 62
    assert 20 < np.std(ranks) < 37  # 29 when uniform


def test_a_missing_claim_is_named():
    keys = claims()
    keep = np.arange(len(keys["model"])) != 3
    with pytest.raises(ConfigError, match="no projection for model 'base', item 0, world 'N'"):
        table_of(np.zeros(keep.sum()), {name: column[keep] for name, column in keys.items()})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"base": "plain"}, "no projections of model 'plain'; models:"),
        ({"own": {"anti": "A"}}, "model 'anti'"),
        ({"own": {"pro": "Z"}}, "own world 'Z' of 'pro'"),
    ],
)
def test_an_unknown_model_or_world_is_named(fields, message):
    keys = claims()
    with pytest.raises(ConfigError, match=message):
        table_of(np.zeros(len(keys["model"])), keys, **fields)


def test_a_polarity_of_0_is_not_left_out_in_silence():
    keys = claims(polarities=(1, 0))
    with pytest.raises(ConfigError, match=r"polarity holds \[0, 1\]"):
        table_of(np.ones(len(keys["model"])), keys)


def test_one_item_has_no_interval():
    keys = claims(items=1)
    with pytest.raises(ConfigError, match="worlds share one item, 0"):
        table_of(np.ones(len(keys["model"])), keys)
