"""Every scope, padding side and way of running means the same tokens as one unpadded row."""

import pytest
import torch

from workbench.engine.forward import _takes_positions, forward_of
from workbench.engine.hooks import HookRunner
from workbench.errors import ConfigError, MismatchError, WorkbenchError

RUNNER = HookRunner()
PROMPTS = ((20, 21, 22), (40, 41, 42, 43, 44))
MORE = (90, 91, 92)  # eight columns in all: no window of a tiny family is left
FEW = ("prompt", "generated", "user+generated")
SCOPES = (
    *("all", "all+first", "last", "prompt+first", "user", "tool+user", "user+first"),
    *("span:body", "tokens:0,2", "tokens:4:", "first"),
)


def extended(batch, columns):
    """Mask and positions of the batch with so many decoded columns behind it."""
    more = torch.ones(len(batch.input_ids), columns, dtype=torch.long)
    mask = torch.cat([batch.attention_mask, more], 1)
    return mask, (mask.cumsum(1) - 1).clamp(min=0)


def in_pieces(subject, batch, cuts, times=1):
    """Logits of prompt and continuation, run on one cache from cut to cut."""
    ids = torch.cat([batch.input_ids, torch.tensor([MORE] * len(batch.input_ids))], 1)
    mask, positions = extended(batch, len(MORE))
    ids, mask, positions = (part.repeat_interleave(times, 0) for part in (ids, mask, positions))
    logits, cache = [], None
    takes = _takes_positions(forward_of(subject.model))
    with torch.no_grad():
        for start, stop in zip((0, *cuts), (*cuts, ids.shape[1]), strict=True):
            at = {"position_ids": positions[:, start:stop]} if takes else {}
            out = subject.model(
                input_ids=ids[:, start:stop], attention_mask=mask[:, :stop],
                past_key_values=cache, use_cache=True, **at,
            )  # fmt: skip
            logits.append(out.logits)
            cache = out.past_key_values
    return torch.cat(logits, 1)[::times], mask[::times].bool()


WAYS = {"whole": ((), 1), "token by token": ((5, 6, 7), 1), "chunks": ((2, 4, 6), 1),
        "rows repeated": ((5,), 2)}  # fmt: skip


def check(scope, side, way, subject, batch_with, make_edit, forward_plainly, parts_of):
    batch = batch_with(subject, PROMPTS, side)
    arm = (make_edit("add", 1, 3.0, scope), make_edit("ablate", 2, 1.0, scope))
    known = batch if way == "chunks" else batch.spans
    with RUNNER.intervene(subject, [arm], spans=known):
        edited, real = in_pieces(subject, batch, *WAYS[way])
    plain, _ = in_pieces(subject, batch, *WAYS[way])
    for row, ids in enumerate(PROMPTS):
        expected, _ = forward_plainly(
            subject, [*ids, *MORE], arm, prompt=len(ids), spans=parts_of(len(ids), row)
        )
        torch.testing.assert_close(edited[row][real[row]], expected, rtol=0, atol=1e-5)
    assert (edited[real] - plain[real]).abs().max() > 0.01


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("scope", FEW)
def test_a_scope_means_the_same_tokens_however_a_batch_is_run(
    scope, side, way, tiny_subject, batch_with, make_edit, forward_plainly, parts_of
):
    parts = (batch_with, make_edit, forward_plainly, parts_of)
    check(scope, side, way, tiny_subject, *parts)


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("scope", [*FEW, *SCOPES])
def test_a_scope_means_the_same_tokens_in_every_family(
    scope, side, way, family, subject_of, batch_with, make_edit, forward_plainly, parts_of
):
    parts = (batch_with, make_edit, forward_plainly, parts_of)
    check(scope, side, way, subject_of(family), *parts)


@pytest.mark.parametrize("scope", ["generated", "prompt", "user", "tool+generated", "last"])
def test_what_encode_gave_and_what_continues_its_cache_is_known(
    scope, tiny_subject, batch_with, make_edit, forward_plainly, parts_of
):
    batch = batch_with(tiny_subject, PROMPTS[1:])
    arm = (make_edit("add", 1, 3.0, scope),)
    with torch.no_grad(), RUNNER.intervene(tiny_subject, [arm]):
        out = tiny_subject.model(batch.input_ids, use_cache=True)
        logits, cache = [out.logits[0]], out.past_key_values
        for token in MORE:
            out = tiny_subject.model(torch.tensor([[token]]), past_key_values=cache)
            logits.append(out.logits[0])
    expected, _ = forward_plainly(
        tiny_subject, [*PROMPTS[1], *MORE], arm, prompt=5, spans=parts_of(5)
    )
    torch.testing.assert_close(torch.cat(logits), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scope", ["prompt", "generated", "user", "span:mine", "all+user"])
def test_a_plain_forward_that_does_not_say_what_a_scope_means_is_refused(
    scope, tiny_subject, make_edit
):
    with (
        pytest.raises(ConfigError, match=r"input_ids of subject.encode.*pass spans="),
        RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0, scope),)]),
    ):
        tiny_subject.model(torch.tensor([PROMPTS[1]]))


def test_a_copy_of_encoded_ids_is_not_known(tiny_subject, batch_with, make_edit):
    batch = batch_with(tiny_subject, PROMPTS)
    with RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0, "user"),)]) as log:
        tiny_subject.model(batch.input_ids, attention_mask=batch.attention_mask)
        with pytest.raises(ConfigError, match="needs to know the prompt and its user"):
            tiny_subject.model(batch.input_ids.clone(), attention_mask=batch.attention_mask)
    assert log.rows[0].n == 1 + 2  # of the two turns without each row's first token


def test_a_row_without_the_span_is_refused_by_its_number(tiny_subject, batch_with, make_edit):
    batch = batch_with(tiny_subject, PROMPTS)  # the second has no tool
    with (
        pytest.raises(ConfigError, match=r"row 1 of the batch has no span 'tool'.*spans: body,"),
        RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0, "tool"),)]),
    ):
        tiny_subject.model(batch.input_ids, attention_mask=batch.attention_mask)
    with RUNNER.intervene(tiny_subject, [(make_edit("add", 1, 3.0, "span:body+tool"),)]) as log:
        tiny_subject.model(batch.input_ids, attention_mask=batch.attention_mask)
    assert log.rows[0].n == 2 + 3  # the tool's last token joins the first row's body


def test_spans_of_another_batch_or_kind_are_refused(tiny_subject, batch_with, make_edit):
    arms = [(make_edit("add", 1, 3.0, "user"),)]
    flags = torch.ones(2, 5, dtype=torch.bool)
    for wrong in ({}, {"user": flags.long()}, {"user": flags[0]}, {"user": flags, "b": flags[:1]}):
        with (
            pytest.raises(MismatchError, match="give each name one boolean mask"),
            RUNNER.intervene(tiny_subject, arms, spans=wrong),
        ):
            pass
    with (
        pytest.raises(MismatchError, match="3 rows inside intervene, whose spans have 2"),
        RUNNER.intervene(tiny_subject, arms, spans={"user": flags}),
    ):
        tiny_subject.model(torch.ones(3, 5, dtype=torch.long))
    with (
        pytest.raises(MismatchError, match="prompt of 4 columns inside intervene, whose spans"),
        RUNNER.intervene(tiny_subject, arms, spans={"user": flags}),
    ):
        tiny_subject.model.generate(torch.ones(2, 4, dtype=torch.long), max_new_tokens=1)


def test_where_prompts_end_is_not_guessed(tiny_subject, batch_with, make_edit):
    batch, arms = batch_with(tiny_subject, PROMPTS, "right"), [(make_edit("add", 1, 3.0, "last"),)]
    with (
        pytest.raises(ConfigError, match=r"'last' needs to know where each prompt ends"),
        RUNNER.intervene(tiny_subject, arms, spans=batch.spans),
    ):
        tiny_subject.model(batch.input_ids[:, :4], attention_mask=batch.attention_mask[:, :4])


def test_a_capture_of_encoded_prompts_knows_their_spans(tiny_subject, batch_with, make_edit):
    from workbench.types import Read

    batch, edit = batch_with(tiny_subject, PROMPTS), make_edit("add", 1, 5.0, "user")
    read = [Read(layers=(1,), position="all")]
    (plain,) = RUNNER.capture(tiny_subject, batch, read)
    with RUNNER.intervene(tiny_subject, [(edit,)]):
        (edited,) = RUNNER.capture(tiny_subject, batch, read)
    shift = torch.cat([(b - a)[0] @ torch.from_numpy(edit.v) for a, b in zip(plain, edited)])  # noqa: B905
    expected = torch.tensor([0, 5, 0, 0, 5, 0, 5, 0.0])
    torch.testing.assert_close(shift, expected, rtol=0, atol=1e-5)


CHAT = [{"role": "system", "content": "you send"}, {"role": "user", "content": "the city of A"}]


def test_generated_text_of_a_chat_is_edited_in_its_spans(tiny_subject, make_edit, forward_plainly):
    rendered = tiny_subject.renderer.render(CHAT)
    for scope in ("user", "system+generated", "header"):
        arm = (make_edit("add", 1, 5.0, scope), make_edit("add", 2, -4.0, scope))
        with RUNNER.intervene(tiny_subject, [arm]):
            (text,) = tiny_subject.generate([CHAT], max_new_tokens=6)
        ids = list(rendered.ids)
        for _ in range(6):
            logits, _ = forward_plainly(
                tiny_subject, ids, arm, prompt=len(rendered.ids), spans=rendered.spans
            )
            ids.append(int(logits[-1].argmax()))
        new = ids[len(rendered.ids) :]
        new = new[: new.index(2)] if 2 in new else new
        assert text == tiny_subject.tokenizer.decode(new, skip_special_tokens=True)


def test_a_prompt_without_the_span_is_refused_before_text_is_made(tiny_subject, make_edit):
    arm = (make_edit("add", 1, 5.0, "user+generated"),)
    with (
        RUNNER.intervene(tiny_subject, [arm]) as log,
        pytest.raises(ConfigError, match=r"prompt 1 has no span 'user'.*its spans: content"),
    ):
        tiny_subject.generate([CHAT, "a bare text"])
    assert log.passes == 0


def test_generated_leaves_the_first_new_token_alone_and_says_so(tiny_subject, make_edit):
    """The prompt's last token gives the first new one: `last` edits it, `generated` does not."""
    plain = RUNNER.generate(tiny_subject, ["the city"], max_new_tokens=2)
    arm = (make_edit("add", 3, 300.0, "generated"),)
    with RUNNER.intervene(tiny_subject, [arm]):
        edited = RUNNER.generate(tiny_subject, ["the city"], max_new_tokens=2)
    assert edited[0][0] == plain[0][0]
    assert edited != plain
    with (
        pytest.raises(WorkbenchError, match=r"'generated' the prompt's last token.*use 'last'"),
        RUNNER.intervene(tiny_subject, [arm]),
    ):
        RUNNER.generate(tiny_subject, ["the city"], max_new_tokens=1)
