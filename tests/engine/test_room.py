"""Cache layers with room: what a block sees equals a plain layer's, and columns stay in place."""

import pytest
import torch
from transformers.cache_utils import DynamicLayer

from workbench.engine.room import RoomyLayer


def states(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, rows, 3, columns, 4, generator=generator).unbind(0)


CHANGES = {
    "nothing": lambda _layer: None,
    "a crop": lambda layer: layer.crop(-2),
    "beams": lambda layer: layer.reorder_cache(torch.tensor([1, 1])),
    "one row": lambda layer: layer.batch_select_indices(torch.tensor([1])),
    "repeats": lambda layer: layer.batch_repeat_interleave(3),
}


@pytest.mark.parametrize("columns", [1, 6, 40])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_updates_give_what_a_plain_layer_gives(change, columns):
    roomy, plain, rows = RoomyLayer(columns), DynamicLayer(), 2
    for step, new in enumerate((4, 1, 1, 3, 1, 9)):
        if step == 3:
            change(roomy)
            change(plain)
            rows = len(plain.keys)
        own = states(rows, new, seed=step)
        for mine, other in zip(roomy.update(*own), plain.update(*own), strict=True):
            assert torch.equal(mine, other)
        assert roomy.get_seq_length() == plain.get_seq_length()


def test_columns_that_are_there_are_never_copied():
    layer = RoomyLayer(20)
    layer.update(*states(2, 5, seed=0))
    places = layer.keys.data_ptr(), layer.values.data_ptr()
    for step in range(15):
        layer.update(*states(2, 1, seed=step))
    assert (layer.keys.data_ptr(), layer.values.data_ptr()) == places


def test_rows_of_several_layers_are_held_in_one():
    parts, plain, held = [], DynamicLayer(), RoomyLayer(9)
    whole = states(5, 4, seed=0)
    for rows in (slice(0, 2), slice(2, 5)):
        part = DynamicLayer()
        part.update(*(one[rows] for one in whole))
        parts.append(part)
    plain.update(*whole)
    held.hold(parts)
    assert torch.equal(held.keys, plain.keys)
    new = states(5, 1, seed=1)
    for mine, other in zip(held.update(*new), plain.update(*new), strict=True):
        assert torch.equal(mine, other)
