"""LoReFT: the map by its formula, its start, and what training makes of it."""

import numpy as np
import pytest
import torch
from workbench_training.loreft import LoReFT
from workbench_training.pair_fit import train_on_pairs
from workbench_training.pair_method import Known, Marks, Run

METHOD = LoReFT(rank=3)


def random_parameters(seed=0):
    rng = torch.Generator().manual_seed(seed)
    start = METHOD.start(2, 8, seed)
    return {name: v + 0.5 * torch.randn(v.shape, generator=rng) for name, v in start.items()}


def marks(strength):
    return Marks(torch.as_tensor(strength), torch.zeros(1, 3))


def part_of(parameters, row):
    return {name: value[row] for name, value in METHOD.parts(parameters).items()}


def test_the_edit_is_the_papers_formula_and_acts_on_marked_tokens_alone():
    h = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(1))
    part = part_of(random_parameters(), 1)
    R = part["basis"].T
    torch.testing.assert_close(R @ R.T, torch.eye(3), atol=1e-6, rtol=0)
    W, b = R + part["change"], part["bias"]
    written = h + (h @ W.T + b - h @ R.T) @ R
    found = METHOD.edited(h, part, marks([[0.0, 1.0, 2.0]]))
    torch.testing.assert_close(found[:, 0], h[:, 0])
    torch.testing.assert_close(found[:, 1], written[:, 1])
    torch.testing.assert_close(found[:, 2], (2 * written - h)[:, 2])


def test_the_start_is_an_orthonormal_basis_and_no_change_and_follows_from_the_seed():
    one, same, other = (METHOD.start(2, 8, seed) for seed in (0, 0, 1))
    assert torch.equal(one["basis"], same["basis"])
    assert not torch.allclose(one["basis"], other["basis"])
    assert not one["change"].any()
    assert not one["bias"].any()
    torch.testing.assert_close(METHOD.parts(one)["basis"], one["basis"], atol=1e-6, rtol=0)


def test_the_loss_is_the_chosen_replys_mean_over_tokens_whatever_the_other_is():
    known = Known(torch.tensor([[-8.0], [-1.0]]), torch.tensor([[4.0], [2.0]]))
    found = METHOD.loss((Run("chosen"),), torch.tensor([[-6.0]]), known)
    assert found.losses.tolist() == [1.5]
    assert found.told["reward_chosen"].tolist() == [0.5]


def test_the_result_is_a_map_of_that_rank_whose_axis_is_what_it_does(
    subject_of, pair_rows, pair_config
):
    config = pair_config(method="loreft", params={"rank": 2}, epochs=6, layers=[1])
    found = train_on_pairs(subject_of(), pair_rows(), config).found
    assert (found.rank, found.layers) == (2, (1,))
    acts = np.random.default_rng(0).normal(size=(5, 32)).astype(np.float32)
    moved = found.displacement(acts, 1)
    inside = found.left[0] @ found.left[0].T
    np.testing.assert_allclose(moved @ inside, moved, atol=1e-4)  # all within the rows of R
    assert np.linalg.norm(found.axis[0]) > 0
    np.testing.assert_allclose(found.axis[0] @ inside, found.axis[0], atol=1e-4)


@pytest.mark.parametrize("epochs", [6])
def test_the_likelihood_of_the_chosen_replies_rises(epochs, subject_of, pair_rows, pair_config):
    done = train_on_pairs(subject_of(), pair_rows(), pair_config(method="loreft", epochs=epochs))
    assert done.told["loss_last"] < done.told["loss_first"] - 0.5
    assert done.log[0]["reward_chosen"] == pytest.approx(0, abs=1e-5)
    assert done.told["reward_chosen_last"] > 0.5
