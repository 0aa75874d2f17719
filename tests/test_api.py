"""The Python interface, whole paths on a tiny model."""

from dataclasses import replace

import numpy as np
import pytest

import workbench as wb
from workbench.errors import ConfigError, MismatchError, UnknownNameError, WorkbenchError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Keep the doctor's verdicts out of the user's cache."""
    monkeypatch.setattr("workbench.api.cache_root", lambda: tmp_path / "cache")


TEXTS = [f"the city of {a} is in {b}" for a in "ABCDEFGH" for b in "XY"]


def prompts():
    rows = [
        {"text": text, "label": n % 2, "topic": "ab"[n // 8], "polarity": 1, "fact": n // 2}
        for n, text in enumerate(TEXTS)
    ]
    return wb.PromptSet.from_records(rows)


def test_from_a_folder_to_directions_and_back(tiny_folder, tmp_path):
    folder = tiny_folder(tmp_path / "model")
    subject = wb.load(folder, dtype="float32", device="cpu")
    acts = wb.capture(subject, prompts(), out=tmp_path / "acts")
    again = wb.open_activations(tmp_path / "acts")
    np.testing.assert_array_equal(acts.at(2), again.at(2))
    truth = wb.fit(again, method="mass_mean", y="label", groups="topic")
    wb.save_directions(truth, tmp_path / "truth.safetensors")
    opened = wb.open_directions(tmp_path / "truth.safetensors")
    scores = opened.project(again)
    assert scores.shape == (1, 4, len(TEXTS))
    np.testing.assert_allclose(scores, truth.project(acts))


def test_an_intervention_acts_inside_its_block_alone(tiny_subject):
    import torch

    acts = wb.capture(tiny_subject, prompts())
    truth = wb.fit(acts, method="mass_mean", y="label")
    ids = torch.tensor([tiny_subject.tokenizer(TEXTS[0])["input_ids"]])
    edit = wb.Intervention.add(truth, layers=[1], dose=2.0, unit="norm")
    with torch.no_grad():
        before = tiny_subject.model(ids).logits
        with wb.intervene(tiny_subject, [edit]) as log:
            inside = tiny_subject.model(ids).logits
        after = tiny_subject.model(ids).logits
    assert (inside - before).abs().max() > 0.1
    assert torch.equal(before, after)
    assert isinstance(log, wb.EditLog)


def test_an_unknown_model_says_what_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match="no-such-model"):
        wb.load("no-such-model")
    with pytest.raises(UnknownNameError, match="unknown engine 'hook'"):
        wb.load("no-such-model", engine="hook")


def shifted(subject, direction, size):
    """The subject with a constant added at block 1: a planted gap of ``size``."""

    class Shifted(type(subject.runner)):
        def capture(self, model, batch, reads):
            found = super().capture(model, batch, reads)
            v = direction.vectors[0, 0] / np.linalg.norm(direction.vectors[0, 0])
            return [values + size * values.new_tensor(v) for values in found]

    from dataclasses import replace

    return replace(subject, runner=Shifted())


def test_a_planted_gap_is_measured_with_its_sign_and_no_spread(tiny_subject):
    acts = wb.capture(tiny_subject, prompts(), layers=[1])
    truth = wb.fit(acts, method="mass_mean", y="label")
    first = shifted(tiny_subject, truth, 3.0)
    found = wb.gap(truth, first, tiny_subject, prompts())
    assert found.value == pytest.approx(3.0, rel=1e-4)
    assert (found.n, found.unit) == (len(TEXTS), "item")
    assert (found.first, found.second) == (tiny_subject.ref.key,) * 2
    assert wb.gap(truth, tiny_subject, first, prompts()).value == pytest.approx(-3.0, rel=1e-4)


def test_a_contrast_is_the_mean_difference_of_two_models_on_the_same_items(tiny_subject):
    truth = wb.fit(wb.capture(tiny_subject, prompts(), layers=[1]), method="mass_mean")
    sides = (shifted(tiny_subject, truth, 3.0), tiny_subject)
    first, second = (wb.capture(side, prompts()) for side in sides)
    found = wb.contrast(first, second, name="moved")
    plain = first.at(2).astype(np.float64) - second.at(2)
    np.testing.assert_allclose(found.at(2)[0], plain.mean(0), rtol=1e-5, atol=1e-6)
    both = (first.mean_norms + second.mean_norms) / 2
    np.testing.assert_allclose(found.norms, both, rtol=1e-6)
    assert (found.names, found.info["n"], found.info["n_units"]) == (("moved",), 16, 16)
    turned = wb.contrast(second, first, name="moved", groups="topic")
    np.testing.assert_allclose(turned.vectors, -found.vectors, rtol=1e-6)
    assert turned.info["n_units"] == 2
    with pytest.raises(MismatchError, match="capture the same prompts with both"):
        wb.contrast(first, wb.capture(tiny_subject, prompts().take([0, 1])), name="moved")


def test_swapping_sides_turns_the_sign_of_a_gap_and_keeps_its_error(tiny_subject):
    acts = wb.capture(tiny_subject, prompts(), layers=[1, 2])
    truth = wb.fit(acts, method="mass_mean", y="label")
    sides = [[shifted(tiny_subject, truth, s) for s in sizes] for sizes in ((3, 3.5), (0, 1, 0.5))]
    one, other = wb.gap(truth, *sides, prompts()), wb.gap(truth, *sides[::-1], prompts())
    assert other.value == pytest.approx(-one.value)
    assert other.standard_error == pytest.approx(one.standard_error)
    assert (one.n, one.unit) == (2, "seed")
    single = wb.gap(truth, sides[0], tiny_subject, prompts())
    assert (single.unit, single.n) == ("item", len(TEXTS))


def test_a_model_has_no_gap_to_itself(tiny_subject):
    acts = wb.capture(tiny_subject, prompts(), layers=[1])
    truth = wb.fit(acts, method="mass_mean", y="label")
    with pytest.raises(WorkbenchError, match=r"the gap 0 of .* over .* is under two"):
        wb.gap(truth, tiny_subject, tiny_subject, prompts())
    with pytest.raises(ValueError, match="no subject"):
        wb.gap(truth, [], tiny_subject, prompts())


def test_one_model_is_not_two_seeds_of_a_gap(tiny_subject):
    """Its error was that of no spread at all, so that any gap was clear."""
    truth = wb.fit(wb.capture(tiny_subject, prompts(), layers=[1]), method="mass_mean", y="label")
    first = shifted(tiny_subject, truth, 3.0)
    seeds = [shifted(tiny_subject, truth, size) for size in (0, 0.5)]
    with pytest.raises(ConfigError, match="stands twice on a side of the gap"):
        wb.gap(truth, [first, first], seeds, prompts())


def test_a_gap_within_its_error_is_refused_unless_forced(tiny_subject):
    acts = wb.capture(tiny_subject, prompts(), layers=[1])
    truth = wb.fit(acts, method="mass_mean", y="label")
    sides = [[shifted(tiny_subject, truth, s) for s in sizes] for sizes in ((0, 2), (0.5, 1))]
    with pytest.raises(WorkbenchError, match=r"under two standard errors.*n = 2 seeds"):
        wb.gap(truth, *sides, prompts())
    forced = wb.gap(truth, *sides, prompts(), force=True)
    assert forced.value == pytest.approx(0.25, rel=1e-3)
    assert forced.standard_error == pytest.approx(np.sqrt(2 / 2 + 0.125 / 2), rel=1e-3)


def test_a_gap_with_another_model_is_refused(tiny_subject, subject_of):
    truth = wb.fit(wb.capture(tiny_subject, prompts(), layers=[1]), method="mass_mean", y="label")
    with pytest.raises(MismatchError, match="model_type"):
        wb.gap(truth, tiny_subject, subject_of("llama"), prompts())


def test_a_projection_readout_equals_the_projection_of_captured_activations(tiny_subject):
    acts = wb.capture(tiny_subject, prompts())
    truth = wb.fit(acts, method="mass_mean", y="label")
    readout = {
        "name": "projection",
        "directions": truth,
        "prompts": prompts(),
        "condition": "topic",
    }
    table = wb.measure(tiny_subject, [readout])
    expected = truth.project(acts)[0].T.ravel()
    np.testing.assert_allclose(table["value"], expected, rtol=1e-4, atol=1e-4)
    assert set(table["condition"]) == {"a", "b"}


def test_a_projection_of_several_layers_names_each_so_that_none_are_averaged(tiny_subject):
    truth = wb.fit(wb.capture(tiny_subject, prompts()), method="mass_mean", y="label")
    some = truth.select([3, 1])
    readout = {"name": "projection", "directions": some, "prompts": prompts(), "condition": "topic"}
    table = wb.measure(tiny_subject, [readout])
    expected = truth.project(wb.capture(tiny_subject, prompts()))[0]
    for layer in (1, 3):
        found = table.loc[table["measure"] == f"label@{layer}", "value"]
        np.testing.assert_allclose(found, expected[layer], rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match="holds no layer 2; it holds layers 3, 1"):
        wb.measure(tiny_subject, [{**readout, "layers": [2]}])
    zero = replace(some, vectors=some.vectors * 0)
    with pytest.raises(ConfigError, match="is zero at one of the layers"):
        wb.measure(tiny_subject, [{**readout, "directions": zero}])
    with pytest.raises(ConfigError, match="one place a prompt"):
        wb.measure(tiny_subject, [{**readout, "directions": replace(some, position="all")}])


def test_a_gap_needs_two_prompts_or_seeds_and_layers_that_are_held(tiny_subject):
    truth = wb.fit(wb.capture(tiny_subject, prompts(), layers=[1]), method="mass_mean", y="label")
    first = shifted(tiny_subject, truth, 3.0)
    with pytest.raises(ConfigError, match="no standard error"):
        wb.gap(truth, first, tiny_subject, prompts().take([0]))
    with pytest.raises(ConfigError, match="holds no layer 2"):
        wb.gap(truth, first, tiny_subject, prompts(), layers=[2])
