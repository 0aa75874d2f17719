"""The doctor on models that are well: it passes, costs little, and leaves nothing behind."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from workbench.engine import doctor as doctor_module
from workbench.engine.doctor import doctor, quick_check, use_verdict
from workbench.engine.doctor_checks import overflow
from workbench.engine.doctor_probe import LIMITS, Probe, limit_of
from workbench.engine.plan import SHORTCUTS
from workbench.errors import DoctorError, WorkbenchError

pytestmark = pytest.mark.thorough

FULL = ["tokens", "hooks", "overflow", "padding", "batch", "cache", "capture", "last block"]
FULL = [*FULL, "edits"]
QUICK = ["tokens", "hooks", "overflow", "cache", "last block", "edits"]


def names(checks):
    return [check.name for check in checks]


def forwards_of(subject, measure):
    """Shapes of the token ids of every forward of the model, and what ``measure`` returned."""
    shapes = []
    handle = subject.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    try:
        return shapes, measure()
    finally:
        handle.remove()


def test_a_healthy_model_of_every_family_passes(any_family, subject_of):
    report = doctor(subject_of(any_family))
    assert report.ok, report.text()
    assert set(FULL) | {"answers"} <= set(names(report.checks))
    assert all(check.passed for check in report.checks)
    assert not report.disabled
    report.raise_if_failed()
    tried = {check.name: check.passed for check in report.shortcuts}
    assert set(tried) == {*SHORTCUTS, "together"}
    hybrid = any_family in ("qwen3_next", "qwen3_5_text")
    used = {"stop", "together"} if hybrid else set(tried)
    assert tried == {name: True if name in used else None for name in tried}
    assert ("not used" in report.text()) is hybrid


def test_the_quick_level_passes_on_every_family(any_family, subject_of):
    report = doctor(subject_of(any_family), level="quick")
    assert report.ok, report.text()
    assert names(report.checks) == QUICK


def test_an_adapter_is_tried_on_off_and_merged(make_subject, tiny_adapter, tmp_path):
    from workbench.models import read_checkpoint

    plain = make_subject("qwen3")
    base = plain.ref.base
    subject = read_checkpoint(base, adapter=str(tiny_adapter(tmp_path, base)), dtype="float32")
    subject.runner = plain.runner
    before = {name: weight.data_ptr() for name, weight in subject.model.named_parameters()}
    values = {name: weight.clone() for name, weight in subject.model.named_parameters()}
    report = doctor(subject)
    by_name = {check.name: check for check in report.checks}
    assert report.ok, report.text()
    assert by_name["adapter"].value > 0.1
    assert by_name["merge"].value < 1e-5
    for name, weight in subject.model.named_parameters():
        assert weight.data_ptr() == before[name]
        assert torch.equal(weight, values[name])
    assert not any(getattr(module, "merged", False) for module in subject.model.modules())


@pytest.mark.parametrize(
    ("dtype", "kind"), [("bfloat16", "qwen3"), ("bfloat16", "gemma3_text"), ("float16", "gpt2")]
)
def test_narrow_formats_pass_within_their_own_limits(dtype, kind, subject_of):
    from workbench.models import read_checkpoint

    wide = subject_of(kind)
    subject = read_checkpoint(wide.ref.base, dtype=dtype, device="cpu")
    subject.runner = wide.runner
    report = doctor(subject)
    assert report.ok, report.text()
    padding = next(check for check in report.checks if check.name == "padding")
    assert padding.limit == LIMITS[getattr(torch, dtype)]
    assert padding.value < padding.limit / 2
    batch = next(check for check in report.checks if check.name == "batch")
    assert 0 <= batch.value < batch.limit / 2


def test_quick_runs_two_forwards_of_at_most_sixteen_tokens(tiny_subject):
    shapes, report = forwards_of(tiny_subject, lambda: doctor(tiny_subject, level="quick"))
    assert report.ok
    assert len(shapes) == 2
    assert all(rows * tokens <= 16 for rows, tokens in shapes)


@pytest.mark.parametrize("level", ["full", "quick"])
@pytest.mark.parametrize("kind", ["gemma3_text", "gpt2"])
def test_nothing_stays_on_the_model(level, kind, make_subject, hook_count):
    subject = make_subject(kind)
    doctor(subject, level="quick")  # transformers may install hooks of its own on the first call
    hooks = hook_count(subject.model)
    weights = [weight.clone() for weight in subject.model.parameters()]
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        before = subject.model(ids).logits
        doctor(subject, level=level)
        after = subject.model(ids).logits
    assert hook_count(subject.model) == hooks
    assert torch.equal(before, after)
    assert all(map(torch.equal, weights, subject.model.parameters()))
    assert "generate" not in subject.model.__dict__


def test_stored_activations_must_be_the_captured_ones(tiny_subject):
    captured = np.random.default_rng(0).standard_normal((4, 3, 32)).astype(np.float32)
    assert doctor(tiny_subject, level="quick", stored=(captured, captured.copy())).ok
    changed = captured.copy()
    changed[2, 1, 5] = np.nextafter(changed[2, 1, 5], np.float32(9))
    for other in (changed, captured[:3]):
        report = doctor(tiny_subject, level="quick", stored=(captured, other))
        assert names(report.failed) == ["stored"]


def test_a_report_is_text_table_and_json(tiny_subject):
    report = doctor(tiny_subject)
    lines = report.text().splitlines()
    assert "healthy" in lines[0]
    assert len(lines) <= 15
    assert list(report.table()["name"])[:3] == FULL[:3]
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found["ok"] is True
    assert found["checks"][0]["name"] == "tokens"
    assert all(math.isfinite(check["seconds"]) for check in found["checks"])


def test_the_scale_is_that_of_the_logits(tiny_subject):
    probe = Probe(tiny_subject)
    logits = probe.alone[0].logits
    assert 0.3 < probe.scale < 5
    assert probe.apart(logits, logits + probe.scale) == pytest.approx(1, rel=1e-4)
    assert probe.apart(logits, torch.full_like(logits, float("nan"))) == math.inf


def test_rounding_may_go_further_where_tokens_are_routed_or_states_chunked(subject_of):
    def limit(kind, dtype):
        subject = subject_of(kind)
        weights = SimpleNamespace(weight=torch.zeros(1, dtype=dtype))
        model = SimpleNamespace(config=subject.model.config, get_input_embeddings=lambda: weights)
        return limit_of(dataclasses.replace(subject, model=model))

    assert limit("qwen3", torch.float32) == LIMITS[torch.float32]
    assert limit("qwen3_moe", torch.float32) == LIMITS[torch.float32]
    assert limit("qwen3_moe", torch.bfloat16) == 2 * LIMITS[torch.bfloat16]
    assert limit("mixtral", torch.float16) == 2 * LIMITS[torch.float16]
    assert limit("qwen3_5_text", torch.float32) == 10 * LIMITS[torch.float32]
    assert limit("qwen3", torch.float8_e4m3fn) == LIMITS[torch.bfloat16]


def test_wrong_calls_say_what_to_do(make_subject, make_edit):
    subject = make_subject()
    with pytest.raises(ValueError, match="full or quick"):
        doctor(subject, level="slow")
    with (
        pytest.raises(WorkbenchError, match="leave the with-block"),
        subject.runner.intervene(subject, [(make_edit("add", 1, 1.0),)]),
    ):
        doctor(subject)
    subject.runner = None
    with pytest.raises(ValueError, match="no engine"):
        doctor(subject)


def test_a_remote_model_is_not_run(make_subject):
    subject = make_subject()

    class Remote(type(subject.runner)):
        remote = True

    subject.runner = Remote()
    shapes, report = forwards_of(subject, lambda: quick_check(subject))
    assert shapes == []
    assert report.ok
    assert "elsewhere" in report.text()


def test_a_good_verdict_is_kept_by_fingerprint_and_versions(make_subject, tmp_path, monkeypatch):
    subject, folder = make_subject(), tmp_path / "verdicts"
    first = quick_check(subject, folder)
    assert first.ok
    assert len(list(folder.iterdir())) == 1
    shapes, again = forwards_of(subject, lambda: quick_check(subject, folder))
    assert shapes == []
    assert again == first
    other = make_subject("qwen3", seed=1)
    shapes, _ = forwards_of(other, lambda: quick_check(other, folder))
    assert len(shapes) == 2
    monkeypatch.setattr(doctor_module.importlib.metadata, "version", lambda _name: "0.0")
    shapes, _ = forwards_of(subject, lambda: quick_check(subject, folder))
    assert len(shapes) == 2
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("content", ["", "{}", '{"key": 1}', "null", '{"report": {"ok": true}}'])
def test_a_damaged_verdict_is_made_again(content, make_subject, tmp_path):
    subject = make_subject()
    quick_check(subject, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    shapes, report = forwards_of(subject, lambda: quick_check(subject, tmp_path))
    assert len(shapes) == 2
    assert report.ok
    assert json.loads(path.read_text())["report"]["ok"]


def test_another_models_verdict_under_this_name_does_not_count(make_subject, tmp_path):
    subject = make_subject()
    quick_check(subject, tmp_path)
    (path,) = tmp_path.iterdir()
    content = json.loads(path.read_text())
    content["key"]["fingerprint"] = "0" * 16
    path.write_text(json.dumps(content))
    shapes, _ = forwards_of(subject, lambda: quick_check(subject, tmp_path))
    assert len(shapes) == 2


def test_a_bad_verdict_is_not_kept(make_subject, tmp_path):
    subject = make_subject()
    subject.blocks = {**subject.blocks, 2: torch.nn.Identity()}
    assert not quick_check(subject, tmp_path).ok
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_does_not_stop_the_check(make_subject, tmp_path):
    place = tmp_path / "file"
    place.write_text("not a folder")
    assert quick_check(make_subject(), place / "verdicts").ok


def test_a_refusal_names_the_reason_and_the_next_step(make_subject):
    subject = make_subject()
    subject.blocks = {**subject.blocks, 2: torch.nn.Identity()}
    report = doctor(subject, level="quick")
    assert "REFUSED" in report.text()
    for refuse in (report.raise_if_failed, lambda: use_verdict(subject, report)):
        with pytest.raises(DoctorError, match=r"hooks: hooks on block 2 .* Next: load the model"):
            refuse()


@pytest.mark.parametrize(
    ("peak", "words"), [(0.7463, "0.746 at"), (2.2e-39, "2.2e-39 at"), (12345.4, "12,345 at")]
)
def test_the_largest_activation_is_told_in_digits_that_say_something(peak, words):
    found = overflow({1: peak / 2, 2: peak}, 0.1, 3.4e38, "float32")
    assert f"largest |activation| {words} block 2" in found.detail


def test_the_numbers_of_a_verdict_are_explained(tiny_subject):
    text = doctor(tiny_subject, level="quick").text()
    assert "in standard deviations of the logits" in text


@pytest.mark.real
def test_smollm2_is_healthy(real_subject):
    report = doctor(real_subject)
    assert report.ok, report.text()
    assert not report.disabled, report.text()
    quick = doctor(real_subject, level="quick")
    assert quick.ok, quick.text()


@pytest.mark.real
def test_smollm2_is_healthy_in_bfloat16():
    from workbench.engine.hooks import HookRunner
    from workbench.models import read_checkpoint

    subject = read_checkpoint("smollm2", dtype="bfloat16", device="cpu")
    subject.runner = HookRunner()
    report = doctor(subject)
    assert report.ok, report.text()
    padding = next(check for check in report.checks if check.name == "padding")
    assert 1e-3 < padding.value < 0.5
