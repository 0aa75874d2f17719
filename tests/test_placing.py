"""Placing a checkpoint among known organisms, from planted projections."""

import numpy as np
import pandas as pd
import pytest

from workbench.errors import ConfigError
from workbench.placing import place
from workbench.results import table
from workbench.types import Measurement


def projections(subject, centers, *, organism=None, seed=None, items=20, noise=0.3, rng=0):
    """Rows of one subject; ``centers[direction, condition]`` is its mean projection."""
    draw = np.random.default_rng(rng)
    item_effect = np.random.default_rng(99).normal(size=items)  # shared by all models
    found = [
        Measurement(
            "projection", direction, f"{condition}-{i}", condition,
            float(center + 5 * item_effect[i] + noise * draw.normal()),
        )
        for (direction, condition), center in centers.items()
        for i in range(items)
    ]  # fmt: skip
    frame = table(found, subject=subject)
    if organism is not None:
        frame = frame.assign(organism=organism, train_seed=seed)
    return frame


def fleet(**centers):
    frames = [
        projections(f"m+{name}-s{seed}", where, organism=name, seed=seed, rng=ord(name) + seed)
        for name, where in centers.items()
        for seed in (0, 1)
    ]
    return pd.concat(frames, ignore_index=True)


P, A, N = ({("pa", "plain"): x} for x in (4.0, 0.0, 1.0))


def test_a_model_is_nearest_to_the_organism_that_it_resembles():
    found = place(projections("new", {("pa", "plain"): 3.8}, rng=7), fleet(P=P, A=A, N=N))
    assert found["known"].tolist() == ["P", "N", "A"]
    first = found.iloc[0]
    assert first["distance"] == pytest.approx(0.05, abs=0.06)
    assert first["nearest"] == 1.0
    assert (first["n"], first["unit"], first["n_seeds"]) == (20, "item", 2)
    assert found.iloc[2]["distance"] == pytest.approx(0.95, abs=0.06)
    assert found.iloc[2]["low"] < 0.95 < found.iloc[2]["high"]
    assert first["interval"] == "95% bootstrap over items and seeds"


def test_the_farthest_known_pair_is_one_gap_apart_whatever_the_raw_units():
    def distances(factor):
        def scaled(where):
            return {cell: factor * center for cell, center in where.items()}

        known = fleet(P=scaled(P), A=scaled(A), N=scaled(N))
        probed = projections("new", scaled(A), rng=3)
        return place(probed, known).set_index("known")["distance"]

    assert distances(1.0)["P"] == pytest.approx(1, abs=0.06)
    assert distances(50.0)["P"] == pytest.approx(1, abs=0.01)


def test_directions_add_up_as_squares_and_conditions_as_a_root_mean_square():
    known = fleet(
        P={("a", "x"): 3.0, ("a", "y"): 0.0, ("b", "x"): 0.0, ("b", "y"): 0.0},
        A={("a", "x"): 0.0, ("a", "y"): 0.0, ("b", "x"): 2.0, ("b", "y"): 2.0},
    )
    middle = {("a", "x"): 0.0, ("a", "y"): 0.0, ("b", "x"): 0.0, ("b", "y"): 0.0}
    found = place(projections("new", middle, noise=0.0), known).set_index("known")["distance"]
    assert found["P"] == pytest.approx(1, abs=0.07)
    assert found["A"] == pytest.approx(1, abs=0.07)
    both = {cell: known_p + 10 for cell, known_p in middle.items()}
    far = place(projections("new", both, noise=0.0), known).set_index("known")["distance"]
    a = np.sqrt((7**2 + 10**2) / 2) / np.sqrt(3**2 / 2)
    assert far["P"] == pytest.approx(np.hypot(a, 10 / 2), rel=0.05)


def test_a_direction_that_tells_no_known_models_apart_is_left_out_and_named():
    known = fleet(P={**P, ("flat", "plain"): 1.0}, A={**A, ("flat", "plain"): 1.0})
    probed = projections("new", {**P, ("flat", "plain"): 30.0})
    found = place(probed, known)
    assert set(found["directions"]) == {"pa"}
    assert set(found["left_out"]) == {"flat"}
    assert found.iloc[0]["known"] == "P"
    with pytest.raises(ConfigError, match=r"no direction tells the known models apart .*flat: "):
        place(probed[probed["measure"] == "flat"], known)


def test_the_probed_subject_is_not_its_own_neighbor():
    known = fleet(P=P, A=A, N=N)
    probed = known[known["subject"] == "m+N-s1"]
    found = place(probed, known)
    assert found.set_index("known").loc["N", "n_seeds"] == 1
    assert found.iloc[0]["known"] == "N"


def test_what_cannot_be_compared_is_refused_with_the_name():
    known = fleet(P=P, A=A)
    other = projections("new", {("pa", "plain"): 1.0}, items=19)
    with pytest.raises(ConfigError, match="A and new were measured on different items of 'plain'"):
        place(other, known)
    with pytest.raises(ConfigError, match="A has no projections on 'mood' for condition 'plain'"):
        place(projections("new", {("mood", "plain"): 1.0}), known)
    with pytest.raises(ConfigError, match="two known models beside new, found 1: P"):
        place(projections("new", P), fleet(P=P))
    with pytest.raises(ConfigError, match="one model is placed at a time, found 2: A, P"):
        place(known, known)
    with pytest.raises(ConfigError, match="no rows of the readout projection"):
        place(known.assign(readout="claims"), known)


def test_directions_may_be_measured_on_different_numbers_of_prompts():
    """Each set of items is resampled on its own; one of another size broke the product."""
    centers = {"P": 4.0, "A": 0.0, "new": 3.0}
    own = {
        name: pd.concat(
            [
                projections(name, {("pa", "plain"): at}, items=20, rng=1),
                projections(name, {("other", "plain"): 2 * at}, items=7, rng=2),
            ]
        )
        for name, at in centers.items()
    }
    found = place(own["new"], pd.concat([own["P"], own["A"]]), draws=50).set_index("known")
    assert found.loc["P", "distance"] == pytest.approx(np.sqrt(2) / 4, abs=0.1)
    assert found.loc["A", "distance"] == pytest.approx(np.sqrt(2) * 3 / 4, abs=0.1)


def test_items_are_the_same_by_name_whatever_type_holds_them():
    tables = [
        projections(name, {("pa", "plain"): at}, items=12, rng=ord(name))
        for name, at in (("N", 1.0), ("P", 4.0), ("A", 0.0))
    ]
    number = [table["item"].str.removeprefix("plain-") for table in tables]
    as_text = [table.assign(item=one) for table, one in zip(tables, number, strict=True)]
    as_number = [
        table.assign(item=one.astype(int)) for table, one in zip(tables, number, strict=True)
    ]
    pd.testing.assert_frame_equal(
        place(as_text[0], pd.concat(as_number[1:]), draws=50),
        place(as_text[0], pd.concat(as_text[1:]), draws=50),
    )


def test_an_organism_on_two_bases_is_two_models():
    """Its name alone would make training seeds of one organism out of two model families."""
    known = pd.concat(
        [
            projections(f"{base}+P-s{seed}", {("pa", "plain"): at}, organism="P", seed=seed).assign(
                base=base
            )
            for base, at in (("small", 0.0), ("large", 4.0))
            for seed in (0, 1)
        ]
    )
    found = place(projections("new", {("pa", "plain"): 0.1}), known, draws=50)
    assert found["known"].tolist() == ["small+P", "large+P"]
    assert found["n_seeds"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subject": None}, "have no subject"),
        ({"valid": None}, "column 'valid' holds None"),
        ({"valid": "True"}, "column 'valid' holds 'True'"),
        ({"value": np.inf}, "no finite value"),
        ({"value": np.nan}, "no finite value"),
        ({"weight": 0.0}, "no weight above 0"),
    ],
)
def test_rows_that_are_not_sound_are_named_not_dropped(change, message):
    new, known = projections("new", {("pa", "plain"): 3.8}, rng=7), fleet(P=P, A=A, N=N)
    with pytest.raises(ConfigError, match=message):
        place(new.assign(**change), known, draws=50)
    with pytest.raises(ConfigError, match=message):
        place(
            new,
            pd.concat([known, known.assign(organism=None, train_seed=None, **change)]),
            draws=50,
        )


def test_one_prompt_has_no_distance():
    new, one = (projections(name, P, items=1, rng=ord(name)) for name in "nP")
    with pytest.raises(ConfigError, match="one prompt a condition"):
        place(new, pd.concat([one, projections("A", A, items=1)]), draws=50)
