"""Sweeps: every dose equals the plain way, controls are fair, mistakes are named."""

import json
from dataclasses import replace

import numpy as np
import pytest

import workbench as wb
from workbench.directions import Directions
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.interventions import Gap
from workbench.types import LogitsRead, Measurement, Request


class NextToken:
    """A readout for tests: log-probability of one token after each of three prompts."""

    name = "next_token"
    token = 300

    def requests(self, subject):
        return [
            Request(str(n), "x", ids, (LogitsRead((self.token,)),))
            for n, ids in enumerate([(20, 30, 40, 50), (60, 70, 80), (90, 100, 110, 120, 130)])
        ]

    def score(self, requests, answers):
        return [
            Measurement(self.name, "logp", r.item, r.condition, float(a[0][0]))
            for r, a in zip(requests, answers, strict=True)
        ]


def directions(subject, names=("a",), layers=(1, 2), norms=True, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(len(names), len(layers), subject.width)).astype(np.float32)
    return Directions(
        names=names,
        layers=layers,
        vectors=vectors,
        norms=np.linspace(2, 3, len(layers)).astype(np.float32) if norms else None,
        kind="difference",
        site="resid_post",
        position="last",
        model=subject.stamp,
    )


def values(table, **where):
    for column, wanted in where.items():
        table = table[table[column] == wanted]
    return table.sort_values("item")["value"].to_numpy()


def test_every_dose_equals_the_same_edit_made_alone(tiny_subject):
    truth = directions(tiny_subject)
    table = wb.sweep(
        tiny_subject, truth, readouts=[NextToken()], doses=[-1, 2], layers=[1, 2], controls=2
    )
    import torch

    for dose in (-1.0, 0.0, 2.0):
        edit = wb.Intervention.add(truth, layers=[1, 2], dose=dose, unit="raw", scope="all")
        plain = []
        with wb.intervene(tiny_subject, [edit]), torch.no_grad():
            for request in NextToken().requests(tiny_subject):
                logits = tiny_subject.model(torch.tensor([request.ids])).logits
                plain.append(logits[0, -1].log_softmax(-1)[NextToken.token].item())
        found = values(table, control="none", dose=dose)
        np.testing.assert_allclose(found, plain, atol=1e-5)
    assert np.ptp(values(table, control="none", dose=2.0) - values(table, dose=0.0)) > 1e-3


def test_the_zero_dose_is_the_model_as_measured(tiny_subject):
    table = wb.sweep(
        tiny_subject, directions(tiny_subject), readouts=[NextToken()], doses=[1], controls=0
    )
    plain = wb.measure(tiny_subject, [NextToken()])
    np.testing.assert_allclose(values(table, dose=0.0), values(plain), atol=1e-5)
    assert sorted(set(table["dose"])) == [0, 1]


def test_random_controls_have_the_same_length_stay_over_doses_and_follow_the_seed(tiny_subject):
    from workbench.sweeps.controls import random_versions as _random

    own = directions(tiny_subject)
    first, again = (dict(_random(own, (1, 2), 3, seed=4)) for _ in range(2))
    other = dict(_random(own, (1, 2), 3, seed=5))
    assert list(first) == ["random:0", "random:1", "random:2"]
    for name in first:
        np.testing.assert_allclose(
            np.linalg.norm(first[name].vectors, axis=-1),
            np.linalg.norm(own.vectors, axis=-1),
            rtol=1e-5,
        )
        np.testing.assert_array_equal(first[name].vectors, again[name].vectors)
        assert not np.allclose(first[name].vectors, other[name].vectors)
    assert not np.allclose(first["random:0"].vectors, first["random:1"].vectors)
    unit = (
        first["random:0"].vectors[0]
        / np.linalg.norm(first["random:0"].vectors[0], axis=-1)[:, None]
    )
    assert abs(unit[0] @ unit[1]) < 0.9


def test_a_row_says_what_was_done_in_every_unit(tiny_subject):
    own = directions(tiny_subject, layers=(2,))
    table = wb.sweep(
        tiny_subject, own, readouts=[NextToken()], doses=[0.5], unit="norm", controls=1
    )
    row = table[(table["control"] == "random:0") & (table["dose"] == 0.5)].iloc[0]
    assert (row["direction"], row["edit"], row["layers"], row["scope"], row["unit"]) == (
        *("a", "add", "2", "all", "norm"),
    )
    assert row["dose_raw"] == pytest.approx(0.5 * own.norms[0])
    assert row["dose_norm"] == pytest.approx(0.5)
    assert row["realised"] == pytest.approx(row["dose_raw"], rel=1e-4)
    assert row["engaged"] == 1
    assert json.loads(row["extra"]) == {}


def test_each_name_and_each_window_is_an_arm_of_its_own(tiny_subject):
    table = wb.sweep(
        tiny_subject,
        directions(tiny_subject, names=("a", "b")),
        readouts=[NextToken()],
        doses=[1],
        layers=[[1], [1, 2]],
        controls=1,
    )
    cells = table[["direction", "layers", "control", "dose"]].drop_duplicates()
    assert len(cells) == 2 * 2 * 3
    assert set(table["layers"]) == {"1", "1,2"}


def test_an_ablation_at_dose_one_removes_the_coordinate(tiny_subject):
    own = directions(tiny_subject, layers=(3,))

    class Coordinate(NextToken):
        def requests(self, subject):
            read = wb.Read("resid_post", (3,), "last")
            return [
                wb.Request(r.item, r.condition, r.ids, (read,)) for r in super().requests(subject)
            ]

        def score(self, requests, answers):
            v = own.vectors[0, 0] / np.linalg.norm(own.vectors[0, 0])
            return [
                Measurement("c", "c", r.item, "x", float(np.asarray(a[0])[0] @ v))
                for r, a in zip(requests, answers, strict=True)
            ]

    table = wb.sweep(
        tiny_subject, own, edit="ablate", readouts=[Coordinate()], doses=[1], controls=0
    )
    np.testing.assert_allclose(values(table, dose=1.0), 0, atol=1e-5)
    assert np.abs(values(table, dose=0.0)).max() > 1e-2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"doses": []}, ConfigError, "at least one dose"),
        ({"layers": []}, ConfigError, "name at least one block"),
        ({"layers": [1, [2]]}, ConfigError, "mixes blocks and windows"),
        ({"layers": [9]}, wb.WorkbenchError, "9"),
        ({"edit": "ad"}, UnknownNameError, "Did you mean 'add'"),
        ({"readouts": ["next"]}, UnknownNameError, "unknown readout 'next'"),
        ({"unit": "gap"}, ConfigError, "natural gap"),
        ({"unit": "norms"}, ConfigError, "unit 'norms'; expected one of raw, norm, gap"),
        ({"doses": [float("nan")]}, ConfigError, "dose nan"),
        ({"edit": "ablate", "unit": "norm"}, ConfigError, "whose dose is a blend"),
        ({"edit": "cap"}, ConfigError, "without floor or ceiling changes nothing"),
        ({"edit": "cap", "keep_norm": True}, ConfigError, "without floor or ceiling"),
        ({"edit": "ablate", "doses": [5]}, ConfigError, "dose 5 for ablate.*a blend from 0"),
        ({"edit": "cap", "floor": 1.0, "doses": [-1]}, ConfigError, "dose -1 for cap.*a blend"),
        ({"edit": "cap", "floor": 2.0, "ceiling": 1.0}, ConfigError, "above ceiling"),
        ({"floor": 1.0}, ConfigError, "add takes no floor"),
        ({"layers": [1, 1]}, ConfigError, "each once"),
    ],
)
def test_a_wrong_sweep_is_refused(tiny_subject, options, error, message):
    settings = {"readouts": [NextToken()], "doses": [1], **options}
    with pytest.raises(error, match=message):
        wb.sweep(tiny_subject, directions(tiny_subject), **settings)


def test_directions_of_another_model_are_refused(tiny_subject, subject_of):
    foreign = directions(subject_of("llama"))
    with pytest.raises(MismatchError, match="model_type = llama"):
        wb.sweep(tiny_subject, foreign, readouts=[NextToken()], doses=[1])


def test_a_gap_of_one_direction_is_not_used_for_two(tiny_subject):
    two = directions(tiny_subject, names=("a", "b"))
    gap = Gap(2.0, 0.1, 8, "item")
    with pytest.raises(ConfigError, match=r"one direction, found 2: a, b"):
        wb.sweep(tiny_subject, two, readouts=[NextToken()], doses=[1], unit="gap", gap=gap)
    table = wb.sweep(
        tiny_subject, two["a"], readouts=[NextToken()], doses=[1.5], unit="gap", gap=gap, controls=1
    )
    rows = table[table["dose"] != 0]
    np.testing.assert_allclose(rows["dose_raw"], 3.0)
    np.testing.assert_allclose(rows["dose_gap"], 1.5)
    np.testing.assert_allclose(rows["dose_norm"], 3.0 * np.mean([1 / 2, 1 / 3]), rtol=1e-6)


def test_a_blend_is_no_distance_and_directions_without_norms_have_no_norm_dose(tiny_subject):
    own = directions(tiny_subject, layers=(2,), norms=False)
    options = {"readouts": [NextToken()], "doses": [1], "controls": 0}
    blended = wb.sweep(tiny_subject, own, edit="cap", floor=0.5, **options)
    assert blended[["dose_raw", "dose_norm", "dose_gap"]].isna().all(axis=None)
    added = wb.sweep(tiny_subject, own, **options)
    length = np.linalg.norm(own.vectors)
    np.testing.assert_allclose(added.loc[added["dose"] == 1, "dose_raw"], length, rtol=1e-5)
    assert added["dose_norm"].isna().all()


def test_a_cap_in_a_sweep_equals_the_cap_made_alone(tiny_subject):
    import torch

    own = directions(tiny_subject, layers=(2,))
    table = wb.sweep(
        tiny_subject, own, edit="cap", floor=1.5, readouts=[NextToken()], doses=[1], controls=2
    )
    edit = wb.Intervention.cap(own, layers=[2], floor=1.5)
    plain = []
    with wb.intervene(tiny_subject, [edit]), torch.no_grad():
        for request in NextToken().requests(tiny_subject):
            logits = tiny_subject.model(torch.tensor([request.ids])).logits
            plain.append(logits[0, -1].log_softmax(-1)[NextToken.token].item())
    np.testing.assert_allclose(values(table, control="none", dose=1.0), plain, atol=1e-5)
    assert np.abs(np.array(plain) - values(table, dose=0.0)).max() > 1e-3


def test_a_dose_past_all_floats_gives_invalid_rows_not_an_end(tiny_subject):
    own = directions(tiny_subject, layers=(1, 2))
    axis = np.zeros_like(own.vectors)
    axis[..., 0] = 1
    own = replace(own, vectors=axis)  # twice 3e38 on one coordinate is past float32
    table = wb.sweep(tiny_subject, own, readouts=[NextToken()], doses=[3e38], controls=0)
    huge = table[table["dose"] != 0]
    assert (huge["reason"] == "out_of_range").all()
    assert not huge["valid"].any()
    assert table.loc[table["dose"] == 0, "valid"].all()


def test_prompts_too_short_to_be_watched_are_swept_all_the_same(tiny_subject):
    class Short(NextToken):
        def requests(self, subject):
            return [replace(one, ids=one.ids[:3]) for one in super().requests(subject)]

    table = wb.sweep(
        tiny_subject, directions(tiny_subject), readouts=[Short()], doses=[-1, 1], controls=0
    )
    assert len(table) == 9
    assert table["value"].notna().all()
    assert table["realised"].isna().all()


def test_a_readout_or_a_subject_that_stands_twice_is_refused(tiny_subject):
    """Its items stood twice in the table, under one name, and counted twice."""
    own = NextToken()
    for twice in (["capability", {"name": "capability"}], [own, own]):
        with pytest.raises(ConfigError, match=r"readouts: .* stands twice"):
            wb.measure(tiny_subject, twice)
        with pytest.raises(ConfigError, match=r"readouts: .* stands twice"):
            wb.sweep(tiny_subject, directions(tiny_subject), readouts=twice, doses=[1], controls=0)
    with pytest.raises(ConfigError, match=r"subjects: .* stands twice"):
        wb.sweep([tiny_subject] * 2, directions(tiny_subject), readouts=[own], doses=[1])
