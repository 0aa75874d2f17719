"""What the doctor says: checks, shortcuts, a few lines of text, and the refusal."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from workbench.errors import DoctorError

TOGETHER = "together"
"""The verdict on all good shortcuts at once, after each has been tried alone."""
NEXT = {
    "tokens": "compare tokenizer(text) with tokenizer.apply_chat_template(...), and mend the "
    "tokenizer's files or its chat template",
    "hooks": "load the model without a wrapper or compiler that calls block.forward by itself",
    "overflow": "load it in a wider format: --dtype bfloat16 or float32",
    "padding": "pass position ids counted from the attention mask, or run prompts one at a time",
    "batch": "look for a module that mixes rows, such as normalization over the batch",
    "cache": "use a transformers version within the range that the package declares",
    "capture": "look for a hook that edits in place, or an engine other than 'hooks'",
    "stored": "capture again, and run `workbench verify` on the store",
    "last block": "check that subject.blocks are all blocks of the decoder, in order",
    "edits": "check that subject.blocks are the modules that the model runs",
    "answers": "use engine='hooks', and say which model it is in a report of this fault",
    "adapter": "check that the adapter is trained and active",
    "merge": "keep the adapter beside the weights, or merge it again in float32",
}
"""What to do about a failed check."""


@dataclass(frozen=True)
class Check:
    """One verdict; ``passed`` is None where a failed check before it left nothing to measure."""

    name: str
    passed: bool | None
    value: float | None
    limit: float | None
    detail: str
    seconds: float

    @property
    def word(self) -> str:
        return {True: "ok", False: "FAILED", None: "not run"}[self.passed]


@dataclass(frozen=True)
class Report:
    """What the doctor found. Values are in standard deviations of the logits, or as said."""

    model: str
    level: str
    """full or quick."""
    dtype: str
    device: str
    checks: tuple[Check, ...]
    shortcuts: tuple[Check, ...] = ()
    note: str = ""
    """Why nothing was checked, where nothing was."""

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def ok(self) -> bool:
        """Whether the model may be used; a failed shortcut does not stand in the way."""
        return not self.failed

    @property
    def disabled(self) -> frozenset[str]:
        """Shortcuts of the engine to switch off for this model."""
        wrong = {check.name for check in self.shortcuts if check.passed is False}
        if TOGETHER in wrong:
            return frozenset(check.name for check in self.shortcuts) - {TOGETHER}
        return frozenset(wrong)

    def text(self) -> str:
        """Write the verdict in a few lines."""
        word = "healthy" if self.ok else "REFUSED"
        seconds = sum(check.seconds for check in (*self.checks, *self.shortcuts))
        lines = [
            f"{self.model} ({self.dtype}, {self.device}): {word}, {self.level}, {seconds:.1f} s"
        ]
        lines += [f"  {_line(check)}" for check in self.checks]
        if self.shortcuts:
            tried = ", ".join(f"{one.name} {_shortcut_word(one)}" for one in self.shortcuts)
            lines.append(f"  shortcuts: {tried}")
        if any(_measured(check) for check in self.checks):
            lines.append(f"  {SCALE}")
        return "\n".join([*lines, f"  {self.note}"] if self.note else lines)

    def table(self) -> Any:
        """Return the checks and shortcuts as a pandas table."""
        import pandas as pd

        rows = [
            {"kind": kind, **dataclasses.asdict(check)}
            for kind, checks in (("check", self.checks), ("shortcut", self.shortcuts))
            for check in checks
        ]
        return pd.DataFrame(rows, columns=["kind", *Check.__dataclass_fields__])

    def to_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints: plain numbers and words, infinities as null."""
        found = dataclasses.asdict(self)
        for check in (*found["checks"], *found["shortcuts"]):
            for name in ("value", "limit"):
                if check[name] is not None and not math.isfinite(check[name]):
                    check[name] = None
        return {**found, "ok": self.ok, "disabled": sorted(self.disabled)}

    def raise_if_failed(self) -> None:
        """Refuse a model that failed a check.

        Raises:
            DoctorError: the reason, and what to do.
        """
        if self.ok:
            return
        names = ", ".join(check.name for check in self.failed)
        first = self.failed[0]
        raise DoctorError(
            f"{self.model} failed {len(self.failed)} of {len(self.checks)} checks ({names}); "
            f"{first.name}: {first.detail}{_measured(first)}. Next: {NEXT[first.name]}"
        )


SCALE = (
    "in parentheses: the largest difference between two ways to one answer, in standard deviations "
    "of the logits\n  (overflow: the largest number as a share of what the format holds); a "
    "shortcut is tried against\n  the plain way, and is switched off where it differs by more than "
    "rounding"
)
"""What the numbers of a verdict are."""


def _line(check: Check) -> str:
    return f"{check.name:<10} {check.word:<7} {check.detail}{_measured(check)}"


def _measured(check: Check) -> str:
    """Write a fraction with its limit; a count says itself in the detail."""
    if check.value is None or check.limit == 0:
        return ""
    limit = "" if check.limit is None else f", limit {check.limit:.2g}"
    return f" ({check.value:.2g}{limit})"


def _shortcut_word(check: Check) -> str:
    if check.passed is None:
        return f"not used ({check.detail})"
    value = "" if check.value is None else f" ({check.value:.1g})"
    return f"{'ok' if check.passed else 'OFF'}{value}"
