"""Replies under an edit, side by side."""

import numpy as np
import pytest

import workbench as wb
from workbench.effects import side_by_side
from workbench.errors import ConfigError
from workbench.readouts.reply import Reply

PROMPTS = ["the city of the", "is true and a"]


@pytest.fixture(scope="module")
def swept(tiny_subject):
    vectors = np.random.default_rng(1).normal(size=(1, 1, tiny_subject.width))
    direction = wb.Directions(("mood",), (1,), vectors, tiny_subject.stamp)
    return wb.sweep(
        tiny_subject,
        direction,
        doses=[-3, 3],
        controls=1,
        readouts=[Reply(PROMPTS, max_new_tokens=5, render="bare")],
    )


def test_prompts_go_down_and_doses_across_with_zero_first(swept):
    found = side_by_side(swept)
    assert list(found.columns) == [
        "prompt", "dose 0", "mood -3", "mood +3", "mood -3 (random:0)", "mood +3 (random:0)",
    ]  # fmt: skip
    assert found["prompt"].tolist() == PROMPTS
    assert (found["dose 0"] != found["mood +3"]).any()


def test_the_zero_dose_says_what_the_model_says_by_itself(swept, tiny_subject):
    plain = [
        tiny_subject.generate([prompt], max_new_tokens=5, render="bare")[0] for prompt in PROMPTS
    ]
    assert side_by_side(swept)["dose 0"].tolist() == plain


def test_draws_are_rows_of_their_own_and_the_same_under_a_null_edit(tiny_subject):
    readout = Reply(PROMPTS, n=3, temperature=1.0, max_new_tokens=4, render="bare")
    found = side_by_side(wb.measure(tiny_subject, [readout]))
    assert found.index.names == ["subject", "item", "draw"]
    assert len(found) == 6
    assert list(found.columns) == ["prompt", "unedited"]
    again = side_by_side(wb.measure(tiny_subject, [readout]))
    assert found.equals(again)


def test_draws_without_a_temperature_and_tables_without_texts_are_refused(tiny_subject):
    with pytest.raises(ConfigError, match="n = 2 at temperature"):
        Reply(PROMPTS, n=2)
    with pytest.raises(ConfigError, match="render = 'html'"):
        Reply(PROMPTS, render="html")
    measured = wb.measure(tiny_subject, [Reply(PROMPTS, max_new_tokens=2)])
    with pytest.raises(ConfigError, match="no texts of the readout 'claims'"):
        side_by_side(measured, readout="claims")
