"""Maps, subspaces and kept norms on models: each equals a loop of hooks over single rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from workbench.directions import Directions
from workbench.directions.linear_map import LinearMap
from workbench.engine.edits import LiveEdits, Pass
from workbench.engine.hooks import HookRunner
from workbench.errors import MismatchError
from workbench.interventions import EditLog, Intervention
from workbench.types import CandidatesRead, LogitsRead, Read, Request

RUNNER = HookRunner()
ROWS = ((7, 8, 9), (40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51), (20, 21, 22, 23, 24))


def map_of(subject, rank=None, layers=(1, 2), seed=0, size=0.4):
    """A random map that moves states by a good part of their length."""
    rng = np.random.default_rng(seed)
    l, d = len(layers), subject.width
    parts = {"W": size * rng.standard_normal((l, d, d)) / d**0.5}
    if rank is not None:
        left, right = rng.standard_normal((l, d, rank)), rng.standard_normal((l, rank, d))
        parts = {"left": size * left, "right": right / d**0.5}
    b, axis = (rng.standard_normal((l, d)) for _ in range(2))
    return LinearMap("trust", tuple(layers), b / 2, axis, subject.stamp, **parts)


def directions_of(subject, k=1, layers=(1, 2), seed=3):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((k, len(layers), subject.width))
    names = tuple(f"d{n}" for n in range(k))
    return Directions(names, tuple(layers), vectors, subject.stamp, center=vectors / 3)


def moved_plainly(edit, row):
    """What one edit makes of the states (t, d) of one row, from its formula in float64."""
    h, parts = row.double(), {k: torch.from_numpy(v).double() for k, v in edit.weights.items()}
    v, numbers = torch.from_numpy(edit.v).double(), edit.rows
    c = (h @ v)[:, None]
    if edit.name == "linear_map":
        W = parts["W"] if "W" in parts else parts["left"] @ parts["right"]
        shift = h @ W.T + parts["b"]
    elif edit.name == "rescale":
        shift = (numbers["factor"] - 1) * c * v
    elif edit.name == "affine":
        shift = ((numbers["scale"] - 1) * c + numbers["offset"]) * v
    elif edit.name == "replace":
        shift = (numbers["value"] - c) * v
    else:
        assert edit.name == "project_to_subspace"
        center = parts.get("center", torch.zeros(len(v)).double())
        within = (h - center) @ parts["basis"].T @ parts["basis"]
        new = numbers["inside"] * within + numbers["outside"] * (h - center - within)
        shift = center + new - h
    out = h + edit.dose * shift
    if type(edit.edit).__name__ == "KeepNorm":
        out = out * h.norm(dim=1, keepdim=True) / out.norm(dim=1, keepdim=True)
    return out.float()


def plain(subject, ids, arm, prompt=None):
    """Logits and edited block outputs of one unpadded row, from hooks of the test's own."""
    prompt = len(ids) if prompt is None else prompt
    hidden, handles = {}, []
    for layer, block in subject.blocks.items():

        def hook(module, args, output, layer=layer):
            row = (output if torch.is_tensor(output) else output[0])[0]
            columns = torch.arange(len(row))
            for edit in arm:
                if edit.layer == layer:
                    here = columns >= prompt - 1 if edit.scope == "last" else columns > 0
                    row = torch.where(here[:, None], moved_plainly(edit, row), row)
            hidden[layer] = row
            return row[None] if torch.is_tensor(output) else (row[None], *output[1:])

        handles.append(block.register_forward_hook(hook))
    try:
        with torch.no_grad():
            return subject.model(torch.tensor([list(ids)]), use_cache=False).logits[0], hidden
    finally:
        for handle in handles:
            handle.remove()


def interventions(subject, scope="all"):
    one, many = directions_of(subject), directions_of(subject, 3)
    settings = {"scope": scope, "layers": [1, 2]}
    return {
        "map": Intervention.map(map_of(subject), dose=0.7, **settings),
        "low map": Intervention.map(map_of(subject, rank=3), dose=-1.0, **settings),
        "map, norm kept": Intervention.map(map_of(subject), keep_norm=True, **settings),
        "rescale": Intervention.rescale(one, factor=-2.0, **settings),
        "affine": Intervention.affine(one, scale=0.5, offset={1: 2.0, 2: -1.0}, **settings),
        "replace": Intervention.replace(one, value=3.0, dose=0.5, **settings),
        "subspace": Intervention.project_to_subspace(many, dose=0.5, **settings),
        "outside": Intervention.project_to_subspace(many, inside=0.0, outside=1.0, **settings),
        "about": Intervention.project_to_subspace(many, centered=True, dose=0.5, **settings),
    }


NAMES = (
    "map", "low map", "map, norm kept", "rescale", "affine", "replace", "subspace", "outside",
    "about",
)  # fmt: skip


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_an_edited_batch_equals_each_row_alone(name, side, family, subject_of, batch_with):
    subject = subject_of(family)
    one, batch = interventions(subject)[name], batch_with(subject, ROWS, side)
    with RUNNER.intervene(subject, [one]) as log, torch.no_grad():
        edited = subject.model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
        ).logits
    for row, ids in enumerate(ROWS):
        expected, _ = plain(subject, ids, one.arm(subject.stamp))
        untouched, _ = plain(subject, ids, ())
        found = edited[row][batch.attention_mask[row].bool()]
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-5)
        assert (expected[-1] - untouched[-1]).abs().max() > 1e-3
    assert {row.engaged for row in log.rows} == {1.0}
    assert [row.n for row in log.rows] == [sum(map(len, ROWS)) - len(ROWS)] * 2


def requests_of():
    rng = np.random.default_rng(0)
    reads = (
        LogitsRead(),
        CandidatesRead(((60,), (61,), (60, 70), (62, 63, 64)), (12, 2)),
        Read(layers=(1, 2, 3), position="last"),
    )
    return [
        Request(f"i{n}", "c", tuple(int(i) for i in rng.integers(5, 300, length)), reads)
        for n, length in enumerate((13, 5, 9))
    ]


def plain_reads(subject, request, arm):
    logits, hidden = plain(subject, request.ids, arm)
    read, n = request.reads[1], len(request.ids)
    scores = []
    for candidate in read.candidates:
        logprobs = plain(subject, [*request.ids, *candidate], arm, n)[0].log_softmax(-1)
        score = sum(logprobs[n - 1 + place, token] for place, token in enumerate(candidate))
        end = logprobs[n + len(candidate) - 1, list(read.terminators)].logsumexp(0)
        scores.append(float(score + end))
    states = torch.stack([hidden[layer][-1] for layer in request.reads[2].layers])
    return [logits[-1].log_softmax(-1).numpy(), np.array(scores), states.numpy()]


def check_many_arms(subject, scope):
    """Two maps with one axis, two doses of one map, and every other edit, planned together."""
    made = interventions(subject, scope)
    turned = map_of(subject, seed=8)
    same_axis = replace(turned, axis=map_of(subject).axis)
    more = [replace(made["map"], dose=-0.3), Intervention.map(same_axis, dose=0.7, scope=scope)]
    arms = [(), *(one.arm(subject.stamp) for one in [*made.values(), *more])]
    requests = requests_of()
    answered = RUNNER.answer(subject, requests, arms)
    for arm, values in zip(arms, answered.values, strict=True):
        for request, found in zip(requests, values, strict=True):
            for value, expected in zip(found, plain_reads(subject, request, arm), strict=True):
                np.testing.assert_allclose(value, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("scope", ["all", "last"])
def test_many_arms_in_one_batch_equal_the_plain_way(scope, subject_of):
    check_many_arms(subject_of("gpt2"), scope)


@pytest.mark.thorough
@pytest.mark.parametrize("scope", ["all", "last"])
def test_many_arms_in_one_batch_equal_the_plain_way_on_every_family(scope, family, subject_of):
    check_many_arms(subject_of(family), scope)


def test_doses_of_one_map_are_one_group_and_two_maps_are_two(subject_of):
    subject = subject_of("llama")
    one, other = map_of(subject, layers=(1,)), map_of(subject, layers=(1,), seed=9)
    arms = [Intervention.map(m, dose=d).arm(subject.stamp) for m in (one, other) for d in (0.5, 1)]
    live = LiveEdits(subject, arms, EditLog())
    assert [group.key.arms for group in live.groups[1]] == [(0, 1), (2, 3)]
    shared = live.groups[1][0].weights["W"]
    assert shared.data_ptr() == one.W.ctypes.data  # no copy on the CPU


@pytest.mark.parametrize("name", NAMES)
def test_tokens_out_of_scope_and_rows_of_other_arms_keep_every_bit(name, subject_of):
    subject = subject_of("llama")
    arms = [(), interventions(subject)[name].arm(subject.stamp)]
    live = LiveEdits(subject, arms, EditLog())
    h = torch.randn(4, 6, subject.width, generator=torch.Generator().manual_seed(0))
    given, mask = h.clone(), torch.arange(6).expand(4, 6) >= torch.tensor([[2], [0], [3], [5]])
    out = live.apply(1, h, Pass((1, 0, 1, 1), lambda _: mask))
    inside = mask.clone()
    inside[1] = False
    assert torch.equal(h, given)
    assert torch.equal(out[~inside], h[~inside])
    assert (out[inside] != h[inside]).any(-1).all()


def test_a_zero_dose_changes_no_bit(family, subject_of, batch_with):
    subject = subject_of(family)
    batch = batch_with(subject, ROWS)
    arm = [replace(one, dose=0.0) for one in interventions(subject).values()]
    call = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    with torch.no_grad():
        bare = subject.model(**call).logits
        with RUNNER.intervene(subject, arm) as log:
            edited = subject.model(**call).logits
    assert torch.equal(bare, edited)
    assert {(row.engaged, row.realised) for row in log.rows} == {(0.0, 0.0)}


@pytest.mark.parametrize("scope", ["all", "last"])
def test_generation_under_a_map_is_that_of_choosing_token_by_token(scope, family, subject_of):
    subject = subject_of(family)
    one = Intervention.map(map_of(subject), dose=1.0, scope=scope)
    ids = list(subject.encode(["the sky"]).input_ids[0].tolist())
    arm, written = one.arm(subject.stamp), []
    for _ in range(5):
        logits, _ = plain(subject, [*ids, *written], arm, len(ids))
        written.append(int(logits[-1].argmax()))
    with RUNNER.intervene(subject, [one]), torch.no_grad():
        batch = subject.encode(["the sky"])
        found = subject.model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            max_new_tokens=5,
            do_sample=False,
            eos_token_id=None,
        )
    assert found[0, len(ids) :].tolist() == written


def test_the_log_counts_the_shift_along_the_axis(subject_of, batch_with):
    subject = subject_of("llama")
    found = map_of(subject, layers=(2,))
    batch = batch_with(subject, ROWS)
    read = [Read(layers=(2,), position="all")]
    (before,) = RUNNER.capture(subject, batch, read)
    with RUNNER.intervene(subject, [Intervention.map(found, dose=0.5)]) as log:
        RUNNER.capture(subject, batch, read)
    states = np.concatenate([row[0][1:].numpy() for row in before])
    axis = found.axis[0] / np.linalg.norm(found.axis[0])
    expected = 0.5 * (found.displacement(states, 2) @ axis).mean()
    assert log.rows[0].realised == pytest.approx(expected, rel=1e-4)


def test_a_map_of_another_model_is_refused(subject_of):
    subject = subject_of("llama")
    other = replace(map_of(subject), model=replace(subject.stamp, tokenizer="other"))
    with pytest.raises(MismatchError, match=r"direction 'trust'.*tokenizer"):
        Intervention.map(other).arm(subject.stamp)


def test_a_read_only_map_acts_too(subject_of, batch_with):
    subject = subject_of("llama")
    found = map_of(subject)
    for array in (found.W, found.b):
        array.setflags(write=False)
    frozen = replace(found)
    batch = batch_with(subject, ROWS)
    with RUNNER.intervene(subject, [Intervention.map(frozen)]) as log, torch.no_grad():
        subject.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
    assert log.passes == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_maps_act_on_an_accelerator_as_on_the_cpu(dtype, make_subject, batch_with):
    if not torch.cuda.is_available():
        pytest.skip("no accelerator")
    subject = make_subject("llama")
    one = interventions(subject)["map"]
    subject.model.to("cuda", dtype)
    batch = batch_with(subject, ROWS)
    with RUNNER.intervene(subject, [one]) as log, torch.no_grad():
        edited = subject.model(
            input_ids=batch.input_ids.cuda(),
            attention_mask=batch.attention_mask.cuda(),
            position_ids=batch.position_ids.cuda(),
        ).logits
    assert edited.dtype == dtype
    assert {row.engaged for row in log.rows} == {1.0}
    subject.model.to("cpu", torch.float32)
    near = {"rtol": 0, "atol": 0.2 if dtype == torch.bfloat16 else 1e-3}
    for row, ids in enumerate(ROWS):
        expected, _ = plain(subject, ids, one.arm(subject.stamp))
        found = edited[row].float().cpu()[batch.attention_mask[row].bool().cpu()]
        torch.testing.assert_close(found, expected, **near)
