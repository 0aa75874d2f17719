"""RePS: its two edits, its loss by hand, its draws."""

import math

import numpy as np
import pytest
import torch
from workbench_training.pair_fit import train_on_pairs
from workbench_training.pair_method import Known, Marks
from workbench_training.reps import RePS

from workbench.linalg import cosine

METHOD = RePS()
V = torch.tensor([3.0, 0.0, 4.0])
H = torch.tensor([[[1.0, 2.0, 3.0], [-1.0, 2.0, -3.0], [4.0, 1.0, -3.0]]])


def edited(strength, null, v=V):
    marks = Marks(torch.tensor([strength]), torch.tensor([null]), any(null))
    return METHOD.edited(H, {"v": v}, marks)[0]


def test_a_factor_adds_that_much_of_the_vector():
    torch.testing.assert_close(
        edited([0.0, 1.0, 2.0], [0.0] * 3), H[0] + torch.tensor([[0.0], [1.0], [2.0]]) * V
    )


def test_the_null_takes_out_what_points_along_the_vector_and_leaves_what_points_away():
    found = edited([0.0] * 3, [1.0] * 3)
    assert float(found[0] @ V) == pytest.approx(0, abs=1e-5)
    torch.testing.assert_close(found[1], H[0, 1])  # its coordinate is negative
    torch.testing.assert_close(found[2], H[0, 2])  # it has none
    torch.testing.assert_close(found[0, 1], H[0, 0, 1])


def test_a_vector_of_zero_nulls_nothing_and_has_a_gradient_that_is_a_number():
    v = torch.zeros(3, requires_grad=True)
    found = edited([0.0] * 3, [1.0] * 3, v)
    assert torch.equal(found, H[0])
    found.sum().backward()
    assert torch.isfinite(v.grad).all()


def test_the_loss_is_the_papers_by_hand():
    known = Known(torch.tensor([[-9.0], [-6.0]]), torch.tensor([[3.0], [2.0]]))
    logprobs = torch.tensor([[-6.0], [-8.0], [-12.0], [-4.0]])
    found = METHOD.loss((), logprobs, known)
    plus = 3.0 * (-6 / 3) - (-8 / 2)  # the chosen reply is 3 nats behind
    null = 1.0 * (-4 / 2) - (-12 / 3)  # the other one is ahead, so it counts once
    wanted = math.log1p(math.exp(-plus)) + math.log1p(math.exp(-null))
    assert float(found.losses) == pytest.approx(wanted, rel=1e-5)
    assert float(found.told["margin"]) == pytest.approx((-2 + 4) - (-3 + 3))
    assert float(found.told["reward_chosen"]) == pytest.approx(1)


def test_factors_are_drawn_from_the_list_and_both_replies_run_both_ways():
    drawn = [METHOD.runs(np.random.default_rng(seed)) for seed in range(60)]
    assert {runs[0].strength for runs in drawn} == {0.5, 1.0, 1.5, 2.0}
    assert all(runs[0].strength == runs[1].strength for runs in drawn)
    assert [(run.reply, run.null) for run in drawn[0]] == [
        ("chosen", False), ("rejected", False), ("chosen", True), ("rejected", True),
    ]  # fmt: skip


@pytest.mark.thorough
def test_a_planted_direction_is_found_with_its_sign(make_subject, pair_rows, pair_config):
    """Blocks that add nothing: the way from B to A is the difference of their output rows."""
    subject = make_subject("llama", seed=3)
    with torch.no_grad():
        for name, weight in subject.model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
            if name.endswith("norm.weight"):
                weight.fill_(1)
    config = pair_config(method="reps", span="assistant", epochs=20, layers=[1])
    found = train_on_pairs(subject, pair_rows(), config).found
    one, other = (subject.tokenizer(text)["input_ids"][-1] for text in ("A A", "B B"))
    rows = subject.model.get_output_embeddings().weight
    axis = (rows[one] - rows[other]).detach().numpy()[None]
    assert cosine(found.vectors[0], axis)[0, 0] > 0.6
