"""Edits inside a with-block: right rows, right tokens, any caching, and nothing left behind."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from workbench.engine.hooks import HookRunner
from workbench.errors import UnknownNameError, WorkbenchError
from workbench.interventions import Intervention
from workbench.types import LogitsRead, ModelStamp, Read, Request

RUNNER = HookRunner()
ROWS = ((7, 8, 9), (40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51), (20, 21, 22, 23, 24))
SCOPES = ("all", "all+first", "last")


def logits_of(subject, batch, **kwargs):
    with torch.no_grad():
        return subject.model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            **kwargs,
        ).logits


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("scope", SCOPES)
def test_an_edited_batch_equals_each_row_alone(
    scope, side, family, subject_of, batch_with, make_edit, forward_plainly
):
    subject = subject_of(family)
    batch = batch_with(subject, ROWS, side)
    arm = (make_edit("add", 1, 3.0, scope), make_edit("ablate", 2, 1.0, scope))
    with RUNNER.intervene(subject, [arm]):
        edited = logits_of(subject, batch)
    plain = logits_of(subject, batch)
    for row, ids in enumerate(ROWS):
        real = batch.attention_mask[row].bool()
        expected, _ = forward_plainly(subject, ids, arm)
        torch.testing.assert_close(edited[row][real], expected, rtol=0, atol=1e-5)
        assert (edited[row][real][-1] - plain[row][real][-1]).abs().max() > 0.01


def test_a_zero_dose_changes_no_bit(family, subject_of, batch_with, make_edit):
    subject = subject_of(family)
    batch = batch_with(subject, ROWS)
    band = {"floor": -0.1, "ceiling": 0.1}
    arm = (make_edit("add", 1, 0.0), make_edit("cap", 1, 0.0, **band), make_edit("ablate", 3, 0.0))
    with RUNNER.intervene(subject, [arm]) as log:
        edited = logits_of(subject, batch)
    assert torch.equal(edited, logits_of(subject, batch))
    assert {(row.engaged, row.realised) for row in log.rows} == {(0.0, 0.0)}


def test_the_same_addition_at_three_blocks_that_pass_on_adds_up(
    make_subject, batch_with, make_edit
):
    subject = make_subject("qwen3")
    for layer in (1, 2, 3):
        subject.blocks[layer].forward = lambda h, *_, **__: h
    unit = make_edit("add", 1, 2.0)
    arm = tuple(replace(unit, layer=layer) for layer in (1, 2, 3))
    batch = batch_with(subject, ROWS)
    read = [Read(layers=(0, 1, 2, 3))]
    (plain,) = RUNNER.capture(subject, batch, read)
    with RUNNER.intervene(subject, [arm]) as log:
        (edited,) = RUNNER.capture(subject, batch, read)
    for place, times in enumerate((0, 1, 2, 3)):
        shift = (edited[place] - plain[place]) @ torch.from_numpy(unit.v)
        torch.testing.assert_close(shift, torch.full((3,), 2.0 * times), rtol=0, atol=1e-5)
    assert [row.realised for row in log.rows] == pytest.approx([2.0, 2.0, 2.0], abs=1e-5)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_cached_continuation_equals_the_whole(
    scope, family, subject_of, make_edit, forward_plainly
):
    subject = subject_of(family)
    ids, more = ROWS[1], (90, 91, 92)
    arm = (make_edit("add", 1, 3.0, scope),)
    expected, _ = forward_plainly(subject, [*ids, *more], arm, prompt=len(ids))
    with RUNNER.intervene(subject, [arm]), torch.no_grad():
        first = subject.model(torch.tensor([ids]), use_cache=True)
        rest = [first.logits[0]]
        cache = first.past_key_values
        for token in more:
            out = subject.model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            rest.append(out.logits[0])
    torch.testing.assert_close(torch.cat(rest), expected, rtol=0, atol=1e-5)


def test_every_row_of_a_batch_is_edited(tiny_subject, batch_with, make_edit):
    batch = batch_with(tiny_subject, [ROWS[0], (31, 32, 33)])
    plain = logits_of(tiny_subject, batch)[:, -1]
    for edit in ("add", "ablate"):
        with RUNNER.intervene(tiny_subject, [(make_edit(edit, 1, 3.0),)]):
            edited = logits_of(tiny_subject, batch)[:, -1]
        assert ((edited - plain).abs().amax(-1) > 1e-3).all()


def test_arms_are_rows_of_a_prompt(tiny_subject, batch_with, make_edit, forward_plainly):
    arms = [
        (),
        (make_edit("add", 1, 3.0),),
        (make_edit("add", 2, -3.0), make_edit("ablate", 2, 1.0)),
    ]
    batch = batch_with(tiny_subject, [ids for ids in ROWS for _ in arms])
    with RUNNER.intervene(tiny_subject, arms) as log:
        edited = logits_of(tiny_subject, batch)
    for row in range(len(batch.input_ids)):
        ids, arm = ROWS[row // 3], arms[row % 3]
        expected, _ = forward_plainly(tiny_subject, ids, arm)
        torch.testing.assert_close(edited[row, -len(ids) :], expected, rtol=0, atol=1e-5)
    tokens = sum(len(ids) - 1 for ids in ROWS)
    assert [(row.arm, row.layer, row.edit, row.n) for row in log.rows] == [
        (1, 1, "add", tokens),
        (2, 2, "add", tokens),
        (2, 2, "ablate", tokens),
    ]


def test_rows_that_do_not_divide_into_arms_are_refused(tiny_subject, batch_with, make_edit):
    arms = [(), (make_edit("add", 1, 3.0),)]
    with (
        pytest.raises(WorkbenchError, match="3 rows for 2 arms"),
        RUNNER.intervene(tiny_subject, arms),
    ):
        logits_of(tiny_subject, batch_with(tiny_subject, ROWS))


def test_nested_edits_both_act_and_leave_one_by_one(
    tiny_subject, batch_with, make_edit, forward_plainly
):
    outer, inner = (make_edit("add", 1, 3.0),), (make_edit("ablate", 1, 1.0),)
    batch = batch_with(tiny_subject, ROWS[:1])
    with RUNNER.intervene(tiny_subject, [outer]):
        with RUNNER.intervene(tiny_subject, [inner]):
            both = logits_of(tiny_subject, batch)
        one = logits_of(tiny_subject, batch)
    none = logits_of(tiny_subject, batch)
    for logits, arm in ((both, outer + inner), (one, outer), (none, ())):
        expected, _ = forward_plainly(tiny_subject, ROWS[0], arm)
        torch.testing.assert_close(logits[0], expected, rtol=0, atol=1e-5)


def test_capturing_inside_reads_after_the_edit_and_never_a_shared_tensor(
    tiny_subject, batch_with, make_edit
):
    batch, edit = batch_with(tiny_subject, ROWS), make_edit("add", 1, 100.0)
    read = [Read(layers=(1,)), Read(layers=(1,), position="all")]
    clean = RUNNER.capture(tiny_subject, batch, read)
    kept = clean[0].clone()
    with RUNNER.intervene(tiny_subject, [(edit,)]):
        edited = RUNNER.capture(tiny_subject, batch, read)
    assert torch.equal(clean[0], kept)
    assert torch.equal(clean[0], RUNNER.capture(tiny_subject, batch, read)[0])
    shift = edited[0] - clean[0]
    torch.testing.assert_close(shift[0], 100.0 * torch.from_numpy(edit.v).expand(3, -1))
    assert torch.equal(edited[1][1][0, 0], clean[1][1][0, 0])


@pytest.mark.parametrize("broken", ["block", "body"])
def test_nothing_stays_after_an_exception(broken, tiny_subject, batch_with, make_edit, hook_count):
    batch = batch_with(tiny_subject, ROWS)
    before, plain = hook_count(tiny_subject.model), logits_of(tiny_subject, batch)

    def fail():
        with RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0),)]):
            if broken == "body":
                raise ZeroDivisionError
            handle = tiny_subject.blocks[2].register_forward_hook(lambda *_: 1 / 0)
            try:
                logits_of(tiny_subject, batch)
            finally:
                handle.remove()

    with pytest.raises(ZeroDivisionError):
        fail()
    assert hook_count(tiny_subject.model) == before
    assert "generate" not in vars(tiny_subject.model)
    assert torch.equal(logits_of(tiny_subject, batch), plain)


def test_an_edit_that_touches_nothing_is_an_error(tiny_subject, make_edit):
    arm = (make_edit("add", 1, 3.0),)
    with (
        pytest.raises(WorkbenchError, match=r"add at block 1 .* touched no token in 1 forwards"),
        RUNNER.intervene(tiny_subject, [arm]),
    ):
        tiny_subject.model(torch.tensor([[7]]))
    with RUNNER.intervene(tiny_subject, [arm]) as log:
        pass
    assert log.passes == 0


def test_answers_inside_an_intervene_are_refused(tiny_subject, make_edit):
    with (
        RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0),)]),
        pytest.raises(WorkbenchError, match="inside intervene"),
    ):
        RUNNER.answer(tiny_subject, [Request("a", "c", (5, 6), (LogitsRead(),))])


def test_the_decoder_called_by_itself_is_edited_too(tiny_subject, make_edit):
    ids = torch.tensor([ROWS[1]])
    with torch.no_grad(), RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0),)]):
        whole = tiny_subject.model(ids, output_hidden_states=False).logits
        alone = tiny_subject.model.model(ids).last_hidden_state
        torch.testing.assert_close(tiny_subject.model.lm_head(alone), whole)


def test_masks_that_cannot_be_read_are_refused(tiny_subject, make_edit):
    arm, ids = (make_edit("add", 1, 3.0),), torch.tensor([ROWS[0]])
    with RUNNER.intervene(tiny_subject, [arm]):
        with pytest.raises(WorkbenchError, match="Tensor of 4 dimensions"):
            tiny_subject.model(ids, attention_mask=torch.ones(1, 1, 3, 3))
        with pytest.raises(WorkbenchError, match="2 columns, but 0 cached and 3 new"):
            tiny_subject.model(ids, attention_mask=torch.ones(1, 2, dtype=torch.long))
        with pytest.raises(WorkbenchError, match="outside the model's forward"):
            tiny_subject.blocks[1](torch.zeros(1, 3, 32), position_embeddings=_rotary(3))
        tiny_subject.model(ids)


def _rotary(t):
    return torch.ones(1, t, 8), torch.zeros(1, t, 8)


def test_unknown_scopes_and_no_arms_are_refused(tiny_subject, make_edit):
    with (
        pytest.raises(UnknownNameError, match=r"unknown scope 'users'.*Did you mean 'user'"),
        RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0, "users"),)]),
    ):
        pass
    with pytest.raises(ValueError, match="nothing to do"), RUNNER.intervene(tiny_subject, []):
        pass


class Bank:
    def __init__(self, stamp: ModelStamp):
        rng = np.random.default_rng(0)
        self.names, self.layers = ("truth",), (1, 2)
        self.vectors = rng.standard_normal((1, 2, 32)).astype(np.float32)
        self.norms, self.site, self.position, self.model = None, "resid_post", "last", stamp


def test_interventions_act_together(tiny_subject, batch_with, forward_plainly):
    bank = Bank(tiny_subject.stamp)
    pair = [Intervention.add(bank, layers=[1], dose=2.0), Intervention.ablate(bank, layers=[2])]
    with RUNNER.intervene(tiny_subject, pair):
        edited = logits_of(tiny_subject, batch_with(tiny_subject, ROWS[:1]))
    arm = tuple(edit for one in pair for edit in one.arm(tiny_subject.stamp))
    expected, _ = forward_plainly(tiny_subject, ROWS[0], arm)
    torch.testing.assert_close(edited[0], expected, rtol=0, atol=1e-5)


def test_vectors_move_to_a_device_once(tiny_subject, batch_with, make_edit, monkeypatch):
    from workbench.engine import edits

    placed = []
    original = edits._place
    monkeypatch.setattr(edits, "_place", lambda *args: placed.append(1) or original(*args))
    with RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0), make_edit("add", 2, 1.0))]):
        for _ in range(4):
            logits_of(tiny_subject, batch_with(tiny_subject, ROWS))
    assert len(placed) == 2


def test_a_bfloat16_model_is_edited_and_keeps_its_dtype(make_subject, batch_with, make_edit):
    subject = make_subject("qwen3")
    subject.model.bfloat16()
    batch, edit = batch_with(subject, ROWS), make_edit("add", 1, 8.0)
    (plain,) = RUNNER.capture(subject, batch, [Read(layers=(1,))])
    with RUNNER.intervene(subject, [(edit,)]):
        (edited,) = RUNNER.capture(subject, batch, [Read(layers=(1,))])
    assert edited.dtype == torch.bfloat16
    shift = (edited.float() - plain.float())[0] @ torch.from_numpy(edit.v)
    torch.testing.assert_close(shift, torch.full((3,), 8.0), rtol=0.02, atol=0)
