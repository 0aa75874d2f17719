import pytest
import torch
from workbench_training.bco import Shift, bco_losses


def test_the_losses_of_bco_are_those_of_a_classifier():
    rewards, labels = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([True, False, False])
    probabilities = torch.sigmoid(rewards - 0.25)
    expected = torch.nn.functional.binary_cross_entropy(
        probabilities, labels.float(), reduction="none"
    )
    torch.testing.assert_close(bco_losses(rewards, labels, 0.25), expected)


def test_the_shift_of_bco_is_midway_and_survives_a_checkpoint(tmp_path):
    shift, rewards = Shift(), torch.tensor([2.0, 4.0, -1.0])
    assert shift.value == 0
    shift.see(rewards[:2], torch.tensor([True, True]))
    assert shift.value == 0
    shift.see(rewards, torch.tensor([True, True, False]))
    assert shift.value == pytest.approx((3 - 1) / 2)
    shift.see(torch.tensor([13.0]), torch.tensor([True]))
    assert shift.value == pytest.approx((0.9 * 3 + 0.1 * 13 - 1) / 2)
    shift.write(tmp_path)
    again = Shift()
    again.read(tmp_path)
    assert again.value == shift.value
