from dataclasses import replace

import numpy as np
import pytest
from planted import STAMP, planted

from workbench.data import data_path
from workbench.directions import evaluate, fit_truth, read_recipe
from workbench.directions.evidence import Settings, make_folds, shuffled_labels
from workbench.directions.evidence_table import EVIDENCE
from workbench.directions.layer_choice import choose_layers
from workbench.directions.mass_mean import MassMean
from workbench.directions.recipe import CheckPart, FitPart, LayersPart
from workbench.directions.truth import read_items, shuffled_truth
from workbench.errors import ConfigError, FormatError, MismatchError, UnknownNameError
from workbench.linalg import cosine
from workbench.prompts import read_prompts
from workbench.stats import auc

TRUTH = read_recipe("truth")


def recipe(**parts):
    small = {"check": CheckPart(draws=40, bootstrap=100)}
    return TRUTH.model_copy(update={**small, **parts})


@pytest.fixture(scope="module")
def acts():
    return planted()


@pytest.fixture(scope="module")
def fitted(acts):
    return fit_truth(acts, recipe())


def pick(table, **columns):
    for name, value in columns.items():
        table = table[table[name] == value]
    return table


def test_the_planted_layer_is_chosen_and_the_directions_say_how(fitted):
    directions, table = fitted
    assert directions.info["layer"] == 2
    assert directions.info["layer_without_topic"] == dict.fromkeys("abcd", 2)
    assert (directions.names, directions.layers) == (("truth",), (0, 1, 2, 3))
    assert directions.info["auc_unseen_topic"]["0"] > 0.9
    assert set(table[table["chosen"]]["layer"]) == {2}
    assert table["chosen"].mean() == 0.25


def test_there_is_one_row_for_each_split_topic_layer_and_polarity(fitted):
    _, table = fitted
    assert tuple(table.columns) == EVIDENCE
    assert len(table) == 2 * 5 * 4 * 3
    assert not table.duplicated(["split", "topic", "layer", "polarity"]).any()
    unseen = pick(table, split="unseen topic", topic="a", layer=2)
    assert unseen.set_index("polarity")["n"].to_dict() == {1: 80, -1: 80, 0: 160}
    assert (unseen["n_facts"] == 40).all()
    assert (pick(table, split="within:topic", topic="a")["n_facts"] == 20).all()
    assert (table["interval"] == "95% bootstrap over facts").all()


def test_a_planted_truth_beats_both_nulls_and_is_usable_where_it_lies(fitted):
    _, table = fitted
    there, empty = pick(table, layer=2), pick(table, layer=0)
    assert there["beats_nulls"].all()
    assert (there["auc"] > 0.85).all()
    assert pick(there, split="unseen topic")["usable"].all()
    assert not empty["usable"].any()
    assert empty["beats_nulls"].mean() < 0.1


def test_balanced_is_the_mean_of_the_polarities_and_intervals_hold_the_value(fitted):
    _, table = fitted
    wide = table.pivot(index=["split", "topic", "layer"], columns="polarity", values="auc")
    np.testing.assert_allclose(wide[0], (wide[1] + wide[-1]) / 2)
    assert ((table["low"] <= table["auc"]) & (table["auc"] <= table["high"])).mean() > 0.97
    balanced = pick(table, polarity=0, layer=0)
    one = pick(table, polarity=1, layer=0)
    widths = [(rows["high"] - rows["low"]).mean() for rows in (balanced, one)]
    assert widths[0] < widths[1]


def test_the_auc_on_an_unseen_topic_is_that_of_a_plain_fit_without_it(acts):
    plain = recipe(fit=FitPart(method="mass_mean"))
    _, table = fit_truth(acts, plain)
    topic, y = acts.columns["topic"], acts.columns["label"] == 1
    for layer in (1, 2):
        coef = MassMean().fit(acts.at(layer)[topic != "b"], y[topic != "b"]).coef_
        for side in (1, -1):
            rows = (topic == "b") & (acts.columns["polarity"] == side)
            row = pick(table, split="unseen topic", topic="b", layer=layer, polarity=side)
            assert row["auc"].item() == pytest.approx(auc(acts.at(layer)[rows] @ coef, y[rows]))


def test_the_same_seed_gives_the_same_table_and_another_seed_another(acts, fitted):
    _, again = fit_truth(acts, recipe())
    assert again.equals(fitted[1])
    _, other = fit_truth(acts, recipe(), seed=1)
    assert not np.array_equal(other["auc"], again["auc"])


def test_the_layer_of_a_topic_is_chosen_without_it():
    acts = planted()
    own = acts.columns["topic"] == "a"
    sign = 2 * acts.columns["label"] - 1
    acts.values[3, own, 0] += 40 * sign[own]  # only topic a has truth at layer 3, and plenty
    directions, table = fit_truth(acts, recipe())
    assert directions.info["layer_without_topic"]["a"] == 2
    assert set(pick(table, topic="a", chosen=True)["layer"]) == {2}


def test_the_layer_rule_takes_the_best_worst_polarity_or_the_best_mean():
    even, lopsided = np.full((3, 3, 2), 0.7), np.full((3, 3, 2), [0.95, 0.6])
    held_out = {4: lopsided, 9: even}
    lowest = choose_layers(held_out, list("abc"), [4, 9], "lowest_polarity")
    assert lowest == {"a": 9, "b": 9, "c": 9, "all": 9}
    assert choose_layers(held_out, list("abc"), [4, 9], "balanced")["all"] == 4


def test_candidates_limit_the_layers(acts):
    limited = recipe(layers=LayersPart(candidates=[0, 1]))
    directions, table = fit_truth(acts, limited)
    assert directions.layers == (0, 1)
    assert directions.info["layer"] == 1
    assert set(table["layer"]) == {0, 1}


@pytest.mark.thorough
def test_without_signal_a_value_beats_both_nulls_about_as_seldom_as_it_should():
    beaten = []
    for seed in range(6):
        acts = planted(strength=(0.0, 0.0, 0.0), facts=16, seed=seed)
        _, table = fit_truth(acts, recipe(), seed=seed)
        single = table[(table["topic"] != "all") & (table["polarity"] != 0)]
        beaten += list(single.groupby(["split", "topic", "polarity"])["beats_nulls"].any())
    assert len(beaten) == 96
    assert np.mean(beaten) < 0.08  # at most 0.025 each is expected


def items_of(acts):
    return read_items(acts, TRUTH.fit)


def test_the_halves_of_a_topic_share_no_fact(acts):
    items = items_of(acts)
    for fold in make_folds(items, ["within", "unseen"], Settings(draws=20, bootstrap=10)):
        assert not set(items.facts[fold.train]) & set(items.facts[fold.test])
        assert fold.n_facts == (20 if fold.split == "within:topic" else 40)


def test_shuffled_labels_keep_every_count_and_every_negation():
    acts = planted(facts=10)
    items = items_of(acts)
    shuffled = shuffled_labels(items, 50, seed=0)
    content = shuffled ^ (items.sides < 0)[:, None]
    for topic in items.topics:
        for side in (1, -1):
            rows = items.rows_of(topic) & (items.sides == side)
            assert (shuffled[rows].sum(axis=0) == 10).all()
    pairs = [np.flatnonzero((items.facts == 3) & (acts.columns["label"] == (items.sides > 0)))]
    assert (content[pairs[0][0]] == content[pairs[0][1]]).all()
    assert 0.4 < (shuffled == items.columns.y[:, None]).mean() < 0.6


def test_facts_with_one_label_trade_it_with_another_fact_of_the_topic():
    acts = planted(facts=10)
    fact = np.unique(acts.columns["fact"], return_inverse=True)[1]
    content = acts.columns["label"] ^ (acts.columns["polarity"] < 0)
    one_label = acts.where(content == fact % 2)
    items = items_of(one_label)
    shuffled = shuffled_labels(items, 50, seed=0)
    for topic in items.topics:
        rows = items.rows_of(topic) & (items.sides == 1)
        assert (shuffled[rows].sum(axis=0) == items.columns.y[rows].sum()).all()
    assert (shuffled[items.sides == 1] != shuffled[items.sides == -1]).all()
    assert 0.35 < (shuffled == items.columns.y[:, None]).mean() < 0.65


def test_frozen_directions_are_scored_as_they_are(acts, fitted):
    directions, _ = fitted
    other = planted(seed=9, topics=("x",))
    table = evaluate(directions, other, recipe(), name="other")
    assert set(table["split"]) == {"check:other"}
    row = pick(table, layer=2, polarity=1)
    rows = other.columns["polarity"] == 1
    expected = auc(other.at(2)[rows] @ directions.at(2)[0], other.columns["label"][rows] == 1)
    assert row["auc"].item() == pytest.approx(expected)
    assert row["chosen"].item()
    other.values[2] += 100 * directions.at(2)[0]  # a shift of the whole model is not taken away
    moved = pick(evaluate(directions, other, recipe()), layer=2, polarity=1)
    assert moved["auc"].item() == pytest.approx(expected, abs=1e-3)
    assert moved["accuracy"].item() == 0.5


def test_a_check_adds_rows_and_changes_none(acts, fitted):
    _, table = fit_truth(acts, recipe(), checks={"twin": planted(seed=4)})
    assert table[: len(fitted[1])].equals(fitted[1])
    assert set(table[len(fitted[1]) :]["split"]) == {"check:twin"}


def test_a_check_may_lack_topics_facts_and_polarity_and_says_so(fitted):
    directions, _ = fitted
    acts = planted(seed=2)
    bare = replace(acts, columns={k: acts.columns[k] for k in ("label", "polarity")})
    table = evaluate(directions, bare, recipe())
    assert set(table["topic"]) == {"all"}
    assert (table["n_facts"] == 640).all()
    assert (table["interval"] == "95% bootstrap over items").all()
    alone = replace(acts, columns={"label": acts.columns["label"]})
    assert set(evaluate(directions, alone, recipe())["polarity"]) == {1}
    named = recipe(fit=FitPart(method="ttpd", polarity="polarity"))
    with pytest.raises(ConfigError, match="no column 'polarity'"):
        evaluate(directions, alone, named)


def test_frozen_directions_refuse_another_model_and_a_missing_layer(fitted):
    directions, _ = fitted
    with pytest.raises(MismatchError, match="tokenizer"):
        evaluate(directions, replace(planted(), model=replace(STAMP, tokenizer="x")), recipe())
    short = replace(planted(), layers=(0, 1, 2, 5))
    with pytest.raises(MismatchError, match="holds layer 3"):
        evaluate(directions, short, recipe())


def test_a_null_that_was_not_asked_for_is_empty_not_zero(acts):
    only = recipe(check=CheckPart(draws=40, bootstrap=100, controls=["random"]))
    _, table = fit_truth(acts, only)
    assert table["null_shuffled"].isna().all()
    assert table["null_random"].notna().all()


def test_progress_counts_the_layers(acts):
    seen = []
    fit_truth(acts, recipe(), progress=lambda done, of: seen.append((done, of)))
    assert seen == [(done, 8) for done in range(1, 9)]


def test_under_three_topics_the_layer_is_chosen_on_held_out_facts():
    directions, table = fit_truth(planted(topics=("a", "b")), recipe())
    assert directions.info["layer_chosen_on"] == "held-out facts"
    assert directions.info["layer"] == 2
    assert set(table["split"]) == {"unseen topic", "within:topic"}


def test_a_set_of_one_topic_without_facts_or_polarity_is_fitted_item_by_item():
    acts = planted(topics=("a",))
    kept = acts.where(acts.columns["polarity"] == 1)
    plain = replace(kept, columns={"label": kept.columns["label"]})
    directions, table = fit_truth(plain, recipe(fit=FitPart(method="mass_mean")))
    assert directions.info["layer_chosen_on"] == "held-out items"
    assert set(table["split"]) == {"within:topic"}
    assert (table["interval"] == "95% bootstrap over items").all()
    with pytest.raises(ConfigError, match="ttpd"):
        fit_truth(plain, recipe(fit=FitPart(method="ttpd")))
    with pytest.raises(ConfigError, match="no column 'fcat'"):
        fit_truth(plain, recipe(fit=FitPart(method="mass_mean", facts="fcat")))


def test_too_few_items_to_choose_a_layer_name_the_way_out_and_a_fixed_layer_needs_no_choice():
    acts = planted(topics=("a",), facts=4)
    with pytest.raises(ConfigError, match=r"candidates = \[L\]"):
        fit_truth(acts, recipe())
    directions, _ = fit_truth(acts, recipe(layers=LayersPart(candidates=[1])))
    assert (directions.info["layer"], directions.info["layer_chosen_on"]) == (1, "fixed")


def test_a_topic_with_one_class_in_a_polarity_is_named():
    acts = planted()
    c = acts.columns
    kept = acts.where((c["topic"] != "c") | (c["label"] == 1) | (c["polarity"] == 1))
    with pytest.raises(
        ConfigError, match=r"'c': the items of polarity -1 to check on hold 40 true"
    ):
        fit_truth(kept, recipe())


def test_activations_of_another_read_than_the_recipes_are_refused():
    with pytest.raises(
        MismatchError, match="position 'last', these activations are of 'mean:user'"
    ):
        fit_truth(replace(planted(), position="mean:user"), recipe())


def test_activations_that_are_not_finite_are_refused():
    acts = planted()
    acts.values[1, 7, 3] = np.nan
    with pytest.raises(FormatError, match="layer 1: 1 of 640 rows"):
        fit_truth(acts, recipe())


def everywhere(acts, shift=0.0):
    """The same items as another rendering shows them: other offsets, the same truth."""
    noise = np.random.default_rng(5).standard_normal(acts.values.shape).astype(np.float32) * 0.1
    return replace(acts, values=acts.values + noise + np.float32(shift))


def with_ids(acts):
    ids = np.array([f"item-{row}" for row in range(len(acts.columns["label"]))])
    return replace(acts, columns={"id": ids, **acts.columns})


GRID = CheckPart(draws=40, bootstrap=100, split=["within", "transfer"])


def test_the_transfer_grid_has_every_pair_and_its_diagonal_is_the_split_by_facts(acts):
    _, table = fit_truth(acts, recipe(check=GRID))
    grid = pick(table, split="transfer", layer=2, polarity=0)
    assert set(zip(grid["fitted_on"], grid["topic"], strict=True)) == {
        (row, column) for row in "abcd" for column in "abcd"
    }
    assert (grid["n_facts"] == np.where(grid["fitted_on"] == grid["topic"], 20, 40)).all()
    assert grid["beats_nulls"].all()
    assert grid[["low", "high"]].notna().all(axis=None)
    elsewhere = pick(table, split="transfer", layer=0)
    assert elsewhere[["low", "high"]].isna().all(axis=None)
    for topic in "abcd":
        within = pick(table, split="within:topic", topic=topic, layer=2, polarity=1)
        cell = pick(table, split="transfer", fitted_on=topic, topic=topic, layer=2, polarity=1)
        assert cell["auc"].item() == within["auc"].item()


def test_a_cell_of_the_grid_is_a_plain_fit_on_its_row_scored_on_its_column(acts):
    _, table = fit_truth(acts, recipe(fit=FitPart(method="mass_mean"), check=GRID))
    topic, y = acts.columns["topic"], acts.columns["label"] == 1
    coef = MassMean().fit(acts.at(1)[topic == "c"], y[topic == "c"]).coef_
    rows = (topic == "a") & (acts.columns["polarity"] == -1)
    cell = pick(table, split="transfer", fitted_on="c", topic="a", layer=1, polarity=-1)
    assert cell["auc"].item() == pytest.approx(auc(acts.at(1)[rows] @ coef, y[rows]))


def test_a_topic_without_truth_passes_none_on(acts):
    own = acts.columns["topic"] == "d"
    values = acts.values.copy()
    values[:, own] = np.random.default_rng(1).standard_normal(values[:, own].shape)
    _, table = fit_truth(replace(acts, values=values), recipe(check=GRID))
    grid = pick(table, split="transfer", layer=2, polarity=0).set_index(["fitted_on", "topic"])
    assert not grid.loc["d"].drop("d")["beats_nulls"].any()
    assert grid.loc["a"].drop("d")["beats_nulls"].all()


def test_another_rendering_is_checked_with_the_fits_of_the_own_one():
    acts = with_ids(planted())
    order = np.random.default_rng(0).permutation(len(acts.columns["id"]))
    chat = everywhere(acts, shift=3.0)
    mixed = replace(
        chat,
        values=chat.values[:, order],
        columns={name: values[order] for name, values in chat.columns.items()},
    )
    plain = recipe(fit=FitPart(method="mass_mean"))
    directions, table = fit_truth(acts, plain, renderings={"chat": mixed})
    alone, without = fit_truth(acts, plain)
    assert np.array_equal(directions.vectors, alone.vectors)
    bare = pick(table, rendering="bare").reset_index(drop=True)
    assert bare.equals(without)
    topic, y = acts.columns["topic"], acts.columns["label"] == 1
    coef = MassMean().fit(acts.at(2)[topic != "b"], y[topic != "b"]).coef_
    rows = (topic == "b") & (acts.columns["polarity"] == 1)
    row = pick(table, rendering="chat", split="unseen topic", topic="b", layer=2, polarity=1)
    assert row["auc"].item() == pytest.approx(auc(chat.at(2)[rows] @ coef, y[rows]))


def test_a_rendering_that_lacks_items_or_layers_or_is_of_another_model_is_refused():
    acts = with_ids(planted())
    with pytest.raises(ConfigError, match="'chat' lacks 5 of 640 items, such as 'item-635'"):
        fit_truth(acts, recipe(), renderings={"chat": acts.where(np.arange(640) < 635)})
    short = replace(acts, layers=(0, 1, 2))
    with pytest.raises(MismatchError, match="holds no layer 3"):
        fit_truth(acts, recipe(), renderings={"chat": short})
    other = replace(acts, model=replace(STAMP, tokenizer="x"))
    with pytest.raises(MismatchError, match="tokenizer"):
        fit_truth(acts, recipe(), renderings={"chat": other})


def test_held_out_facts_take_no_part_in_anything():
    names = read_prompts(data_path("held_out")).column("fact")
    acts = planted(facts=40)
    fact = acts.columns["fact"].astype("U64")
    for own, held in zip(np.unique(fact)[::20], np.unique(names), strict=False):
        fact[fact == own] = held
    acts = replace(acts, columns={**acts.columns, "fact": fact})
    check = CheckPart(draws=40, bootstrap=100, held_out="held_out")
    directions, table = fit_truth(acts, recipe(check=check))
    kept = ~np.isin(fact, names)
    assert directions.info["n_held_out"] == (~kept).sum() == 8 * 4
    without, expected = fit_truth(acts.where(kept), recipe())
    assert np.array_equal(directions.vectors, without.vectors)
    assert table.equals(expected)
    with pytest.raises(UnknownNameError, match="held_outt"):
        fit_truth(acts, recipe(check=CheckPart(held_out="held_outt")))


def test_leakage_tells_a_truth_that_is_polarity_from_one_that_is_not():
    acts = planted(strength=(3.0, 3.0), polar=4.0)
    leaning = acts.values.copy()
    leaning[1, :, 1] += 2 * acts.columns["label"] - 1  # truth lies along polarity as well
    directions, table = fit_truth(replace(acts, values=leaning), recipe())
    clean, leaky = directions.info["polarity_leakage"]
    assert leaky > 0.1 > 5 * abs(clean)
    assert set(pick(table, layer=1)["leakage"].round(5)) == {round(float(leaky), 5)}


def test_the_null_of_a_recipe_is_its_own_fit_to_shuffled_labels(acts, fitted):
    null = shuffled_truth(acts, recipe(), seed=3)
    own, _ = fitted
    assert (null.names, null.layers, null.info["shuffle"]) == (own.names, own.layers, 3)
    assert null.info["columns"] == own.info["columns"]
    axis = np.eye(24)[:1]
    assert abs(cosine(own.at(2), axis)) > 0.9 > abs(cosine(null.at(2), axis))
    with pytest.raises(MismatchError, match="position"):
        shuffled_truth(replace(acts, position="offset:-2"), recipe())


def test_a_rendering_with_an_id_twice_is_refused_not_matched_by_chance():
    acts = with_ids(planted())
    twice = acts.columns["id"].copy()
    twice[1] = twice[0]
    other = replace(acts, columns={**acts.columns, "id": twice})
    with pytest.raises(ConfigError, match="1 of 640 ids occur twice"):
        fit_truth(acts, recipe(), renderings={"chat": other})


@pytest.mark.parametrize("kind", [int, float, object])
def test_topics_may_be_numbers(kind):
    """Compared with their names as text, no item was of any topic."""
    acts = planted()
    number = np.unique(acts.columns["topic"], return_inverse=True)[1].astype(kind)
    numbered = replace(acts, columns={**acts.columns, "topic": number})
    found, expected = (fit_truth(one, recipe())[1] for one in (numbered, acts))
    np.testing.assert_array_equal(found["auc"], expected["auc"])
    np.testing.assert_array_equal(found["beats_nulls"], expected["beats_nulls"])


def test_a_topic_of_one_fact_has_no_halves():
    acts = planted(facts=6)
    kept = (acts.columns["topic"] != "a") | (acts.columns["fact"] == "a:0")
    with pytest.raises(ConfigError, match="topic 'a' holds one fact"):
        fit_truth(acts.where(kept), recipe())
