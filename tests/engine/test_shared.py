"""Cache rows that share columns: what a block sees equals copied rows, and nothing is copied."""

import copy

import pytest
import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from workbench.engine.shared import Rows, behind

LAYERS = {
    "full": DynamicLayer,
    "window of 6": lambda: DynamicSlidingWindowLayer(sliding_window=6),
    "window of 2": lambda: DynamicSlidingWindowLayer(sliding_window=2),
}
INDEX = {
    "each three times": [0, 0, 0, 1, 1, 1],
    "in any order": [1, 0, 1, 1],
    "one of them": [1],
}


def states(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, rows, 3, columns, 4, generator=generator).unbind(0)


def copied(layer, index):
    made = copy.copy(layer)
    made.keys, made.values = layer.keys[index], layer.values[index]
    return made


@pytest.mark.parametrize("index", INDEX.values(), ids=INDEX.keys())
@pytest.mark.parametrize("kind", LAYERS)
def test_updates_give_what_copied_rows_give(kind, index):
    layer = LAYERS[kind]()
    layer.update(*states(2, 5, seed=0))
    index = torch.tensor(index)
    shared, plain = behind(layer, Rows(index)), copied(layer, index)
    again = torch.tensor([0, 0])
    for step, columns in enumerate((1, 3, 1, 7, 1)):
        new = states(len(index), columns, seed=step + 1)
        assert shared.get_mask_sizes(columns) == plain.get_mask_sizes(columns)
        for mine, other in zip(shared.update(*new), plain.update(*new), strict=True):
            assert torch.equal(mine, other)
        assert shared.get_seq_length() == plain.get_seq_length()
        if step == 1:  # rows of rows
            shared, plain = behind(shared, Rows(again)), copied(plain, again)
            index = again


def test_the_layer_that_is_shared_stays_as_it_is_and_is_not_copied():
    layer = DynamicLayer()
    layer.update(*states(2, 50, seed=0))
    kept = layer.keys.clone()
    shared = behind(layer, Rows(torch.arange(2).repeat_interleave(9)))
    shared.update(*states(18, 1, seed=1))
    assert torch.equal(layer.keys, kept)
    assert shared.shared[0] is layer.keys
    assert shared.keys.shape == (18, 3, 1, 4)
