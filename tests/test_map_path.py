"""Maps from prompts to edited states on a tiny model: what a fit promises holds in the model."""

import numpy as np
import pytest

import workbench as wb

LAYER = 2
WORDS = ("stone", "river", "cloud", "glass", "paper", "metal", "field", "light")


@pytest.fixture(scope="module")
def prompts():
    """Pairs of texts that differ in one word."""
    records = [
        {"id": f"{word}-{place}-{label}", "pair": f"{word}-{place}", "label": label,
         "place": place, "text": f"{place} the {word} is {'here' if label else 'gone'}"}
        for word in WORDS
        for place in ("today", "at noon", "outside", "in town", "again")
        for label in (0, 1)
    ]  # fmt: skip
    return wb.PromptSet.from_records(records, text="text")


@pytest.fixture(scope="module")
def acts(tiny_subject, prompts):
    return wb.capture(tiny_subject, prompts, layers=[LAYER])


def edited(subject, prompts, found, **settings):
    with wb.intervene(subject, [wb.Intervention.map(found, **settings)]) as log:
        after = wb.capture(subject, prompts, layers=[LAYER])
    assert log.idle() == []
    return after.at(LAYER), log


def test_after_erasure_in_the_model_the_label_is_gone(tiny_subject, prompts, acts, tmp_path):
    found = wb.fit_map(acts, method="leace", layers=[LAYER])
    found = wb.open_map(wb.save_map(found, tmp_path / "erase.safetensors"))
    y, before = acts.columns["label"] == 1, acts.at(LAYER)
    after, _ = edited(tiny_subject, prompts, found)
    was = np.linalg.norm(before[y].mean(0) - before[~y].mean(0))
    left = np.linalg.norm(after[y].mean(0) - after[~y].mean(0))
    assert was > 0.1
    assert left < 1e-4 * was


@pytest.mark.parametrize(
    ("method", "params"),
    [("ridge_map", {}), ("reduced_rank", {"rank": 3}), ("outer", {}), ("ot_map", {})],
)
def test_a_steering_map_carries_label_0_to_the_mean_of_label_1(
    method, params, tiny_subject, prompts, acts
):
    found = wb.fit_map(acts, method=method, pairs="pair", layers=[LAYER], **params)
    y, before = acts.columns["label"] == 1, acts.at(LAYER)
    after, log = edited(tiny_subject, prompts, found)
    np.testing.assert_allclose(after[~y].mean(0), before[y].mean(0), atol=1e-4)
    np.testing.assert_allclose(after, found.apply(before, LAYER), atol=1e-4)
    back, _ = edited(tiny_subject, prompts, -found)
    np.testing.assert_allclose(back, found.apply(before, LAYER, -1), atol=1e-4)
    assert log.rows[0].edit == "linear_map"


def test_benign_prompts_run_as_if_there_were_no_edit(tiny_subject, prompts, acts):
    """With fewer benign states than dimensions their null space is exact."""
    few, own = acts.where(place=["today", "again"]), prompts.where(place=["today", "again"])
    found = wb.fit_map(few, method="null_space", layers=[LAYER])
    y, before = few.columns["label"] == 1, few.at(LAYER)
    assert (~y).sum() < tiny_subject.width
    after, _ = edited(tiny_subject, own, found, scope="last")
    moved = np.linalg.norm(after - before, axis=1) / np.linalg.norm(found.axis[0])
    assert moved[~y].max() < 1e-5
    assert moved[y].min() > 0.5
