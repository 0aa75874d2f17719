"""Previews: the tokens that are shown as edited are the ones that an edit then touches."""

import pytest
import torch

import workbench as wb
from workbench.engine.hooks import HookRunner
from workbench.engine.preview import CLOSE, OPEN
from workbench.errors import ConfigError, UnknownNameError
from workbench.types import Read, Request

CHAT = [{"role": "system", "content": "you send"}, {"role": "user", "content": "the city of A"}]
TOOL = [*CHAT, {"role": "tool", "content": "B C"}]


def test_the_marks_stand_around_what_is_edited(tiny_subject):
    shown = str(wb.preview(tiny_subject, "user+generated", [CHAT]))
    assert shown == (
        "prompt 0, scope user+generated: 6 of 28 tokens edited, decoded ones edited\n"
        "<|im_start|>system\nyou send<|im_end|>\n"
        f"<|im_start|>user\n{OPEN}the city of A{CLOSE}<|im_end|>\n<|im_start|>assistant\n"
    )
    (row,) = wb.preview(tiny_subject, "last", ["a city"]).rows
    assert (row.edited[-1], sum(row.edited), row.decoded) == (True, 1, True)
    (row,) = wb.preview(tiny_subject, "prompt", ["a city"]).rows
    assert (sum(row.edited), row.decoded) == (len(row.edited) - 1, False)


@pytest.mark.parametrize(
    "scope", ["all", "last", "prompt", "user", "tool+system", "header+first", "tokens:2,5:"]
)
def test_a_preview_marks_the_tokens_that_an_edit_moves(scope, tiny_subject, make_edit):
    runner, read = HookRunner(), [Read(layers=(1,), position="all")]
    chats, edit = [CHAT, TOOL], make_edit("add", 1, 5.0, scope)
    batch = tiny_subject.encode(chats)
    (plain,) = runner.capture(tiny_subject, batch, read)
    with runner.intervene(tiny_subject, [(edit,)]):
        (edited,) = runner.capture(tiny_subject, batch, read)
    rows = wb.preview(tiny_subject, [edit], chats).rows
    for row, before, after in zip(rows, plain, edited, strict=True):
        moved = (after - before)[0].abs().amax(-1) > 1e-3
        assert list(row.edited) == moved.tolist()
        assert row.text.replace(OPEN, "").replace(CLOSE, "") == tiny_subject.tokenizer.decode(
            tiny_subject.renderer.render(chats[rows.index(row)]).ids
        )


def test_nothing_runs(tiny_subject):
    handle = tiny_subject.model.register_forward_pre_hook(lambda *_: 1 / 0)
    wb.preview(tiny_subject, "all", [CHAT, TOOL])
    handle.remove()


def test_every_kind_of_prompt_and_intervention_is_taken(tiny_subject, tmp_path):
    vectors = torch.ones(1, 1, tiny_subject.width).numpy()
    one = wb.Directions(("d",), (1,), vectors, tiny_subject.stamp)
    pair = [wb.Intervention.add(one, scope="last"), wb.Intervention.ablate(one, scope="prompt")]
    saved = wb.load_intervention(wb.save_intervention(pair, tmp_path / "a.safetensors"))
    prompts = wb.PromptSet.from_records([{"id": i, "text": "a city"} for i in "abcd"], text="text")
    for what in (pair, saved):
        shown = wb.preview(tiny_subject, what, prompts, n=2).rows
        assert [(row.prompt, row.scope) for row in shown] == [
            ("a", "last"), ("a", "prompt"), ("b", "last"), ("b", "prompt"),
        ]  # fmt: skip
    request = Request("x", "c", (7, 8, 9), (), {"user": ((1, 3),)})
    (row,) = wb.preview(tiny_subject, "user", [request]).rows
    assert (row.prompt, row.edited) == ("x (c)", (False, True, True))
    assert len(wb.preview(tiny_subject, "all", "claims", n=1).rows) == 1


def test_a_prompt_without_the_span_is_refused_by_its_id(tiny_subject):
    prompts = wb.PromptSet.from_records([{"id": "bare", "text": "a city"}], text="text")
    with pytest.raises(ConfigError, match=r"bare has no span 'user'.*its spans: content"):
        wb.preview(tiny_subject, "user", prompts)
    with pytest.raises(UnknownNameError, match="unknown scope 'usr'"):
        wb.preview(tiny_subject, "usr", prompts)
