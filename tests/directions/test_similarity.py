"""Cosine tables: invariances, intervals, bands, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import STAMP, Acts, planted
from scipy.stats import pearsonr, t

from workbench.directions import Directions, fit_layers
from workbench.directions.algebra import Difference, centered
from workbench.directions.nulls import CovarianceMatched, SeedPairs, SplitHalf
from workbench.directions.similarity import (
    COSINES,
    cosines,
    layer_similarity,
    projection_correlations,
)
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import cosine, random_band

D = STAMP.width
OTHER = replace(STAMP, key="other", model_type="qwen3", width=40, n_layers=8, tokenizer="other")


def directions(k=3, layers=(1, 2), seed=0, model=STAMP, **fields):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((k, len(layers), model.width))
    fields = {"names": tuple("abcdefgh"[:k]), **fields}
    return Directions(layers=layers, vectors=vectors, model=model, **fields)


def acts(n=80, layers=(1, 2), seed=0, model=STAMP, **columns):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((len(layers), n, model.width)).astype(np.float32)
    ids = np.array([f"i{row}" for row in range(n)])
    return Acts(values, {"id": ids, **columns}, layers, model=model)


def wide(table, layer=1):
    rows = table[table["layer"] == layer]
    return rows.pivot(index="first", columns="second", values="cosine").to_numpy()


def test_the_table_holds_every_pair_and_layer_once_for_each_null():
    table = cosines(directions(), directions(5, seed=1), nulls=("isotropic", "closed form"))
    assert tuple(table.columns) == COSINES
    assert len(table) == 3 * 5 * 2 * 2
    np.testing.assert_allclose(wide(table[table["null"].str.contains("closed")]), cosine(
        directions().at(1), directions(5, seed=1).at(1)
    ))  # fmt: skip
    assert set(table["n"]) == {1}
    assert table["low"].isna().all()
    assert set(table["interval"]) == {"none: one direction, no seeds"}


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 500), st.floats(0.01, 1000))
def test_cosines_ignore_length_swap_with_their_sides_and_turn_with_a_sign(seed, size):
    first, second = directions(seed=seed), directions(4, seed=seed + 1)
    one = wide(cosines(first, second, nulls=["closed form"]))
    np.testing.assert_allclose(wide(cosines(first * size, second, nulls=["closed form"])), one,
                               atol=1e-6)  # fmt: skip
    np.testing.assert_allclose(wide(cosines(-first, second, nulls=["closed form"])), -one)
    np.testing.assert_allclose(wide(cosines(second, first, nulls=["closed form"])).T, one)


def test_the_bands_of_a_table_are_named_and_the_closed_form_is_the_formula():
    table = cosines(
        directions(),
        directions(5, seed=1),
        nulls=["isotropic", "closed form", SplitHalf(acts()), CovarianceMatched(acts())],
    )
    assert list(dict.fromkeys(table["null"])) == [
        "isotropic, 95% of largest of 5",
        "isotropic, closed form, 95% of largest of 5",
        "split-half, 95% of largest of 5",
        "covariance-matched, 95% of largest of 5",
    ]
    bands = table.groupby("null", sort=False)["band"].first()
    assert bands.iloc[1] == pytest.approx(random_band(5, D))
    assert bands.iloc[0] == pytest.approx(bands.iloc[1], rel=0.05)
    assert (table["beyond"] == (table["cosine"].abs() > table["band"])).all()
    assert list(table.groupby("null", sort=False)["null_unit"].first()) == [
        "draw", "vector", "item", "item",
    ]  # fmt: skip


def test_chance_and_band_agree_on_what_is_beyond():
    table = cosines(directions(6, seed=3), directions(8, seed=4))
    assert (table["chance"] <= 0.052)[table["beyond"]].all()
    assert (table["chance"] >= 0.048)[~table["beyond"]].all()


def test_unrelated_directions_pass_the_band_one_time_in_twenty():
    first = Directions(tuple(map(str, range(2000))), (1,), np.random.default_rng(7).standard_normal(
        (2000, 1, D)), STAMP)  # fmt: skip
    table = cosines(first, directions(5, layers=(1,), seed=1))
    assert table.groupby("first")["beyond"].any().mean() == pytest.approx(0.05, abs=0.015)


def test_seeds_give_a_t_interval_around_their_mean():
    base, bank = directions(2), directions(3, seed=1)
    rng = np.random.default_rng(2)
    seeds = [
        replace(base, vectors=base.vectors + 0.2 * rng.standard_normal(base.vectors.shape))
        for _ in range(3)
    ]
    table = cosines(seeds, bank, nulls=["closed form"])
    values = np.stack([cosine(one.at(1), bank.at(1)) for one in seeds])
    np.testing.assert_allclose(wide(table), values.mean(0))
    row = table.iloc[0]
    reach = t.ppf(0.975, 2) * values[:, 0, 0].std(ddof=1) / np.sqrt(3)
    assert row["high"] - row["cosine"] == pytest.approx(reach)
    assert (row["n"], row["unit"], row["interval"]) == (3, "seed", "95% t over seeds")


def test_a_planted_difference_finds_its_vector_and_only_that():
    bank = directions(6, seed=1)
    first, second = acts(seed=2), acts(seed=2)
    rng = np.random.default_rng(3)
    shift = bank.at(1)[2] / np.linalg.norm(bank.at(1)[2])
    noise = 0.2 * rng.standard_normal(first.values.shape)
    first.values = (first.values + 2 * shift + noise).astype(np.float32)
    table = cosines(
        Difference(first, second, "P-A"), bank, layers=[1], nulls=["isotropic", SplitHalf(second)]
    )
    assert (table["n"] == 80).all()
    assert set(table["interval"]) == {"95% jackknife over items"}
    assert (table["low"] < table["cosine"]).all()
    assert (table["cosine"] < table["high"]).all()
    strongest = table.loc[table.groupby("null")["cosine"].idxmax()]
    assert set(strongest["second"]) == {"c"}
    assert strongest["beyond"].all()
    assert (strongest["low"] > 0.9).all()


@pytest.mark.thorough
def test_the_interval_of_a_difference_holds_the_truth_about_as_often_as_it_says():
    bank, truth = directions(4, layers=(1,), seed=1), np.random.default_rng(6).standard_normal(D)
    expected, inside = cosine(truth[None], bank.at(1)), []
    for trial in range(80):
        rng = np.random.default_rng(trial)
        first, second = acts(200, (1,), trial), acts(200, (1,), trial)
        first.values += truth + 2 * rng.standard_normal(first.values.shape)
        table = cosines(Difference(first, second, "x"), bank, nulls=["closed form"])
        inside.append((table["low"] <= expected[0]) & (expected[0] <= table["high"]))
    assert 0.89 <= np.mean(inside) <= 0.99


def test_differences_of_several_seeds_give_an_interval_over_seeds():
    pairs = [Difference(acts(seed=s), acts(seed=s + 10), "x") for s in range(3)]
    one = cosines(pairs, directions(), nulls=["closed form"])
    other = cosines([pair.directions() for pair in pairs], directions(), nulls=["closed form"])
    assert one.equals(other)
    assert set(one["unit"]) == {"seed"}


def test_an_interval_over_facts_is_wider_than_over_their_copies():
    facts = np.repeat(np.arange(8), 10)
    first, second = acts(seed=2, fact=facts), acts(seed=2, fact=facts)
    by_fact = np.random.default_rng(3).standard_normal((8, D)).astype(np.float32)[facts]
    first.values += by_fact + 1
    widths = {}
    for groups in (None, "fact"):
        table = cosines(Difference(first, second, "x", groups), directions(), nulls=["closed form"])
        widths[groups] = (table["high"] - table["low"]).mean()
        assert set(table["unit"]) == {groups or "item"}
    assert widths["fact"] > 2 * widths[None]


def test_means_are_refused_until_their_common_part_is_gone():
    means = directions(kind="mean")
    with pytest.raises(ConfigError, match=r"wb\.centered"):
        cosines(directions(), means)
    assert len(cosines(directions(), centered(means))) == 3 * 3 * 2


def test_other_models_sites_layers_and_names_are_refused():
    with pytest.raises(MismatchError, match=r"model_type.*common items"):
        cosines(directions(), directions(model=OTHER))
    with pytest.raises(MismatchError, match="of mlp_out"):
        cosines(directions(), directions(site="mlp_out"))
    with pytest.raises(MismatchError, match="no layer is shared"):
        cosines(directions(), directions(layers=(3, 4)))
    with pytest.raises(MismatchError, match="layer 3 is not held"):
        cosines(directions(), directions(), layers=[1, 3])
    with pytest.raises(MismatchError, match="same names and layers"):
        cosines([directions(), directions(2)], directions())
    with pytest.raises(ValueError, match="no directions"):
        cosines([], directions())


def test_an_organism_of_the_same_base_compares():
    organism = replace(STAMP, key="tiny+a-s0", fingerprint="0" * 16)
    table = cosines(directions(), directions(model=organism), nulls=["closed form"])
    assert table.iloc[0]["cosine"] == pytest.approx(1)


def test_layer_similarity_is_symmetric_with_ones_on_the_diagonal():
    table = layer_similarity(directions(2, layers=(0, 1, 2, 3)))
    for _, rows in table.groupby("direction"):
        grid = rows.pivot(index="layer", columns="other_layer", values="cosine").to_numpy()
        np.testing.assert_allclose(np.diag(grid), 1, rtol=1e-6)
        np.testing.assert_allclose(grid, grid.T, atol=1e-6)
    assert table["band"].iloc[0] == pytest.approx(random_band(1, D))
    assert table["null"].iloc[0] == "isotropic, closed form, 95% of one cosine"


def test_layers_that_carry_the_same_stream_make_a_meaningless_split_look_alike():
    one = acts(layers=(1, 2, 3))
    one.values[1] = one.values[0] + 0.1 * one.values[1]
    table = layer_similarity(directions(1, layers=(1, 2, 3)), nulls=["isotropic", SplitHalf(one)])
    bands = {
        (null.split(",")[0], a, b): band
        for null, a, b, band in table[["null", "layer", "other_layer", "band"]].to_numpy()
    }
    assert bands["split-half", 1, 2] > 0.98
    assert bands["split-half", 1, 3] < 0.7
    assert bands["isotropic", 1, 2] == bands["isotropic", 1, 3]


def test_layers_of_two_sets_may_differ_and_seeds_give_intervals():
    first, second = directions(1, layers=(1, 2)), directions(1, layers=(0, 3, 5), seed=8)
    table = layer_similarity(first, second)
    assert len(table) == 6
    seeds = [directions(1, seed=s) for s in range(3)]
    assert set(layer_similarity(seeds)["unit"]) == {"seed"}
    with pytest.raises(MismatchError, match="must be the same"):
        layer_similarity(directions(1), directions(2))


def common_truth(n=150, shared=3.0):
    """Two models of other widths that read one latent of the same items, in another order."""
    rng = np.random.default_rng(11)
    latent, topic = rng.standard_normal(n), np.repeat(["t", "u", "v"], n // 3)
    first, second = acts(n, topic=topic), acts(n, seed=1, model=OTHER)
    first.values[:, :, 0] += shared * latent
    second.values[:, :, 5] += shared * latent
    order = rng.permutation(n)
    second.values = second.values[:, order]
    second.columns = {"id": second.columns["id"][order]}
    axis = np.zeros((1, 2, D))
    axis[:, :, 0] = 1
    other = np.zeros((1, 2, OTHER.width))
    other[:, :, 5] = 1
    return (
        Directions(("truth",), (1, 2), axis, STAMP), first,
        Directions(("truth",), (1, 2), other, OTHER), second, order,
    )  # fmt: skip


def test_two_models_agree_on_what_they_both_read_whatever_the_order_of_items():
    first, first_acts, second, second_acts, order = common_truth()
    table = projection_correlations(first, first_acts, second, second_acts, draws=300)
    assert len(table) == 4
    back = np.argsort(order)
    expected = pearsonr(first_acts.at(1)[:, 0], second_acts.at(2)[back, 5]).statistic
    row = table[(table["layer"] == 1) & (table["other_layer"] == 2)].iloc[0]
    assert row["correlation"] == pytest.approx(expected, abs=1e-6)
    assert row["low"] < expected < row["high"]
    assert row["beyond"]
    assert (row["n"], row["unit"]) == (150, "item")


def test_unrelated_directions_of_two_models_agree_by_chance_alone():
    _, first_acts, _, second_acts, _ = common_truth(shared=0.0)
    table = projection_correlations(
        directions(8), first_acts, directions(8, model=OTHER), second_acts, draws=300
    )
    assert table["beyond"].mean() < 0.15


def test_what_topics_share_is_taken_out_within_topics():
    first, first_acts, second, second_acts, order = common_truth(shared=0.0)
    offset = np.repeat([0.0, 8.0, -8.0], 50)
    first_acts.values[:, :, 0] += offset
    second_acts.values[:, :, 5] += offset[order]
    found = {
        within: projection_correlations(
            first, first_acts, second, second_acts, within=within, draws=200
        )
        for within in (None, "topic")
    }
    assert (found[None]["correlation"] > 0.9).all()
    assert (found["topic"]["correlation"].abs() < 0.25).all()


@pytest.mark.thorough
def test_a_bootstrapped_correlation_holds_the_truth_about_as_often_as_it_says():
    inside = 0
    for trial in range(100):
        rng = np.random.default_rng(trial)
        latent = rng.standard_normal(100)
        sides = [acts(100, layers=(1,), seed=1000 + 2 * trial + s) for s in (0, 1)]
        for side in sides:
            side.values[:, :, 0] += latent
        axis = Directions(("x",), (1,), np.eye(D)[:1, None], STAMP)
        (row,) = projection_correlations(
            axis, sides[0], axis, sides[1], draws=200, seed=trial
        ).to_dict("records")
        inside += row["low"] <= 0.5 <= row["high"]
    assert 0.88 <= inside / 100 <= 0.99


def test_directions_of_another_model_than_their_activations_are_refused():
    first, first_acts, second, second_acts, _ = common_truth()
    with pytest.raises(MismatchError, match="model_type"):
        projection_correlations(first, second_acts, second, second_acts)
    second_acts.columns["id"] = np.array([f"j{row}" for row in range(150)])
    with pytest.raises(MismatchError, match="0 ids are shared"):
        projection_correlations(first, first_acts, second, second_acts)


def test_a_null_from_seeds_says_that_it_is_the_most_of_a_few_pairs():
    seeds = [acts(seed=s) for s in range(3)]
    table = cosines(directions(), directions(seed=1), nulls=[SeedPairs(seeds)])
    assert table["null"].iloc[0] == "seed-vs-seed, most of 3 of largest of 3"
    assert (table["chance"] >= 1 / 4).all()
    across = layer_similarity(directions(), nulls=[SeedPairs(seeds)])
    assert across["null"].iloc[0] == "seed-vs-seed, most of 3 of one cosine"


def test_a_band_over_layers_is_one_for_all_and_holds_for_the_best_of_them():
    layers = tuple(range(6))
    bank = directions(4, layers=layers, seed=1)
    rng = np.random.default_rng(2)
    many = Directions(
        tuple(map(str, range(1500))), layers, rng.standard_normal((1500, 6, D)), STAMP
    )
    tables = [cosines(many, bank, over_layers=over) for over in (False, True)]
    alarms = [table.groupby("first")["beyond"].any().mean() for table in tables]
    assert alarms[1] == pytest.approx(0.05, abs=0.02)
    assert alarms[0] > 0.2
    assert tables[1]["band"].nunique() == 1
    assert tables[1]["null"].iloc[0] == "isotropic, 95% of largest of 4 x 6 layers"
    closed = cosines(many["0"], bank, over_layers=True, nulls=["closed form"])
    assert closed["band"].iloc[0] == pytest.approx(random_band(24, D))


def test_layers_that_move_together_need_a_narrower_band_than_independent_ones():
    one = acts(layers=(1, 2, 3))
    one.values[1:] = one.values[0]
    bank = directions(4, layers=(1, 2, 3), seed=1)
    bank = replace(bank, vectors=np.repeat(bank.vectors[:, :1], 3, axis=1))
    split = SplitHalf(one, draws=400)
    alone = cosines(bank["a"], bank, layers=[1], nulls=[split])["band"].iloc[0]
    joint = cosines(bank["a"], bank, nulls=[split], over_layers=True)["band"].iloc[0]
    assert joint == pytest.approx(alone, rel=1e-6)


def with_ids(acts):
    ids = np.array([f"i{n}" for n in range(len(acts.columns["label"]))])
    return replace(acts, columns={**acts.columns, "id": ids})


def test_what_reads_all_items_alike_has_no_correlation():
    acts = with_ids(planted(facts=3))
    acts.values[..., 0] = 0.1
    vectors = np.eye(STAMP.width)[:2, None]
    own = Directions(("still", "moving"), (1,), vectors, STAMP)
    found = projection_correlations(own, acts, own, acts, draws=50).set_index(["first", "second"])
    assert found["correlation"].isna().tolist() == [True, True, True, False]
    assert found.loc[("moving", "moving"), "correlation"] == pytest.approx(1)
    assert np.isnan(found.loc[("still", "moving"), ["low", "high"]].astype(float)).all()


def test_items_that_are_alike_or_few_do_not_correlate():
    acts = with_ids(planted(facts=3))
    own = fit_layers(acts, layers=[1])
    with pytest.raises(ConfigError, match="alike at layer 1 within their groups"):
        projection_correlations(own, acts, own, acts, within="id")
    two = acts.where(np.arange(len(acts.columns["id"])) < 2)
    with pytest.raises(MismatchError, match="2 items in common"):
        projection_correlations(own, two, own, two)


def test_an_interval_over_seeds_stays_among_cosines():
    acts = planted(facts=3)
    seeds = [fit_layers(acts.where(acts.columns["topic"] == name)) for name in "ab"]
    found = cosines(seeds, fit_layers(acts, names=["bank"]))
    assert found["high"].max() <= 1
    assert found["low"].min() >= -1
