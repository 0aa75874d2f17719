"""The objective of bidirectional preference optimization, by its algebra."""

import math

import numpy as np
import pytest
import torch
from workbench_training.bipo import BiPO
from workbench_training.pair_fit import train_on_pairs
from workbench_training.pair_loop import PairLoop
from workbench_training.pair_method import Known, Run
from workbench_training.pairs import PairSet, read_pairs
from workbench_training.reply_scores import frozen

from workbench.errors import ConfigError
from workbench.linalg import cosine


class Signs(BiPO):
    """BiPO whose draws are turned round."""

    def runs(self, rng):
        sign = -float(rng.choice((-1, 1)))
        return (Run("chosen", sign), Run("rejected", sign))


@pytest.fixture
def loop_of(subject_of, pair_rows, pair_config):
    """``(method, family="qwen3", rows=..., **settings) -> (loop, reference)``."""

    def make(method=None, family="qwen3", rows=None, **settings):
        subject, config = subject_of(family), pair_config(**settings)
        pairs = read_pairs(rows or pair_rows(), subject, config).trained
        loop = PairLoop(subject, method or BiPO(), config, tuple(subject.blocks), pairs)
        with frozen(subject):
            return loop, loop.observe(pairs)

    return make


def loss_and_gradient(loop, reference, sign, v=None, numbers=range(8), gamma=False):
    """The mean loss of some pairs at a sign, and its gradient in v."""
    if v is not None:
        with torch.no_grad():
            loop.parameters["v"].copy_(v)
    loop.parameters["v"].grad = None
    runs = (Run("chosen", sign), Run("rejected", sign), *([Run("chosen")] if gamma else []))
    with frozen(loop.subject), loop._applied():
        loss = loop.loss_of(list(numbers), runs, reference).losses.mean()
        loss.backward()
    return float(loss.detach()), loop.parameters["v"].grad.clone()


def random_v(seed=0, size=0.3):
    return size * torch.randn(4, 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_at_zero_the_loss_is_log_2(loop_of, sign):
    loss, grad = loss_and_gradient(*loop_of(), sign)
    assert loss == pytest.approx(math.log(2), abs=1e-6)
    assert grad.abs().max() > 1e-4


def test_pairs_of_equal_replies_have_no_gradient(loop_of, pair_rows):
    loop, reference = loop_of()
    loop.pairs = [pair.swapped() if n % 2 else pair for n, pair in enumerate(loop.pairs)]
    same = [type(pair)(pair.name, pair.chosen, pair.chosen) for pair in loop.pairs]
    loop.pairs = same
    reference = type(reference)(reference.logprobs[[0, 0]], reference.norms)
    for v in (torch.zeros(4, 32), random_v()):
        loss, grad = loss_and_gradient(loop, reference, 1.0, v)
        assert loss == pytest.approx(math.log(2), abs=1e-6)
        assert grad.abs().max() < 1e-7


@pytest.mark.parametrize("span", ["user", "last_user"])
def test_the_top_block_gets_no_gradient_under_the_users_tokens(loop_of, span):
    _, grad = loss_and_gradient(*loop_of(span=span), 1.0, random_v())
    assert grad[:3].abs().amax(1).min() > 1e-5
    assert grad[3].abs().max() == 0


def test_under_the_reply_every_block_gets_one(loop_of):
    _, grad = loss_and_gradient(*loop_of(span="assistant"), 1.0, random_v())
    assert grad.abs().amax(1).min() > 1e-5


@pytest.mark.parametrize("span", ["user", "assistant"])
def test_the_sign_turned_is_the_vector_turned_and_the_replies_swapped(loop_of, span):
    loop, reference = loop_of(span=span)
    v = random_v()
    one, gradient = loss_and_gradient(loop, reference, -1.0, v)
    loop.pairs = [pair.swapped() for pair in loop.pairs]
    swapped = type(reference)(reference.logprobs[::-1].copy(), reference.norms)
    other, turned = loss_and_gradient(loop, swapped, 1.0, -v)
    assert one == pytest.approx(other, abs=1e-6)
    torch.testing.assert_close(gradient, -turned, atol=1e-6, rtol=1e-4)


def test_the_gradient_is_that_of_finite_differences(loop_of):
    loop, reference = loop_of(BiPO(beta=0.5, gamma=0.2))
    v, step = random_v(), 1e-2
    _, grad = loss_and_gradient(loop, reference, -1.0, v, gamma=True)
    way = torch.nn.functional.normalize(grad.flatten(), dim=0).view_as(v)
    above, below = (
        loss_and_gradient(loop, reference, -1.0, v + s * way, gamma=True)[0] for s in (step, -step)
    )
    assert (above - below) / (2 * step) == pytest.approx(float(grad.norm()), rel=2e-2)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_anchor_is_the_chosen_replys_loss_under_plus_v_whatever_the_sign(sign):
    known = Known(torch.tensor([[-4.0], [-6.0]]), torch.tensor([[2.0], [3.0]]))
    runs = (Run("chosen", sign), Run("rejected", sign))
    found = [[-3.0], [-8.0]]
    if sign < 0:
        runs, found = (*runs, Run("chosen")), [*found, [-1.0]]
    with_anchor = BiPO(beta=0.1, gamma=0.5).loss(runs, torch.tensor(found), known)
    anchor = 0.5 * (1.0 if sign < 0 else 3.0) / 2
    margin = sign * 0.1 * ((-3 + 4) - (-8 + 6))
    assert float(with_anchor.told["margin"]) == pytest.approx(margin)
    assert float(with_anchor.losses) == pytest.approx(math.log1p(math.exp(-margin)) + anchor)


def test_the_anchor_runs_the_chosen_reply_once_more_only_where_the_sign_is_minus():
    drawn = {
        BiPO(gamma=0.2).runs(np.random.default_rng(seed)) for seed in range(20)
    }  # fmt: skip
    assert {len(runs): runs[0].strength for runs in drawn} == {3: -1.0, 2: 1.0}
    assert all(len(BiPO().runs(np.random.default_rng(seed))) == 2 for seed in range(20))


def test_a_planted_effect_is_found_with_its_sign(make_subject, pair_rows, pair_config):
    """Blocks that add nothing: the way from B to A is the difference of their output rows."""
    subject = make_subject("llama", seed=3)
    with torch.no_grad():
        for name, weight in subject.model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
            if name.endswith("norm.weight"):
                weight.fill_(1)
    config = pair_config(span="assistant", epochs=20, method="bipo", layers=[1, 2])
    found = train_on_pairs(subject, pair_rows(), config).found
    one, other = (subject.tokenizer(text)["input_ids"][-1] for text in ("A A", "B B"))
    rows = subject.model.get_output_embeddings().weight
    axis = (rows[one] - rows[other]).detach().numpy()[None]
    assert cosine(found.vectors[0], axis.repeat(2, 0)).min() > 0.75


@pytest.mark.thorough
def test_swapped_replies_negate_the_vectors(subject_of, pair_rows, pair_config):
    rows = pair_rows()
    swapped = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    one = train_on_pairs(subject_of(), rows, pair_config(epochs=6)).found
    other = train_on_pairs(subject_of(), swapped, pair_config(epochs=6)).found
    assert np.diag(cosine(one.vectors[0], -other.vectors[0])).min() > 0.9


def test_with_the_draws_turned_too_they_are_the_same_to_rounding(
    subject_of, pair_rows, pair_config, monkeypatch
):
    rows = pair_rows()
    swapped = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    one = train_on_pairs(subject_of(), rows, pair_config(epochs=2)).found
    monkeypatch.setattr(BiPO, "runs", Signs.runs)
    other = train_on_pairs(subject_of(), swapped, pair_config(epochs=2)).found
    np.testing.assert_allclose(one.vectors, -other.vectors, atol=2e-4)


def test_a_lasso_empties_blocks_of_little_use(subject_of, pair_rows, pair_config):
    plain = train_on_pairs(subject_of(), pair_rows(), pair_config()).found
    config = pair_config(params={"lasso": 5.0})
    sparse = train_on_pairs(subject_of(), pair_rows(), config).found
    assert set(sparse.layers) < set(plain.layers) == {0, 1, 2}
    assert sparse.info["left_out_layers"] == sorted({0, 1, 2, 3} - set(sparse.layers))
    with pytest.raises(ConfigError, match="learned nothing"):
        train_on_pairs(subject_of(), pair_rows(), pair_config(params={"lasso": 100}))


def test_a_lasso_that_empties_every_block_has_learned_nothing(subject_of, pair_rows, pair_config):
    with pytest.raises(ConfigError, match=r"learned nothing.*lower a lasso"):
        train_on_pairs(subject_of(), pair_rows(4), pair_config(epochs=1, params={"lasso": 1e6}))


def test_likelihood_displacement_is_said(subject_of, pair_rows, pair_config, caplog, monkeypatch):
    stock = BiPO.loss

    def displaced(self, *args):
        loss = stock(self, *args)
        sinking = {"margin": loss.losses * 0 + 1, "reward_chosen": loss.losses * 0 - 2}
        return type(loss)(loss.losses, {**loss.told, **sinking})

    found = train_on_pairs(subject_of(), pair_rows(), pair_config())
    assert found.told["displaced"] == (
        found.told["margin_last"] > 0 > found.told["reward_chosen_last"]
    )
    monkeypatch.setattr(BiPO, "loss", displaced)
    told = train_on_pairs(subject_of(), pair_rows(), pair_config()).told
    assert told["displaced"]
    assert "gamma" in caplog.text


@pytest.mark.parametrize(
    "params", [{"beta": 0}, {"beta": float("nan")}, {"gamma": -1}, {"lasso": -0.1}, {"beat": 1}]
)
def test_settings_that_make_no_sense_are_refused(subject_of, pair_rows, pair_config, params):
    with pytest.raises(ConfigError, match=next(iter(params))):
        train_on_pairs(subject_of(), pair_rows(), pair_config(params=params))


def test_neutral_pairs_are_left_out_and_counted(subject_of, pair_rows, pair_config):
    rows = [*pair_rows(6), *pair_rows(2, rejected="A A A A")]
    found = read_pairs(rows, subject_of(), pair_config())
    assert isinstance(found, PairSet)
    assert (len(found.trained), found.neutral) == (6, 2)
