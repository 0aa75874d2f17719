"""Scopes: pads never, the sink only when asked, absolute positions under caching."""

import pytest
import torch

from workbench.errors import UnknownNameError
from workbench.interventions import SCOPES, scope_mask

LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
RIGHT = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize(
    ("scope", "mask", "expected"),
    [
        ("all", LEFT, [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]),
        ("all", RIGHT, [[0, 1, 1, 0, 0], [0, 1, 1, 1, 1]]),
        ("all+first", LEFT, LEFT.tolist()),
        ("all+first", RIGHT, RIGHT.tolist()),
        ("last", LEFT, [[0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]),
        ("last", RIGHT, [[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]),
    ],
)
def test_a_prompt_is_masked_as_the_scope_says(scope, mask, expected):
    assert scope_mask(scope, mask, 5).int().tolist() == expected


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("cut", [3, 4])
def test_a_decoding_step_sees_the_columns_of_the_whole(scope, cut):
    whole = scope_mask(scope, LEFT, 5, prompt=3)
    assert torch.equal(scope_mask(scope, LEFT, 5 - cut, prompt=3), whole[:, cut:])


@pytest.mark.parametrize("scope", SCOPES)
def test_without_a_known_prompt_every_token_after_a_cache_counts_as_decoded(scope):
    assert scope_mask(scope, LEFT, 2).all()


def test_the_final_prompt_token_and_the_decoded_ones_are_last():
    mask = torch.tensor([[0, 1, 1, 1, 1, 1]])
    assert scope_mask("last", mask, 6, prompt=4).int().tolist() == [[0, 0, 0, 1, 1, 1]]


def test_a_first_token_alone_in_a_later_chunk_is_still_the_first():
    mask = torch.tensor([[0, 0, 1], [1, 1, 1]])
    assert scope_mask("all", mask, 1).tolist() == [[False], [True]]


def test_a_row_of_pads_is_never_touched():
    for scope in SCOPES:
        assert not scope_mask(scope, torch.zeros(1, 4, dtype=torch.int64), 4).any()


def test_an_unknown_scope_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"unknown scope 'everything'; known: all, all\+"):
        scope_mask("everything", LEFT, 5)
