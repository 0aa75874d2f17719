import contextlib

import peft
import pytest
import torch
from workbench_training.fused import LowRank, draw_mask, fused
from workbench_training.head_loss import chunked_loss
from workbench_training.recompute import recomputing
from workbench_training.settings import TrainConfig
from workbench_training.speed import quickened

IDS = torch.arange(2 * 24).reshape(2, 24) * 37 % 96


def step(model, half=False, **more):
    """The loss of a batch and the gradient of every adapter."""
    model.zero_grad()
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        loss = model(input_ids=IDS, labels=IDS, **more).loss
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}


def agree(ours, theirs, room):
    assert ours[0] == pytest.approx(theirs[0], rel=room)
    assert ours[1].keys() == theirs[1].keys()
    assert len(theirs[1]) > 10
    for name, grad in theirs[1].items():
        assert grad.abs().max() > 0
        assert (ours[1][name] - grad).abs().max() <= room * grad.abs().max(), name


FAMILIES = ["llama", "qwen3", "gemma2", "olmo2", "gpt2", "phi3"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("traceable", [False, True])
def test_swapped_forwards_give_the_losses_and_gradients_of_the_stock_ones(
    family, traceable, network, adapted
):
    model = adapted(network(family))
    theirs = step(model)
    with fused(model, traceable=traceable), chunked_loss(model):
        ours = step(model)
    agree(ours, theirs, 1e-4)
    agree(step(model), theirs, 0)


def test_a_bfloat16_base_gives_the_same_to_its_precision(network, adapted):
    model = adapted(network("qwen3", torch.bfloat16))
    theirs = step(model, half=True)
    with fused(model), chunked_loss(model):
        ours = step(model, half=True)
    assert ours[0] == pytest.approx(theirs[0], rel=5e-3)
    for name, grad in theirs[1].items():
        cosine = torch.nn.functional.cosine_similarity(ours[1][name].ravel(), grad.ravel(), 0)
        assert cosine > 0.99, name


def test_every_linear_gated_and_norm_module_of_qwen3_is_swapped(network, adapted):
    model = adapted(network("qwen3"))
    swapped = [m for m in model.modules() if "forward" not in vars(m)]
    with fused(model):
        names = [type(m).__name__ for m in swapped if "forward" in vars(m)]
    assert names.count("Linear") == 3 * 7
    assert names.count("Qwen3MLP") == 3
    assert names.count("Qwen3RMSNorm") == 3 * 4 + 1
    assert not any("forward" in vars(m) for m in model.modules())


def test_a_norm_that_adds_one_to_its_weight_is_left_alone(network, adapted):
    model = adapted(network("gemma2", hidden_activation="gelu_pytorch_tanh"))
    with fused(model):
        names = {type(m).__name__ for m in model.modules() if "forward" in vars(m)}
    assert names == {"Linear"}


def kept_bytes(model, *contexts):
    """What one forward keeps for the backward pass beside the weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    found = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(note, lambda t: t))
        stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        assert model(input_ids=IDS, labels=IDS).loss.isfinite()
    return sum(size for size, _ in found.values())


def test_what_is_kept_for_the_backward_pass_is_less_than_half(network, adapted):
    model = adapted(network("qwen3", torch.bfloat16, vocab_size=4096), dropout=0.1)
    stock = kept_bytes(model)
    assert kept_bytes(model, fused(model), chunked_loss(model)) < 0.5 * stock


def test_gradients_of_one_layer_are_those_of_finite_differences():
    torch.manual_seed(0)
    x, up = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = torch.randn(4, 5, dtype=torch.float64)
    bias = torch.randn(4, dtype=torch.float64)
    a = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    b = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    for gate in (None, up):
        for dropout in (0.0, 0.4):
            assert torch.autograd.gradcheck(
                lambda x, a, b, g=gate, p=dropout: LowRank.apply(
                    x, g, weight, bias, a, b, 2.0, p, 7
                ),
                (x, a, b),
            )


def test_the_mask_of_a_seed_is_drawn_again_and_drops_its_part():
    like = torch.empty(500, 400)
    mask = draw_mask(like, 0.2, 3)
    assert torch.equal(mask, draw_mask(like, 0.2, 3))
    assert not torch.equal(mask, draw_mask(like, 0.2, 4))
    assert mask.unique().tolist() == pytest.approx([0.0, 1.25])
    assert float((mask == 0).float().mean()) == pytest.approx(0.2, abs=0.005)


def test_dropout_draws_from_the_processors_generator_and_stops_in_evaluation(network, adapted):
    model = adapted(network(), dropout=0.5)
    with fused(model):
        first, again = step(model)[0], step(model)[0]
        torch.manual_seed(6)
        other = model(input_ids=IDS, labels=IDS).loss.item()
        model.eval()
        still = [step(model)[0] for _ in range(2)]
    assert first == again
    assert first != other
    assert still[0] == still[1]


def test_dropout_hits_the_adapters_input_alone(network, adapted):
    model = adapted(network(), dropout=0.3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.zero_()
    with fused(model):
        losses = {step(model)[0], step(model.eval())[0]}
    assert max(losses) - min(losses) < 1e-6


@pytest.mark.parametrize("count", [0, 1, 3])
def test_recomputed_blocks_draw_the_same_masks_and_give_the_same_gradients(count, network, adapted):
    model = adapted(network(), dropout=0.3)
    with fused(model), chunked_loss(model):
        theirs = step(model)
        with recomputing(model, count) as state:
            ours = step(model)
            assert len(state) == 3
    agree(ours, theirs, 1e-6)


def test_as_many_blocks_run_twice_as_are_asked_for(network, adapted):
    model = adapted(network())
    runs = []
    for place, block in enumerate(model.base_model.model.model.layers):
        block.self_attn.register_forward_pre_hook(lambda *_, p=place: runs.append(p))
    with recomputing(model, 2) as state:
        step(model)
        assert runs == [0, 1, 2, 1, 0]
        state.count = 0
        runs.clear()
        step(model)
    assert runs == [0, 1, 2]


def test_merged_disabled_and_frozen_adapters_run_the_stock_forward(network, adapted):
    model = adapted(network(), dropout=0.3).eval()
    with torch.no_grad():
        apart = model(input_ids=IDS).logits
        with model.disable_adapter():
            base = model(input_ids=IDS).logits
    with fused(model), chunked_loss(model):
        with torch.no_grad():
            assert torch.equal(model(input_ids=IDS).logits, apart)
        with model.disable_adapter():
            torch.testing.assert_close(model(input_ids=IDS).logits, base, atol=1e-5, rtol=1e-5)
        model.merge_adapter()
        torch.testing.assert_close(model(input_ids=IDS).logits, apart, atol=1e-4, rtol=0)


def test_dora_and_biased_adapters_are_left_to_peft(network, adapted):
    for changes in ({"use_dora": True}, {"lora_bias": True}):
        model = adapted(network(attention_bias=True, mlp_bias=True), **changes)
        theirs = step(model)
        with fused(model):
            assert not any(
                "forward" in vars(m)
                for m in model.modules()
                if isinstance(m, peft.tuners.lora.Linear)
            )
            agree(step(model), theirs, 1e-4)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of torch itself, while it compiles
def test_compiled_blocks_give_the_same_gradients(network, adapted):
    model = adapted(network())
    theirs = step(model)
    with fused(model, traceable=True), recomputing(model, 1, compiled=True):
        ours = step(model)
    agree(ours, theirs, 1e-4)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of torch itself, while it compiles
def test_compiled_blocks_keep_less_where_memory_decides(network, adapted):
    sizes = {"intermediate_size": 160, "num_hidden_layers": 2}
    model = adapted(network("qwen3", torch.bfloat16, **sizes), dropout=0.1)
    batch = {"input_ids": IDS, "labels": IDS}
    kept = {}
    for recompute in ("none", "auto"):
        torch._dynamo.reset()
        config = TrainConfig(documents="d", model="m", compile=True, recompute=recompute)
        kept[recompute] = kept_bytes(model, quickened(config, model, batch))
    assert kept["auto"] < 0.75 * kept["none"]
