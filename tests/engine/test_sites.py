"""What attention and MLP add: with a block's input they make its output, or are refused."""

from contextlib import contextmanager

import pytest
import torch
import transformers

from workbench.engine.hooks import HookRunner
from workbench.errors import WorkbenchError
from workbench.types import Read

RUNNER = HookRunner()
ROWS = ((7, 8, 9), tuple(range(40, 53)), (20, 21, 22, 23, 24))
SITES = ("resid_pre", "attn_out", "mlp_out", "resid_post")
LAYERS = (0, 1, 2, 3)


def reads_at(position, layers=LAYERS):
    return [Read(site, layers, position) for site in SITES]


@contextmanager
def watched(subject, layer, name):
    """What one child of a block gives out, by a hook of our own."""
    kept = []
    child = dict(subject.blocks[layer].named_children())[name]
    handle = child.register_forward_hook(
        lambda _m, _a, out: kept.append(out if torch.is_tensor(out) else out[0])
    )
    yield kept
    handle.remove()


@pytest.mark.parametrize("position", ["last", "mean", "mean:body+first"])
def test_input_attention_and_mlp_add_up_to_the_output(position, any_family, subject_of, batch_with):
    subject = subject_of(any_family)
    batch = batch_with(subject, ROWS, "right")
    pre, attention, mlp, post = RUNNER.capture(subject, batch, reads_at(position))
    torch.testing.assert_close(pre + attention + mlp, post, rtol=1e-5, atol=1e-5)
    for part in (pre, attention, mlp):
        assert (part.norm(dim=-1) > 0.05).all()
    torch.testing.assert_close(pre[1:], post[:-1], rtol=0, atol=0)


NORMS = {
    "attn_out": {
        "post": ("gemma2", "gemma3_text", "gemma3", "olmo2", "olmo3"),
        "child": "post_attention_layernorm",
    },
    "mlp_out": {
        "post": ("gemma2", "gemma3_text", "gemma3", "olmo2", "olmo3"),
        "child": "post_feedforward_layernorm",
    },
}


@pytest.mark.parametrize("site", NORMS)
def test_the_contribution_comes_after_a_norm_that_a_family_puts_on_it(
    site, any_family, subject_of, batch_with
):
    subject = subject_of(any_family)
    batch = batch_with(subject, ROWS)
    own = {"gpt2": "attn", "gpt_neox": "attention"}.get(any_family, "self_attn")
    child = {"attn_out": own, "mlp_out": "mlp"}[site]
    if any_family in NORMS[site]["post"]:
        child = NORMS[site]["child"]
    with watched(subject, 3, child) as kept:
        (value,) = RUNNER.capture(subject, batch, [Read(site, (3,))])
    assert torch.equal(value[0], kept[0][:, -1])


def test_all_tokens_of_mixed_sites_come_from_one_pass(tiny_subject, batch_with):
    batch = batch_with(tiny_subject, ROWS)
    reads = [
        Read("mlp_out", (2, 0), "all"),
        Read("resid_post", (1,), "last"),
        Read("attn_out", (1, 2), "mean:body"),
        Read("resid_pre", (2,), "all"),
        Read("attn_out", (1,), "all"),
    ]
    with counting(tiny_subject) as ran:
        together = RUNNER.capture(tiny_subject, batch, reads)
    assert ran == [0, 1, 2]
    alone = [RUNNER.capture(tiny_subject, batch, [read])[0] for read in reads]
    for values, others in zip(together, alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(values, others, strict=True))
    post = RUNNER.capture(tiny_subject, batch, [Read("resid_post", (2,), "all")])[0]
    attention = RUNNER.capture(tiny_subject, batch, [Read("attn_out", (2,), "all")])[0]
    for row, ids in enumerate(ROWS):
        assert together[0][row].shape == (2, len(ids), 32)
        parts = together[3][row][0] + attention[row][0] + together[0][row][0]
        torch.testing.assert_close(parts, post[row][0])


@contextmanager
def counting(subject):
    ran = []
    handles = [
        block.register_forward_hook(lambda *_, layer=layer: ran.append(layer))
        for layer, block in subject.blocks.items()
    ]
    yield ran
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize(
    ("reads", "blocks"),
    [
        ([Read("resid_pre", (0,))], []),
        ([Read("resid_pre", (2,))], [0, 1]),
        ([Read("resid_pre", (2,)), Read("mlp_out", (1,))], [0, 1]),
        ([Read("resid_pre", (2,)), Read("resid_post", (2,))], [0, 1, 2]),
        ([Read("attn_out", (1,))], [0, 1]),
    ],
)
def test_no_block_runs_beyond_the_deepest_site(reads, blocks, tiny_subject, batch_with, hook_count):
    before = hook_count(tiny_subject.model)
    with counting(tiny_subject) as ran:
        RUNNER.capture(tiny_subject, batch_with(tiny_subject, ROWS), reads)
    assert ran == blocks
    assert hook_count(tiny_subject.model) == before


def test_sites_inside_an_intervene_are_those_of_the_edited_model(
    tiny_subject, batch_with, make_edit
):
    batch = batch_with(tiny_subject, ROWS)
    edit = make_edit("add", 1, 5.0)
    clean = RUNNER.capture(tiny_subject, batch, reads_at("last"))
    with RUNNER.intervene(tiny_subject, [(edit,)]):
        pre, attention, mlp, post = RUNNER.capture(tiny_subject, batch, reads_at("last"))
    for value, was in zip((pre, attention, mlp), clean, strict=False):
        assert torch.equal(value[:2], was[:2])
        assert not torch.allclose(value[2:], was[2:], atol=1e-3)
    added = 5.0 * torch.from_numpy(edit.v).expand(3, -1)
    torch.testing.assert_close(post[1] - (pre + attention + mlp)[1], added, rtol=0, atol=1e-5)
    torch.testing.assert_close((pre + attention + mlp)[2:], post[2:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_adds_up_to_its_own_rounding(dtype, make_subject, batch_with):
    for family in ("gpt_neox", "gemma2"):
        subject = make_subject(family)
        subject.model.to(dtype)
        for position in ("last", "all", "mean"):
            batch = batch_with(subject, ROWS)
            values = RUNNER.capture(subject, batch, reads_at(position))[1]
            assert values[0].dtype == (torch.float32 if position == "mean" else dtype)


def network(config):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


SIZES = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}


@pytest.fixture
def refitted(make_subject):
    """A subject whose network is of another family."""

    def make(config):
        subject = make_subject("llama")
        subject.model = network(config)
        subject.blocks.update(enumerate(blocks_of(subject.model)))
        return subject

    return make


def blocks_of(model):
    decoder = model.get_decoder()
    return decoder.layers if hasattr(decoder, "layers") else decoder.h


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_family_that_scales_what_it_adds_is_refused(dtype, refitted, batch_with):
    subject = refitted(transformers.GraniteConfig(**SIZES, residual_multiplier=0.22))
    subject.model.to(dtype)
    batch = batch_with(subject, ROWS)
    with pytest.raises(WorkbenchError, match=r"GraniteDecoderL.*misses resid_post by .* scales"):
        RUNNER.capture(subject, batch, [Read("attn_out", (1,))])
    RUNNER.capture(subject, batch, [Read("resid_pre", (1,)), Read("resid_post", (1,))])


def test_an_attention_that_holds_the_stream_itself_is_refused(refitted, batch_with):
    sizes = {"vocab_size": 512, "hidden_size": 32, "n_layer": 4, "n_head": 4}
    subject = refitted(transformers.BloomConfig(**sizes))
    batch = batch_with(subject, ROWS)
    with pytest.raises(WorkbenchError, match="misses resid_post"):
        RUNNER.capture(subject, batch, [Read("attn_out", (1,))])


def test_a_block_without_an_mlp_of_its_own_is_refused_by_its_parts(refitted, batch_with):
    subject = refitted(
        transformers.OPTConfig(**SIZES, ffn_dim=48, word_embed_proj_dim=32, pad_token_id=2)
    )
    batch = batch_with(subject, ROWS)
    with pytest.raises(WorkbenchError, match=r"0 MLP modules among its parts \(.*fc1, fc2"):
        RUNNER.capture(subject, batch, [Read("mlp_out", (1,))])


def test_tuples_and_sums_in_place_are_read_before_they_change(refitted, batch_with):
    subject = refitted(transformers.FalconConfig(**SIZES, num_kv_heads=4, alibi=False))
    batch = batch_with(subject, ROWS)
    pre, attention, mlp, post = RUNNER.capture(subject, batch, reads_at("last"))
    torch.testing.assert_close(pre + attention + mlp, post, rtol=1e-5, atol=1e-5)


@pytest.mark.real
def test_smollm2_adds_up_at_every_block_and_token(real_subject):
    batch = real_subject.encode(["The city of Paris is in France.", "No."])
    pre, attention, mlp, post = RUNNER.capture(real_subject, batch, reads_at("all", ()))
    for parts in zip(pre, attention, mlp, post, strict=True):
        miss = (sum(parts[:3]) - parts[3]).norm(dim=-1)
        assert (miss < 1e-6 * sum(part.norm(dim=-1) for part in parts[:3])).all()
