"""Blocks are found in every family, and padding changes none of their outputs."""

import pytest
import torch
from torch import nn

from workbench.errors import MismatchError
from workbench.models import find_blocks, text_config, width_of

TEXTS = ["True", "The city of A is in the city of B, is it not?", "42 dollars to send", "No A B C"]


def streams(subject, batch):
    """Output of every block, ``Float[l b t d]``."""
    kept = {}

    def keep(layer):
        def hook(module, args, output):
            kept[layer] = (output[0] if isinstance(output, tuple) else output).detach()

        return hook

    handles = [b.register_forward_hook(keep(layer)) for layer, b in subject.blocks.items()]
    try:
        with torch.no_grad():
            subject.model(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                position_ids=batch.position_ids,
            )
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack([kept[layer] for layer in range(subject.n_layers)])


def real(subject, texts, side):
    """Block outputs of each text at its own tokens."""
    batch = subject.encode(texts, side=side)
    outputs = streams(subject, batch)
    return [outputs[:, row, mask.bool()] for row, mask in enumerate(batch.attention_mask)]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pad", ["<|im_end|>", "<|endoftext|>"])
def test_padded_rows_equal_the_text_alone(subject_of, family, side, pad):
    subject = subject_of(family, pad=pad)  # "<|endoftext|>" is id 0
    alone = [real(subject, [text], side)[0] for text in TEXTS]
    together = real(subject, TEXTS, side)
    backwards = real(subject, TEXTS[::-1], side)[::-1]
    for single, row, turned in zip(alone, together, backwards, strict=True):
        torch.testing.assert_close(row, single, rtol=0, atol=1e-4)
        torch.testing.assert_close(turned, single, rtol=0, atol=1e-4)


def test_positions_that_ignore_the_padding_would_show(subject_of):
    subject = subject_of("gpt2")
    batch = subject.encode(TEXTS, side="left")
    wrong = type(batch)(
        batch.input_ids,
        batch.attention_mask,
        torch.arange(batch.input_ids.shape[1]).expand_as(batch.input_ids),
        batch.spans,
    )
    assert (streams(subject, batch) - streams(subject, wrong))[:, 0, -1].abs().max() > 0.1


def test_blocks_run_in_order_and_are_all_there(subject_of, family):
    subject = subject_of(family)
    ran = []
    handles = [
        block.register_forward_hook(lambda *_, layer=layer: ran.append(layer))
        for layer, block in subject.blocks.items()
    ]
    subject.model(**{"input_ids": subject.encode(["True"]).input_ids})
    for handle in handles:
        handle.remove()
    assert ran == list(range(4))
    assert width_of(subject.model) == subject.width == 32


class Config:
    num_hidden_layers = 3

    def get_text_config(self, decoder=False):
        return self


class Odd(nn.Module):
    """A model whose decoder has no known name."""

    def __init__(self, **lists):
        super().__init__()
        self.config = Config()
        for name, length in lists.items():
            self.add_module(name, nn.ModuleList(nn.Linear(1, 1) for _ in range(length)))

    def get_decoder(self):
        return self


def test_an_unnamed_block_list_is_found_by_its_length():
    model = Odd(stack=3, heads=2, vision_stack=3)
    assert list(find_blocks(model)) == [0, 1, 2]
    assert find_blocks(model)[2] is model.stack[2]
    assert text_config(model).num_hidden_layers == 3


@pytest.mark.parametrize("lists", [{"first": 3, "second": 3}, {"layers": 2}])
def test_an_unclear_block_list_is_refused(lists):
    with pytest.raises(MismatchError, match=r"module lists of 3 blocks .* one expected"):
        find_blocks(Odd(**lists))


def test_blocks_are_found_through_an_adapter(subject_of, tiny_network):
    import peft

    model = tiny_network("llama")
    plain = find_blocks(model)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
    assert find_blocks(wrapped) == plain
