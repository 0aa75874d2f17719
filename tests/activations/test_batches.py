"""Batches: every row once, within the budget, and no dearer than the best cut there is."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.activations.batches import OVERHEAD, SMALLEST, Row, cut_batches, pad_right
from workbench.types import Rendered

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=9)


def cost(batches, lengths):
    sizes = [len(batch) * max(lengths[row] for row in batch) for batch in batches]
    return sum(max(size, SMALLEST) + OVERHEAD for size in sizes)


def every_cut(lengths, budget):
    """All ways to cut the sorted rows into batches that fit."""
    order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    for count in range(len(order)):
        for inner in itertools.combinations(range(1, len(order)), count):
            bounds = [0, *inner, len(order)]
            batches = [order[a:b] for a, b in itertools.pairwise(bounds)]
            if all(len(b) == 1 or len(b) * lengths[b[-1]] <= budget for b in batches):
                yield batches


@given(LENGTHS, st.integers(1, 3000))
def test_every_row_stands_in_one_batch_that_fits(lengths, budget):
    batches = cut_batches(lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[r] for r in b) <= budget for b in batches)
    flat = [lengths[row] for batch in batches for row in batch]
    assert flat == sorted(flat)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=8, unique=True), st.integers(1, 3000))
def test_no_cut_is_cheaper(lengths, budget):
    best = min(cost(batches, lengths) for batches in every_cut(lengths, budget))
    assert cost(cut_batches(lengths, budget), lengths) == best


def test_few_pads_in_a_thousand_statements():
    rng = np.random.default_rng(0)
    lengths = rng.integers(12, 27, 1024).tolist()
    batches = cut_batches(lengths, 8192)
    padded = sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)
    assert sum(lengths) / padded > 0.97
    assert len(batches) <= 15


def test_long_rows_fill_the_budget():
    assert [len(batch) for batch in cut_batches([1024] * 20, 8192)] == [8, 8, 4]


@pytest.mark.parametrize("size", [1, 5])
def test_pads_come_after_the_tokens_and_are_marked(size):
    rows = [
        Row.of(Rendered(tuple(range(3, 3 + n)), {"body": ((1, n),), f"own{n}": ((0, 1),)}))
        for n in range(2, 2 + size)
    ]
    batch = pad_right(rows)
    assert batch.input_ids.shape == (size, size + 1)
    for number, row in enumerate(rows):
        n = len(row.ids)
        assert batch.input_ids[number, :n].tolist() == row.ids.tolist()
        assert batch.attention_mask[number].tolist() == [1] * n + [0] * (size + 1 - n)
        assert batch.position_ids[number].tolist() == [*range(n), *[0] * (size + 1 - n)]
        assert batch.spans["body"][number].tolist() == [False] + [True] * (n - 1) + [False] * (
            size + 1 - n
        )
        assert batch.spans[f"own{n}"].sum() == 1
    assert batch.input_ids.dtype == torch.long
