"""Whether a loaded model does what every number here rests on; a verdict in a few lines."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from workbench.engine.apply import is_edited
from workbench.engine.doctor_adapter import check_adapter, check_merge, has_adapter
from workbench.engine.doctor_checks import PLAIN, check_stored, check_tokens
from workbench.engine.doctor_probe import Found, Probe
from workbench.engine.doctor_quick import CHECKS, glance
from workbench.engine.doctor_report import TOGETHER, Check, Report
from workbench.engine.doctor_shortcuts import (
    check_answers,
    plain_answers,
    shortcuts_of,
    try_shortcut,
    why_unused,
    with_shortcuts,
)
from workbench.errors import WorkbenchError
from workbench.files import make_folder, write_bytes
from workbench.plain import as_json
from workbench.types import Subject, ndarray

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "peft", "interp-workbench")
BROKEN = (WorkbenchError, RuntimeError, ValueError, TypeError, LookupError, AttributeError)
"""What a check may meet in a model that does not work; it fails then, with the message."""


def doctor(
    subject: Subject,
    *,
    level: str = "full",
    shortcuts: Collection[str] | None = None,
    stored: tuple[ndarray, ndarray] | None = None,
) -> Report:
    """Check a model with short prompts of its own; nothing of the model is changed.

    Args:
        subject: the model, with its engine.
        level: "quick" is two forwards of at most sixteen tokens and the tokenizer.
        shortcuts: those of the engine to try; all that it uses where left out.
        stored: activations as captured and as a store gave them back, to be compared as well.

    Returns:
        The verdict. `Report.raise_if_failed` refuses; `use_verdict` switches shortcuts off.

    Raises:
        ValueError: another level, or a subject without an engine.
        WorkbenchError: called inside ``intervene``.
    """
    if level not in ("full", "quick"):
        raise ValueError(f"level = {level!r}; give full or quick")
    if subject.runner is None:
        raise ValueError("the subject has no engine; load it with workbench.load")
    if is_edited(subject):
        raise WorkbenchError("doctor was called inside intervene; leave the with-block first")
    if getattr(subject.runner, "remote", False):
        return _report(subject, level, (), note="not checked: the model runs elsewhere")
    checks = [_timed("tokens", lambda: check_tokens(subject))]
    if stored is not None:
        checks.append(_timed("stored", lambda: check_stored(*stored)))
    if level == "quick":
        return _report(subject, level, [*checks, *_quick(subject)])
    probe = Probe(subject)
    checks += _full(probe)
    tried: list[Check] = []
    if all(check.passed is not False for check in checks if check.name in _SHORTCUTS_NEED):
        tried = list(_tried(probe, shortcuts))
    return _report(subject, level, checks, tried)


def quick_check(subject: Subject, cache: Path | None = None) -> Report:
    """Run the cheap checks, or return a good verdict that lies in the folder ``cache``.

    A verdict counts for the same weights, tokenizer, template, number format, kind of device and
    package versions. Bad ones are not kept, so that a repaired model is checked again; a folder
    that cannot be written only costs the next check its time.
    """
    if cache is None or getattr(subject.runner, "remote", False):
        return doctor(subject, level="quick")
    key = _key(subject)
    path = cache / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
    kept = _kept(path, key)
    if kept is not None:
        return kept
    report = doctor(subject, level="quick")
    if report.ok:
        try:
            make_folder(cache)
            write_bytes(path, as_json({"key": key, "report": report.to_dict()}).encode())
        except WorkbenchError as error:
            logger.info("the verdict on %s is not kept: %s", subject.ref.key, error)
    return report


def use_verdict(subject: Subject, report: Report) -> None:
    """Switch off, in the subject's engine, the shortcuts that failed.

    Raises:
        DoctorError: the model itself failed.
    """
    report.raise_if_failed()
    if report.disabled and subject.runner is not None:
        kept = shortcuts_of(subject.runner) - report.disabled
        subject.runner = with_shortcuts(subject.runner, kept)
        logger.info("%s runs without %s", subject.ref.key, ", ".join(sorted(report.disabled)))


_HOOKED = ("overflow", "capture", "last block", "edits", "answers", "adapter", "merge")
_SHORTCUTS_NEED = ("hooks", "overflow", "edits", "answers")


def _full(probe: Probe) -> Iterator[Check]:
    checks: dict[str, Callable[[Probe], Found]] = {**PLAIN, "answers": check_answers}
    if has_adapter(probe.subject.model):
        checks |= {"adapter": check_adapter, "merge": check_merge}
    done: dict[str, Check] = {}
    for name, measure in checks.items():
        reason = _why_not(name, done)
        if reason:
            done[name] = Check(name, None, None, None, reason, 0.0)
        else:
            done[name] = _timed(name, lambda measure=measure: measure(probe))  # type: ignore[misc]
        yield done[name]


def _why_not(name: str, done: dict[str, Check]) -> str:
    """Say which fault leaves a check nothing to measure."""
    failed = {one for one, check in done.items() if check.passed is False}
    if "hooks" in failed and name in _HOOKED:
        return "hooks do not fire"
    if "overflow" in failed and not math.isfinite(done["overflow"].value or 0.0):
        return "numbers are not finite"
    if "edits" in failed and name == "answers":
        return "edits do not act"
    return ""


def _quick(subject: Subject) -> Iterator[Check]:
    start = time.perf_counter()
    try:
        seen = glance(subject)
    except BROKEN as error:
        yield Check("hooks", False, None, None, _first_line(error), time.perf_counter() - start)
        return
    seconds = time.perf_counter() - start
    done: dict[str, Check] = {}
    for name, read in CHECKS.items():
        reason = _why_not(name, done) or ("hooks do not fire" if _unseen(name, seen) else "")
        if reason:
            done[name] = Check(name, None, None, None, reason, 0.0)
        else:
            done[name] = _timed(name, lambda read=read: read(seen))  # type: ignore[misc]
        yield dataclasses.replace(done[name], seconds=seconds if name == "hooks" else 0.0)


def _unseen(name: str, seen: Any) -> bool:
    return name not in ("hooks", "overflow") and seen.second is None


def _tried(probe: Probe, shortcuts: Collection[str] | None) -> Iterator[Check]:
    names = shortcuts_of(probe.runner) if shortcuts is None else frozenset(shortcuts)
    if not names:
        return
    plain = plain_answers(probe)
    good: set[str] = set()
    for name in sorted(names):
        unused = why_unused(probe, {name})
        if unused:
            yield Check(name, None, None, None, unused, 0.0)
            continue
        check = _timed(name, lambda name=name: try_shortcut(probe, {name}, plain))  # type: ignore[misc]
        good |= {name} if check.passed else set()
        yield check
    if good:
        yield _timed(TOGETHER, lambda: try_shortcut(probe, good, plain))


def _timed(name: str, measure: Callable[[], Found]) -> Check:
    start = time.perf_counter()
    try:
        found = measure()
    except BROKEN as error:
        found = Found(False, None, None, _first_line(error))
    seconds = time.perf_counter() - start
    return Check(name, found.passed, found.value, found.limit, found.detail, seconds)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    words = lines[0] if lines else type(error).__name__
    return words if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {words}"


def _report(
    subject: Subject,
    level: str,
    checks: Collection[Check],
    shortcuts: Collection[Check] = (),
    note: str = "",
) -> Report:
    device = str(subject.model.get_input_embeddings().weight.device)
    return Report(
        subject.ref.key, level, subject.ref.dtype, device, tuple(checks), tuple(shortcuts), note
    )


def _key(subject: Subject) -> dict[str, str]:
    template = str(getattr(subject.tokenizer, "chat_template", None))
    return {
        "fingerprint": subject.fingerprint,
        "tokenizer": subject.stamp.tokenizer,
        "template": hashlib.sha256(template.encode()).hexdigest()[:16],
        "dtype": subject.ref.dtype,
        "device": subject.model.get_input_embeddings().weight.device.type,
        "engine": getattr(subject.runner, "name", ""),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _kept(path: Path, key: dict[str, str]) -> Report | None:
    """Return a verdict that was written for this key; None where there is none to be trusted."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["key"] != key or not content["report"]["ok"]:
            return None
        fields = {name: content["report"][name] for name in Report.__dataclass_fields__}
        for kind in ("checks", "shortcuts"):
            fields[kind] = tuple(Check(**check) for check in fields[kind])
        return Report(**fields)
    except (OSError, ValueError, KeyError, TypeError):
        return None
