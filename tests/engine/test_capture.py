"""Capture: the values are the block's own, whatever the batch around them, and nothing stays."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from workbench.engine.hooks import HookRunner
from workbench.errors import ConfigError, WorkbenchError
from workbench.types import Read, Rendered

PROMPTS = ((7, 8, 9), (40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52), (20, 21, 22, 23, 24))
READS = [
    Read(layers=(0, 2, 3), position="last"),
    Read(layers=(3, 1), position="mean"),
    Read(layers=(2,), position="all"),
    Read(layers=(1,), position="last:body"),
]


def rendered(ids):
    return Rendered(tuple(ids), {"body": ((1, len(ids) - 1),)})


def batch_of(subject, prompts=PROMPTS, side="left"):
    return subject.renderer.collate([rendered(ids) for ids in prompts], side)


def hook_count(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def plainly(subject, ids, layer):
    """The independent way: one unpadded prompt, one hook, the whole forward."""
    kept = []
    handle = subject.blocks[layer].register_forward_hook(
        lambda *seen: kept.append((seen[2] if torch.is_tensor(seen[2]) else seen[2][0]).clone())
    )
    with torch.no_grad():
        subject.model(torch.tensor([ids]))
    handle.remove()
    return kept[0][0]


def test_captured_values_equal_an_independent_hook(family, subject_of):
    subject = subject_of(family)
    last, mean, every, body = HookRunner().capture(subject, batch_of(subject), READS)
    for row, ids in enumerate(PROMPTS):
        for place, layer in enumerate((0, 2, 3)):
            torch.testing.assert_close(last[place, row], plainly(subject, ids, layer)[-1])
        for place, layer in enumerate((3, 1)):
            torch.testing.assert_close(mean[place, row], plainly(subject, ids, layer)[1:].mean(0))
        torch.testing.assert_close(every[row][0], plainly(subject, ids, 2))
        torch.testing.assert_close(body[0, row], plainly(subject, ids, 1)[-2])


@pytest.mark.parametrize("pad", [2, 0])
def test_padding_side_order_and_pad_id_change_no_value(pad, family, subject_of):
    subject = subject_of(family)
    runner = HookRunner()
    left = runner.capture(subject, batch_of(subject), READS)
    right = runner.capture(subject, batch_of(subject, side="right"), READS)
    turned = runner.capture(subject, batch_of(subject, PROMPTS[::-1]), READS)
    batch = batch_of(subject)
    batch.input_ids[batch.attention_mask == 0] = pad
    other = runner.capture(subject, batch, READS)
    for number in (0, 1, 3):
        torch.testing.assert_close(left[number], right[number], rtol=0, atol=1e-4)
        torch.testing.assert_close(left[number], turned[number].flip(1), rtol=0, atol=1e-4)
        assert torch.equal(left[number], other[number])
    for row in range(3):
        torch.testing.assert_close(left[2][row], right[2][row], rtol=0, atol=1e-4)


@pytest.mark.thorough
def test_pads_on_the_right_need_no_mask_in_any_family(any_family, subject_of):
    subject = subject_of(any_family)
    seen = []
    handle = subject.blocks[0].register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(kwargs.get("attention_mask")), with_kwargs=True
    )
    every = [Read(layers=(layer,), position="all") for layer in (0, 3)]
    found = HookRunner().capture(subject, batch_of(subject, side="right"), every)
    handle.remove()
    assert len(seen) == 1
    for layer, values in zip((0, 3), found, strict=True):
        for row, ids in enumerate(PROMPTS):
            expected = plainly(subject, ids, layer)
            close = 2e-3 if any_family in ("qwen3_next", "qwen3_5_text") else 1e-4
            torch.testing.assert_close(values[row][0], expected, rtol=0, atol=close)


def test_attention_takes_no_mask_for_pads_on_the_right_alone(make_subject):
    subject, seen = make_subject("llama"), []
    subject.blocks[0].register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
    )
    for side in ("right", "left"):
        HookRunner().capture(subject, batch_of(subject, side=side), READS)
    assert seen[0] is None
    assert seen[1] is not None


def test_edits_of_the_last_token_see_the_pads_on_the_right(subject_of, make_edit):
    subject, runner = subject_of("qwen3"), HookRunner()
    arm = (make_edit("add", 1, 3.0, "last"),)
    read = [Read(layers=(3,), position="all")]
    with runner.intervene(subject, [arm]):
        (together,) = runner.capture(subject, batch_of(subject, side="right"), read)
        for row, ids in enumerate(PROMPTS):
            (alone,) = runner.capture(subject, batch_of(subject, [ids]), read)
            torch.testing.assert_close(together[row], alone[0], rtol=0, atol=1e-4)
    (clean,) = runner.capture(subject, batch_of(subject, side="right"), read)
    assert (together[0][0, -1] - clean[0][0, -1]).abs().max() > 0.1
    torch.testing.assert_close(together[0][0, :-1], clean[0][0, :-1], rtol=0, atol=1e-4)


def test_no_block_after_the_deepest_runs_and_no_head(tiny_subject):
    ran = []
    watched = {**tiny_subject.blocks, "head": tiny_subject.model.get_output_embeddings()}
    handles = [
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
        for name, module in watched.items()
    ]
    HookRunner().capture(
        tiny_subject, batch_of(tiny_subject), [Read(layers=(1,)), Read(layers=(0,))]
    )
    assert ran == [0, 1]
    ran.clear()
    HookRunner().capture(tiny_subject, batch_of(tiny_subject), [Read()])
    assert ran == [0, 1, 2, 3]
    for handle in handles:
        handle.remove()


def test_the_last_block_is_read_before_the_final_norm(tiny_subject):
    batch = batch_of(tiny_subject, PROMPTS[:1])
    (last,) = HookRunner().capture(tiny_subject, batch, [Read(layers=(3,))])
    with torch.no_grad():
        model = tiny_subject.model
        logits = model.get_output_embeddings()(model.model.norm(last[0]))
        torch.testing.assert_close(logits, model(batch.input_ids).logits[:, -1])


def test_hooks_are_gone_after_a_capture_and_after_an_exception(tiny_subject):
    before = hook_count(tiny_subject.model)
    HookRunner().capture(tiny_subject, batch_of(tiny_subject), READS)
    assert hook_count(tiny_subject.model) == before
    handle = tiny_subject.blocks[1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        HookRunner().capture(tiny_subject, batch_of(tiny_subject), READS)
    handle.remove()
    assert hook_count(tiny_subject.model) == before


def test_an_in_place_edit_after_the_read_does_not_reach_it(tiny_subject):
    batch = batch_of(tiny_subject)
    read = [Read(layers=(1,)), Read(layers=(1,), position="all")]
    clean = HookRunner().capture(tiny_subject, batch, read)

    def spoil(module, args, kwargs):
        args[0].add_(100.0)

    handle = tiny_subject.blocks[2].register_forward_pre_hook(spoil, with_kwargs=True)
    deeper = [*read, Read(layers=(3,))]
    spoilt = HookRunner().capture(tiny_subject, batch, deeper)
    handle.remove()
    assert torch.equal(clean[0], spoilt[0])
    assert all(torch.equal(a, b) for a, b in zip(clean[1], spoilt[1], strict=True))
    assert not torch.equal(spoilt[2], HookRunner().capture(tiny_subject, batch, deeper)[2])


@dataclass
class Wrapped:
    h: torch.Tensor
    extra: str = "kept"


@pytest.mark.parametrize("container", [lambda h: (h, "kept"), lambda h: [h], Wrapped])
def test_blocks_may_return_tuples_lists_and_dataclasses(container, make_subject):
    subject = make_subject("llama")
    plain = HookRunner().capture(subject, batch_of(subject), READS[:2])

    class Boxed(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.block = block

        def forward(self, *args, **kwargs):
            return container(self.block(*args, **kwargs))

    class Unboxed(nn.Module):
        def __init__(self, boxed):
            super().__init__()
            self.boxed = boxed

        def forward(self, *args, **kwargs):
            out = self.boxed(*args, **kwargs)
            return out.h if isinstance(out, Wrapped) else out[0]

    for layer, block in list(subject.blocks.items()):
        boxed = Boxed(block)
        subject.blocks[layer] = boxed
        subject.model.model.layers[layer] = Unboxed(boxed)
    again = HookRunner().capture(subject, batch_of(subject), READS[:2])
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_a_bfloat16_model_gives_its_bits_and_float32_means(make_subject):
    subject = make_subject("qwen3")
    subject.model.bfloat16()
    last, mean, _, _ = HookRunner().capture(subject, batch_of(subject), READS)
    assert last.dtype == torch.bfloat16
    assert mean.dtype == torch.float32


def test_an_unknown_block_or_site_is_named(tiny_subject):
    batch = batch_of(tiny_subject)
    with pytest.raises(WorkbenchError, match=r"no block 9 in .* blocks are 0 to 3"):
        HookRunner().capture(tiny_subject, batch, [Read(layers=(1, 9))])
    with pytest.raises(WorkbenchError, match="no block -1"):
        HookRunner().capture(tiny_subject, batch, [Read(layers=(-1,))])
    with pytest.raises(ConfigError, match="read here: resid_post, resid_pre, attn_out, mlp_out"):
        HookRunner().capture(tiny_subject, batch, [Read(site="attn")])
    with pytest.raises(ValueError, match="at least one Read"):
        HookRunner().capture(tiny_subject, batch, [])
