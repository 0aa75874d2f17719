"""Position strings: one spelling each, exact token sets, no silent empty span."""

import pytest
import torch

from workbench.engine.pool import SITES, layers_of, parse_position, pool, token_mask
from workbench.errors import ConfigError
from workbench.types import Read

REAL = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool()
USER = torch.tensor([[0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0]]).bool()


def tokens(text, spans=None):
    return token_mask(parse_position(text), REAL, {"user": USER} if spans is None else spans)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("last", [5], [5]),
        ("all", [2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ("last:user", [3], [3]),
        ("offset:-1", [5], [5]),
        ("offset:-2", [4], [4]),
        ("offset:0", [2], [0]),
        ("offset:3", [5], [3]),
        ("mean", [3, 4, 5], [1, 2, 3, 4, 5]),
        ("mean+first", [2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ("mean:user", [3], [1, 2, 3]),
        ("mean:user+first", [2, 3], [1, 2, 3]),
        ("mean:user[1:]", [3], [2, 3]),
        ("mean:user[:2]", [3], [1, 2]),
        ("mean:user[1:2]", [3], [2]),
    ],
)
def test_a_position_names_exactly_these_tokens(text, first, second):
    assert [row.nonzero().flatten().tolist() for row in tokens(text)] == [first, second]


@pytest.mark.parametrize(
    "text",
    [
        "first", "last:", "offset", "offset:x", "offset:-2[1:]", "mean:user[1]", "mean:3",
        "last:user[1:]", "last+first", "all:user", "mean:user[1:", "mean:us er", "mean[1:]", "",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_spellings(text):
    with pytest.raises(ConfigError, match="expected last, all, last:SPAN"):
        parse_position(text)


def test_an_unknown_span_lists_the_spans():
    with pytest.raises(ConfigError, match=r"no span 'assistant'.*spans: user"):
        tokens("last:assistant")
    with pytest.raises(ConfigError, match="spans: none"):
        tokens("last:assistant", {})


@pytest.mark.parametrize(
    ("text", "item"), [("mean:user[2:]", 0), ("offset:-5", 0), ("last:none", 1)]
)
def test_an_empty_span_names_the_item(text, item):
    none = REAL.clone()
    none[1] = False
    with pytest.raises(ConfigError, match=f"no token left in item {item} "):
        tokens(text, {"user": USER, "none": none})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_single_tokens_keep_their_bits_and_means_are_float32(dtype):
    h = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    last = pool(h, tokens("last"), parse_position("last"))
    assert torch.equal(last, h[:, 5])
    mean = pool(h, tokens("mean"), parse_position("mean"))
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean[0], h[0, 3:].float().mean(0))
    torch.testing.assert_close(mean[1], h[1, 1:].float().mean(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("text", ["mean:user", "mean:holes"])
def test_a_mean_of_one_run_or_of_several_is_that_of_its_tokens(dtype, text):
    holes = torch.tensor([[0, 0, 1, 1, 0, 1], [0, 1, 0, 1, 0, 0]]).bool()
    h = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    mask = tokens(text, {"user": USER, "holes": holes})
    mean = pool(h, mask, parse_position(text))
    for row in range(2):
        torch.testing.assert_close(mean[row], h[row][mask[row]].float().mean(0))


def test_pads_reach_no_mean_even_when_they_are_not_finite():
    h = torch.randn(2, 6, 4)
    h[0, :2] = float("nan")
    assert pool(h, tokens("mean"), parse_position("mean")).isfinite().all()


@pytest.mark.parametrize("text", ["last", "mean", "all"])
def test_what_is_pooled_is_never_a_view(text):
    h = torch.randn(2, 6, 4)
    taken = pool(h, tokens(text), parse_position(text))
    before = [row.clone() for row in taken]
    h.zero_()
    assert all(torch.equal(row, was) for row, was in zip(taken, before, strict=True))


def test_an_unknown_site_lists_what_can_be_read():
    with pytest.raises(ConfigError, match=r"site 'mlp'; read here: resid_post, resid_pre, attn_"):
        layers_of(Read("mlp", (1,)), (0, 1), SITES)
    with pytest.raises(ConfigError, match=r"'mlp_out'; read here: resid_post; wb.capture reads it"):
        layers_of(Read("mlp_out", (1,)), (0, 1))
    assert layers_of(Read(), (0, 1)) == (0, 1)
    assert layers_of(Read("attn_out", (1,)), (0, 1), SITES) == (1,)
