"""Scopes: pads never, the sink only when asked, absolute positions under caching."""

import numpy as np
import pytest
import torch

import workbench as wb
from workbench.errors import ConfigError, UnknownNameError
from workbench.interventions import Intervention, refuse_absent, scope_mask
from workbench.interventions.scope import SCOPES, parse_scope, scope_of

LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
RIGHT = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
USER, TOOL = torch.zeros(2, 5, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.bool)
USER[:, 1:4], TOOL[:, 4] = True, True
SPANS = {"user": USER, "tool": TOOL, "mine": torch.ones(2, 5, dtype=torch.bool)}
PLAIN = ("all", "all+first", "last", "generated")
"""Scopes under which a decoded token is edited."""


@pytest.mark.parametrize(
    ("scope", "mask", "expected"),
    [
        ("all", LEFT, [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]),
        ("all", RIGHT, [[0, 1, 1, 0, 0], [0, 1, 1, 1, 1]]),
        ("all+first", LEFT, LEFT.tolist()),
        ("all+first", RIGHT, RIGHT.tolist()),
        ("last", LEFT, [[0, 0, 0, 0, 1], [0, 0, 0, 0, 1]]),
        ("last", RIGHT, [[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]),
        ("prompt", LEFT, [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]),
        ("prompt+first", RIGHT, RIGHT.tolist()),
        ("generated", LEFT, [[0] * 5] * 2),
        ("first", LEFT, [[0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]),
        ("user", LEFT, [[0, 0, 0, 1, 0], [0, 1, 1, 1, 0]]),
        ("user+first", LEFT, [[0, 0, 1, 1, 0], [1, 1, 1, 1, 0]]),
        ("tool+user", RIGHT, [[0, 1, 1, 0, 0], [0, 1, 1, 1, 1]]),
        ("system", LEFT, [[0] * 5] * 2),
        ("span:mine", LEFT, LEFT.tolist()),
        ("tokens:0,2:4", RIGHT, [[1, 0, 1, 0, 0], [1, 0, 1, 1, 0]]),
        ("tokens:1:", LEFT, [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]),
    ],
)
def test_a_prompt_is_masked_as_the_scope_says(scope, mask, expected):
    assert scope_mask(scope, mask, 5, spans=SPANS).int().tolist() == expected


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("generated", [0, 0, 0, 0, 1, 1]),
        ("prompt", [0, 0, 1, 1, 0, 0]),
        ("user+generated", [0, 0, 1, 0, 1, 1]),
        ("tokens:2:4", [0, 0, 0, 1, 1, 0]),
    ],
)
def test_decoded_tokens_are_generated_from_the_first_on(scope, expected):
    mask, spans = torch.tensor([[0, 1, 1, 1, 1, 1]]), {"user": USER[:1, :3]}
    assert scope_mask(scope, mask, 6, prompt=4, spans=spans).int().tolist() == [expected]


@pytest.mark.parametrize("scope", [*SCOPES, "user+generated", "tokens:1:3"])
@pytest.mark.parametrize("cut", [3, 4])
def test_a_decoding_step_sees_the_columns_of_the_whole(scope, cut):
    whole = scope_mask(scope, LEFT, 5, prompt=3, spans=SPANS)
    assert torch.equal(scope_mask(scope, LEFT, 5 - cut, prompt=3, spans=SPANS), whole[:, cut:])


@pytest.mark.parametrize("scope", PLAIN)
def test_without_a_known_prompt_every_token_after_a_cache_counts_as_decoded(scope):
    assert scope_mask(scope, LEFT, 2).all()


def test_the_final_prompt_token_and_the_decoded_ones_are_last():
    mask = torch.tensor([[0, 1, 1, 1, 1, 1]])
    assert scope_mask("last", mask, 6, prompt=4).int().tolist() == [[0, 0, 0, 1, 1, 1]]


def test_a_first_token_alone_in_a_later_chunk_is_still_the_first():
    mask = torch.tensor([[0, 0, 1], [1, 1, 1]])
    assert scope_mask("all", mask, 1).tolist() == [[False], [True]]


def test_a_row_of_pads_is_never_touched():
    for scope in (*SCOPES, "span:mine", "tokens:0:"):
        mask, spans = torch.zeros(1, 4, dtype=torch.int64), {"mine": USER[:1] | True}
        assert not scope_mask(scope, mask, 4, spans=spans).any()


def test_an_unknown_scope_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"unknown scope 'everything'; known: all, all\+"):
        scope_mask("everything", LEFT, 5)


@pytest.mark.parametrize(
    "wrong", ["users", "user + tool", "all+", "", "tokens:", "tokens:a", "span:"]
)
def test_a_wrong_term_is_refused_with_the_grammar(wrong):
    with pytest.raises(UnknownNameError, match="Join terms with"):
        parse_scope(wrong)


def test_a_term_twice_or_an_empty_range_is_refused():
    with pytest.raises(ConfigError, match="names 'user' twice"):
        parse_scope("user+tool+user")
    with pytest.raises(ConfigError, match="the range '4:4' is empty"):
        parse_scope("tokens:1,4:4")


def test_spans_that_nobody_knows_are_refused():
    with pytest.raises(ConfigError, match=r"which tokens are 'user'.*pass spans="):
        scope_mask("user+last", LEFT, 5)


def test_only_scopes_that_leave_the_prompt_alone_keep_its_cache():
    keeps = {scope for scope in SCOPES if not parse_scope(scope).touches_prompt}
    assert keeps == {"last", "generated"}
    assert not parse_scope("last+generated").touches_prompt
    for scope in ("user+generated", "tokens:90:", "span:mine", "first+last"):
        assert parse_scope(scope).touches_prompt


def test_a_prompt_needs_one_of_the_spans_of_a_union():
    refuse_absent("user+tool", ["tool", "content"], "item 'a'")
    refuse_absent("prompt", [], "item 'a'")
    with pytest.raises(ConfigError, match=r"item 'a' has no span 'user' or 'mine', .*spans: none;"):
        refuse_absent("user+span:mine+generated", [], "item 'a'")


def test_an_explicit_mask_is_a_scope():
    assert scope_of([True, False, True, True]) == "tokens:0,2:4"
    assert scope_of(torch.tensor([False, True])) == "tokens:1"
    flags = np.random.default_rng(0).random(12) > 0.5
    again = scope_mask(scope_of(flags), torch.ones(1, 12, dtype=torch.int64), 12)
    assert again[0].tolist() == flags.tolist()
    for wrong in (np.zeros(3, bool), np.ones((2, 3), bool), np.array([0, 1])):
        with pytest.raises(ValueError, match=r"expected one boolean.*span:mine"):
            scope_of(wrong)


def test_an_intervention_takes_a_mask(tiny_subject):
    vectors = np.ones((1, 1, tiny_subject.width))
    one = wb.Directions(("d",), (1,), vectors, tiny_subject.stamp)
    made = Intervention.add(one, scope=[False, True, True])
    assert made.scope == "tokens:1:3"
    assert {edit.scope for edit in made.arm()} == {"tokens:1:3"}
