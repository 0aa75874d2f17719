"""Sweeps over maps and the further edits: every dose equals hooks of the test's own."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.directions import Directions
from workbench.directions.linear_map import LinearMap
from workbench.errors import ConfigError, MismatchError
from workbench.sweeps import Design, plan_sweep
from workbench.sweeps.controls import state as _seed
from workbench.types import LogitsRead, Measurement, Request

IDS = [(20, 30, 40, 50), (60, 70, 80), (90, 100, 110, 120, 130)]
TOKEN = 300


class NextToken:
    """Log-probability of one token after each of three prompts."""

    name = "next_token"

    def requests(self, subject):
        return [Request(str(n), "x", ids, (LogitsRead((TOKEN,)),)) for n, ids in enumerate(IDS)]

    def score(self, requests, answers):
        return [
            Measurement(self.name, "logp", r.item, r.condition, float(a[0][0]))
            for r, a in zip(requests, answers, strict=True)
        ]


def map_of(subject, layers=(1, 2), rank=None):
    rng = np.random.default_rng(0)
    l, d = len(layers), subject.width
    parts = {"W": 0.4 * rng.standard_normal((l, d, d)) / d**0.5}
    if rank is not None:
        left, right = rng.standard_normal((l, d, rank)), rng.standard_normal((l, rank, d))
        parts = {"left": 0.4 * left, "right": right / d**0.5}
    b, axis = (rng.standard_normal((l, d)) for _ in range(2))
    return LinearMap("trust", tuple(layers), b / 2, axis, subject.stamp, **parts)


def by_hooks(subject, change, layers):
    """The readout's values where ``change(layer, states)`` acts on all tokens but the first."""
    found = []
    for ids in IDS:

        def hook(module, args, output, layer):
            h = output if torch.is_tensor(output) else output[0]
            new = h.clone()
            new[0, 1:] = change(layer, h[0, 1:])
            return new if torch.is_tensor(output) else (new, *output[1:])

        handles = [
            subject.blocks[layer].register_forward_hook(
                lambda m, a, o, layer=layer, hook=hook: hook(m, a, o, layer)
            )
            for layer in layers
        ]
        with torch.no_grad():
            logits = subject.model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        for handle in handles:
            handle.remove()
        found.append(float(logits.log_softmax(-1)[TOKEN]))
    return found


def values(table, **where):
    for column, wanted in where.items():
        table = table[table[column] == wanted]
    return table.sort_values("item")["value"].tolist()


@pytest.mark.parametrize("rank", [None, 2])
def test_every_dose_of_a_map_and_of_its_controls_equals_hooks(tiny_subject, rank):
    found = map_of(tiny_subject, rank=rank)
    table = wb.sweep(
        tiny_subject,
        found,
        readouts=[NextToken()],
        doses=[-0.5, 1],
        edit="linear_map",
        controls=2,
        seed=4,
    )
    assert set(table["control"]) == {"none", "random:0", "random:1"}
    assert set(table["edit"]) == {"linear_map"}
    assert table["dose_raw"].isna().all()

    def moved(by, dose):
        def change(layer, h):
            return torch.from_numpy(by.apply(h.numpy(), layer, dose))

        return by_hooks(tiny_subject, change, (1, 2))

    for dose in (-0.5, 0, 1):
        expected = moved(found, dose)
        np.testing.assert_allclose(
            values(table, control="none", dose=dose), expected, rtol=0, atol=1e-5
        )
    for number in range(2):
        turned = found.rotated(_seed((1, 2), 0, 4, number))
        np.testing.assert_allclose(
            values(table, control=f"random:{number}", dose=1), moved(turned, 1), rtol=0, atol=1e-5
        )
    by_dose = [values(table, control=c, dose=1) for c in ("none", "random:0", "random:1")]
    assert np.abs(np.diff(by_dose, axis=0)).max() > 1e-3


def test_windows_of_a_map_are_swept_one_by_one(tiny_subject):
    found = map_of(tiny_subject)
    settings = {"readouts": [NextToken()], "doses": [1], "edit": "linear_map", "controls": 1}
    both = wb.sweep(tiny_subject, found, layers=[[1], [2]], **settings)
    for layer in (1, 2):
        alone = wb.sweep(tiny_subject, found.select([layer]), **settings)
        for control in ("none", "random:0"):
            own = values(both, layers=str(layer), control=control, dose=1)
            np.testing.assert_allclose(own, values(alone, control=control, dose=1), atol=1e-5)


@pytest.mark.parametrize(
    ("edit", "numbers", "change"),
    [
        ("rescale", {"factor": 3.0}, lambda c: 3 * c),
        ("affine", {"scale": 0.5, "offset": 2.0}, lambda c: 0.5 * c + 2),
        ("replace", {"value": -1.5}, lambda c: 0 * c - 1.5),
    ],
)
def test_edits_of_a_coordinate_are_swept_with_their_numbers(tiny_subject, edit, numbers, change):
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((1, 1, tiny_subject.width))
    direction = Directions(("a",), (2,), vectors, tiny_subject.stamp)
    table = wb.sweep(
        tiny_subject,
        direction,
        readouts=[NextToken()],
        doses=[1],
        edit=edit,
        controls=1,
        keep_norm=True,
        **numbers,
    )
    v = torch.from_numpy(vectors[0, 0] / np.linalg.norm(vectors)).float()

    def along(_, h):
        c = h @ v
        new = h + (change(c) - c)[:, None] * v
        return new * h.norm(dim=1, keepdim=True) / new.norm(dim=1, keepdim=True)

    expected = by_hooks(tiny_subject, along, (2,))
    np.testing.assert_allclose(values(table, control="none", dose=1), expected, rtol=0, atol=1e-5)


def test_a_kept_norm_is_no_threshold_and_an_addition_may_have_it(tiny_subject):
    rng = np.random.default_rng(1)
    vectors = 9 * rng.standard_normal((1, 1, tiny_subject.width))
    direction = Directions(("a",), (2,), vectors, tiny_subject.stamp)
    settings = {"readouts": [NextToken()], "doses": [1], "controls": 0}
    kept = wb.sweep(tiny_subject, direction, keep_norm=True, **settings)
    free = wb.sweep(tiny_subject, direction, **settings)
    assert values(kept, dose=1) != values(free, dose=1)
    assert values(kept, dose=0) == values(free, dose=0)


def test_mistakes_are_named(tiny_subject):
    found = map_of(tiny_subject)
    settings = {"readouts": [NextToken()], "doses": [1]}
    with pytest.raises(ConfigError, match="add takes a direction; got a LinearMap"):
        wb.sweep(tiny_subject, found, controls=0, **settings)
    with pytest.raises(ConfigError, match="map trust holds no layer 3"):
        wb.sweep(tiny_subject, found, edit="linear_map", layers=[3], **settings)
    with pytest.raises(ConfigError, match="linear_map takes no floor"):
        wb.sweep(tiny_subject, found, edit="linear_map", floor=1.0, **settings)
    other = replace(found, model=replace(tiny_subject.stamp, tokenizer="other"))
    with pytest.raises(MismatchError, match="trust"):
        wb.sweep(tiny_subject, other, edit="linear_map", **settings)


def test_a_plan_counts_the_arms_of_a_map(tiny_subject):
    design = Design(doses=[-1, 1], edit="linear_map", controls=3)
    (lines,) = plan_sweep(tiny_subject, map_of(tiny_subject), [NextToken()], design)
    assert "9 arms" in lines
