"""How far an arm really moves the states that its readouts read, against its nominal dose.

The coordinate of a prompt is its projection on the arm's own unit direction at its last token,
averaged over the window's blocks, read after the edits; an arm's realised shift is the mean over
prompts of that coordinate minus the zero dose's (methods of the social-priors paper, Fig. 67A).
Adding c at three neighboring blocks moves their outputs by about c, 2c and 3c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from workbench.errors import ConfigError
from workbench.interventions.scope import parse_scope
from workbench.readouts.ask import Asked
from workbench.sweeps.design import Cell, Window
from workbench.types import Arm, Read, Request, Subject, ndarray

MOST = 32
"""Prompts whose states are read."""
BYTES = 64 << 20
"""Fewer, where the states of all arms would be larger than this."""
FEWEST_TOKENS = 4
"""Shorter prompts, such as the first token of a text, are not read."""
DIGITS = 6
"""Significant digits of a dose that was aimed, so that it comes out the same when run again."""


def watch(asked: Asked, windows: Sequence[Window], width: int) -> Asked:
    """Read the blocks of all windows at the last token of some prompts too, evenly spread."""
    layers = tuple(sorted({layer for window in windows for layer in window.settings.window}))
    arms = max(len(window.arms) for window in windows)
    most = max(1, min(MOST, BYTES // (arms * len(layers) * width * 4)))
    long = [n for n, request in enumerate(asked.requests) if len(request.ids) >= FEWEST_TOKENS]
    if not long:
        return asked
    chosen = [long[n] for n in np.unique(np.linspace(0, len(long) - 1, most).astype(int))]
    return asked.watching(Read("resid_post", layers, "last"), chosen)


def realised(
    window: Window, states: Sequence[Float[ndarray, "n l d"] | None], layers: Sequence[int]
) -> list[float]:
    """Return each cell's realised shift; NaN where nothing was read.

    A scope that edits new tokens alone leaves every prompt's last token as it is: its shift is not
    known, and not zero.

    Args:
        window: whose cells they are.
        states: by arm, at ``layers``.
        layers: those that were read.
    """
    if parse_scope(window.settings.scope).after_prompt:
        return [float("nan")] * len(window.cells)
    rows = [list(layers).index(layer) for layer in window.settings.window if layer in layers]
    zero = states[window.rows[_zero(window)]]
    found = []
    for cell, row in zip(window.cells, window.rows, strict=True):
        own = states[row]
        if own is None or zero is None:
            found.append(float("nan"))
            continue
        moved = own[:, rows].astype(np.float64) - zero[:, rows]
        found.append(float(np.einsum("nld,ld->nl", moved, _axes(cell, window)).mean()))
    return found


def _zero(window: Window) -> int:
    return next(n for n, cell in enumerate(window.cells) if cell.dose == 0)


def _axes(cell: Cell, window: Window) -> Float[ndarray, "l d"]:
    by_layer = {edit.layer: edit.v for edit in cell.arm}
    return np.stack([by_layer[layer] for layer in window.settings.window]).astype(np.float64)


def aim(subject: Subject, asked: Asked, window: Window) -> Window:
    """Lower the doses of later blocks by what the earlier ones already shift there.

    Each block's output then shifts by the nominal dose on the average prompt, not by the sum of all
    doses up to it. Found block by block, on the prompts that `watch` chose.

    Raises:
        ConfigError: no prompt is long enough to be read, or the scope covers no prompt.
    """
    layers = sorted(window.settings.window)
    if len(layers) < 2:
        return window
    if parse_scope(window.settings.scope).after_prompt:
        raise ConfigError(
            f"per_layer residual_target aims by prompts, and scope {window.settings.scope!r} "
            "covers no token of them; use accumulate"
        )
    if not asked.watched:
        raise ConfigError(
            f"per_layer residual_target reads prompts of {FEWEST_TOKENS} tokens or more, and the "
            "readouts have none; use accumulate"
        )
    requests = [
        replace(asked.requests[n], reads=(Read("resid_post", tuple(layers), "last"),))
        for n in asked.watched
    ]
    arms = [tuple(sorted(arm, key=lambda edit: edit.layer)) for arm in window.arms]
    for place in range(1, len(layers)):
        shifts = _shifts(subject, requests, arms, place)
        arms = [_lowered(arm, place, shift) for arm, shift in zip(arms, shifts, strict=True)]
    return replace(window, arms=arms)


def _shifts(
    subject: Subject, requests: Sequence[Request], arms: Sequence[Arm], place: int
) -> list[float]:
    """Return how far the edits before ``place`` move that block along each arm's direction."""
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    before: list[Arm] = [(), *(arm[:place] for arm in arms)]
    values = subject.runner.answer(subject, requests, before).values
    states = np.array([[np.asarray(one[0])[place] for one in arm] for arm in values], np.float64)
    moved = (states[1:] - states[0]).mean(axis=1)
    return [float(row @ arm[place].v) for row, arm in zip(moved, arms, strict=True)]


def _lowered(arm: Arm, place: int, shift: float) -> Arm:
    edit = arm[place]
    if not any(one.dose for one in arm):
        return arm
    dose = float(f"{edit.dose - shift:.{DIGITS}g}")
    return (*arm[:place], replace(edit, dose=dose), *arm[place + 1 :])
