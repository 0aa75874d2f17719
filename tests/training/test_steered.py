import copy

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from workbench_training.steered import applied
from workbench_training.steered_settings import SteerConfig

from workbench.directions import Directions, save_directions
from workbench.engine.blocks import hidden_of
from workbench.errors import ConfigError, MismatchError, UnknownNameError, WorkbenchError

LAYERS = (1, 2)
TEXTS = ["the city of the answer is true to you"] * 2


@pytest.fixture(scope="module")
def subject(make_subject):
    """A tiny model of this file alone; each test trains a copy of its network."""
    made = make_subject("qwen3")
    made.model.train()
    return made


@pytest.fixture(scope="module")
def directions(subject):
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(2, 4, subject.width)).astype(np.float32)
    return Directions(("trait", "other"), (0, 1, 2, 3), vectors, subject.stamp)


@pytest.fixture(scope="module")
def file(directions, tmp_path_factory):
    return save_directions(directions, tmp_path_factory.mktemp("directions") / "two.safetensors")


@pytest.fixture
def steer(file):
    def make(**changes):
        return SteerConfig(**{"directions": str(file), "layers": [1], **changes})

    return make


def states(subject, layer):
    """The output of a block, hooks that are there already included, with its graph."""
    kept = []
    handle = subject.blocks[layer].register_forward_hook(
        lambda _module, _args, output: kept.append(hidden_of(output))
    )
    try:
        subject.model(subject.encode(TEXTS).input_ids, use_cache=False)
    finally:
        handle.remove()
    return kept[0]


def loss_of(subject):
    ids = subject.encode(TEXTS).input_ids
    return subject.model(ids, labels=ids, use_cache=False).loss


def gradients(subject, config):
    subject.model.zero_grad()
    with applied(config, subject):
        loss_of(subject).backward()
    return {name: p.grad.clone() for name, p in subject.model.named_parameters()}


def hooks(subject):
    return [len(block._forward_hooks) for block in subject.blocks.values()]


def test_adding_moves_every_position_by_the_raw_vector_times_the_coefficient(
    subject, directions, steer
):
    plain = states(subject, 1)
    with applied(steer(names=["trait"], coefficient=-2.5), subject):
        moved = states(subject, 1)
    shift = torch.tensor(-2.5 * directions["trait"].at(1)[0])
    torch.testing.assert_close(moved - plain, shift.expand_as(plain), atol=1e-5, rtol=1e-5)


def test_several_directions_are_added_at_each_of_several_blocks(subject, directions, steer):
    plain = states(subject, 1)
    with applied(steer(layers=[1, 2]), subject):
        moved, later = states(subject, 1), states(subject, 2)
    total = torch.tensor(directions.at(1).sum(0))
    torch.testing.assert_close(moved - plain, total.expand_as(plain), atol=1e-5, rtol=1e-5)
    with applied(steer(layers=[1]), subject):
        once = states(subject, 2)
    total = torch.tensor(directions.at(2).sum(0))
    torch.testing.assert_close(later - once, total.expand_as(once), atol=1e-5, rtol=1e-5)


def test_a_dose_in_units_of_the_norm_is_a_fraction_of_the_residual_norm(subject, steer):
    from workbench.engine.norms import residual_norms

    subject.model.eval()
    (norm,) = residual_norms(subject, (1,))
    subject.model.train()
    plain = states(subject, 1)
    with applied(steer(names=["trait"], coefficient=0.5, unit="norm"), subject):
        moved = states(subject, 1)
    lengths = (moved - plain).norm(dim=-1)
    torch.testing.assert_close(
        lengths, torch.full_like(lengths, 0.5 * float(norm)), atol=1e-4, rtol=1e-4
    )


def test_ablating_removes_the_span_of_all_directions_and_nothing_else(subject, directions, steer):
    plain = states(subject, 1)
    with applied(steer(mode="ablate"), subject):
        left = states(subject, 1)
    basis = np.linalg.qr(directions.at(1).T.astype(np.float64))[0]
    q = torch.tensor(basis, dtype=torch.float32)
    torch.testing.assert_close(left, plain - (plain @ q) @ q.T, atol=1e-5, rtol=1e-5)
    assert (left @ q).abs().max() < 1e-4 < (plain @ q).abs().max()


def test_no_gradient_reaches_the_weights_through_an_ablated_coordinate(subject, directions, steer):
    subject.model.zero_grad()
    v = torch.tensor(directions["trait"].at(1)[0])
    with applied(steer(mode="ablate"), subject):
        (states(subject, 1) @ v).square().sum().backward()
    assert max(_sizes(subject)) < 1e-3
    subject.model.zero_grad()
    (states(subject, 1) @ v).square().sum().backward()
    assert max(_sizes(subject)) > 1


def _sizes(subject):
    parameters = subject.model.parameters()
    return [float(p.grad.abs().max()) for p in parameters if p.grad is not None]


@pytest.mark.parametrize("mode", ["add", "ablate"])
def test_gradients_are_those_of_the_edited_model(subject, directions, steer, mode):
    """Finite differences along the gradient itself, through the edit."""
    config = steer(mode=mode, layers=[1, 2], coefficient=0.7)
    found = gradients(subject, config)
    name = next(n for n in found if "layers.0." in n and "o_proj" in n)
    weight, slope = subject.model.get_parameter(name), found[name]
    step = 1e-2 * slope / slope.norm()
    sides = []
    for sign in (1, -1):
        with torch.no_grad(), applied(config, subject):
            weight += sign * step
            sides.append(loss_of(subject).item())
            weight -= sign * step
    rise = (sides[0] - sides[1]) / (2 * float(step.norm()))
    assert rise == pytest.approx(float(slope.norm()), rel=0.02)
    plain = gradients(subject, None)[name]
    assert (plain - slope).norm() > 0.05 * slope.norm()


@pytest.mark.parametrize("mode", ["add", "ablate"])
def test_gradient_checkpointing_changes_no_gradient(subject, steer, mode):
    config = steer(mode=mode, layers=[1, 2], coefficient=0.7)
    plain = gradients(subject, config)
    model = subject.model
    kind = "activation" if hasattr(model, "activation_checkpointing_enable") else "gradient"
    getattr(model, f"{kind}_checkpointing_enable")({"use_reentrant": False})
    try:
        again = gradients(subject, config)
    finally:
        getattr(model, f"{kind}_checkpointing_disable")()
    assert all(torch.equal(plain[name], again[name]) for name in plain)


@pytest.mark.parametrize("mode", ["add", "ablate"])
def test_a_coefficient_of_zero_is_the_model_itself_bit_for_bit(subject, steer, mode):
    plain = gradients(subject, None)
    with applied(steer(mode=mode, coefficient=0.0), subject):
        assert torch.equal(loss_of(subject), _without(subject))
    same = gradients(subject, steer(mode=mode, coefficient=0.0))
    assert all(torch.equal(plain[name], same[name]) for name in plain)


def _without(subject):
    with applied(None, subject):
        return loss_of(subject)


def test_blocks_in_evaluation_mode_are_left_alone(subject, steer):
    plain = states(subject, 1)
    subject.model.eval()
    try:
        with applied(steer(), subject):
            assert torch.equal(states(subject, 1), plain)
    finally:
        subject.model.train()


def test_hooks_are_there_inside_and_gone_afterwards_even_after_an_error(subject, steer):
    before = hooks(subject)
    with applied(steer(layers=[1, 2]), subject):
        assert hooks(subject) == [n + (layer in (1, 2)) for layer, n in enumerate(before)]
    assert hooks(subject) == before
    with pytest.raises(RuntimeError, match="halfway"), applied(steer(), subject):
        raise RuntimeError("halfway")
    assert hooks(subject) == before


def test_under_autocast_the_edit_is_still_computed_in_float32(subject, steer, directions):
    config = steer(names=["trait"], mode="ablate")
    v = torch.tensor(directions["trait"].at(1)[0])
    unit = v / v.norm()
    with torch.autocast("cpu", torch.bfloat16), applied(config, subject):
        left = states(subject, 1)
    assert (left.float() @ unit).abs().max() < 2e-2 * left.float().norm(dim=-1).max()
    h = torch.randn(2, 3, subject.width)
    with torch.autocast("cpu", torch.bfloat16), applied(config, subject):
        found = next(iter(subject.blocks[1]._forward_hooks.values()))(subject.blocks[1], (), h)
    torch.testing.assert_close(found, h - (h @ unit)[..., None] * unit, atol=1e-5, rtol=1e-5)


def test_a_block_a_name_a_file_or_a_model_that_does_not_fit_is_refused(
    subject, steer, directions, tmp_path, make_subject
):
    with pytest.raises(WorkbenchError, match="no block 9"), applied(steer(layers=[9]), subject):
        pass
    with pytest.raises(UnknownNameError, match="trait"), applied(steer(names=["trai"]), subject):
        pass
    gone = steer(directions=str(tmp_path / "gone.safetensors"))
    with pytest.raises(ConfigError, match="no file"), applied(gone, subject):
        pass
    other = make_subject("llama")
    with pytest.raises(MismatchError, match="model_type"), applied(steer(), other):
        pass
    save_directions(directions.select([0]), tmp_path / "one.safetensors")
    narrow = steer(directions=str(tmp_path / "one.safetensors"))
    with pytest.raises(WorkbenchError, match="no vector at layer 1"), applied(narrow, subject):
        pass


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"coefficient": float("nan")}, "finite"),
        ({"mode": "ablate", "unit": "norm"}, "unit"),
        ({"layers": [1, 1]}, "once"),
        ({"layers": []}, "at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(steer, changes, words):
    with pytest.raises(ValidationError, match=words):
        steer(**changes)


def test_a_folder_of_a_fit_stands_for_its_directions_file(steer, tmp_path):
    assert steer(directions=str(tmp_path)).file == tmp_path / "directions.safetensors"


def test_preventative_steering_leaves_less_of_the_trait_in_the_weights(subject, steer, tmp_path):
    """The trait is a word; its direction, added while training on it, says the word already."""
    model, tokenizer = subject.model, subject.tokenizer
    word = tokenizer(" true", add_special_tokens=False)["input_ids"][0]
    ids = torch.full((4, 12), word)
    ids[:, ::2] = torch.tensor(tokenizer(" city of the is you a")["input_ids"][:6])
    vector = model.get_output_embeddings().weight[word].detach().numpy().copy()
    trait = Directions(("word",), (3,), vector[None, None], subject.stamp)
    path = save_directions(trait, tmp_path / "word.safetensors")
    start = copy.deepcopy(model.state_dict())

    def learned(coefficient):
        """The mean log-probability of the word where it belongs, hooks gone, and the loss."""
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        with applied(steer(directions=str(path), layers=[3], coefficient=coefficient), subject):
            for _ in range(10):
                optimizer.zero_grad()
                model(ids, labels=ids, use_cache=False).loss.backward()
                optimizer.step()
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[:, 0::2]
        return float(logits.log_softmax(-1)[..., word].mean())

    try:
        with torch.no_grad():
            before = model(ids, use_cache=False).logits[:, 0::2].log_softmax(-1)[..., word].mean()
        plain, less, least = (learned(dose) for dose in (0.0, 3.0, 20.0))
    finally:
        model.load_state_dict(start)
    assert plain - before > 0.5
    assert before - 0.5 < least < less < plain - 0.1
