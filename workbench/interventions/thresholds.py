"""Further numbers of an edit, such as a cap's floor: by layer, and within what makes sense."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from workbench.interventions.weights import ARRAYS, SUBSPACE, parts_of

Threshold = float | int | Mapping[int, float]
"""One number for every layer, or one by layer."""
_DEFAULTS: dict[str, dict[str, Threshold | str]] = {
    "cap": {"floor": -math.inf, "ceiling": math.inf},
    "affine": {"scale": 1.0, "offset": 0.0},
    SUBSPACE: {"inside": 1.0, "outside": 0.0},
}
_FINITE = ("affine", "replace", "rescale", SUBSPACE)


def thresholds_of(
    edit: str, given: Mapping[str, Threshold | str], layers: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Return every number of an edit at every layer, its defaults where none is given.

    Raises:
        ValueError: a layer without a number, or words.
    """
    numbers = {**_DEFAULTS.get(edit, {}), **given}
    return {name: _by_layer(name, value, layers) for name, value in numbers.items()}


def numbers_taken(edit: str) -> str:
    """Say which numbers an edit takes from who steers or sweeps, with their defaults."""
    defaults = _DEFAULTS.get(edit, {})
    names = [name for name in parts_of(edit) or {} if name not in ARRAYS]
    told = [f"{name} = {defaults[name]}" if name in defaults else name for name in names]
    told += ["one of the two is needed"] if edit == "cap" else []
    return ", ".join(["dose", *told, "keep_norm = false"])


def refuse_no_band(edit: str, given: Mapping[str, object]) -> None:
    """Refuse a cap that was given no side; a side that is switched off by infinity is given.

    Raises:
        ValueError: neither floor nor ceiling.
    """
    if edit == "cap" and not {"floor", "ceiling"} & set(given):
        raise ValueError(
            "a cap without floor or ceiling changes nothing; give one of them, in residual-stream "
            "units: floor=..., or ceiling=..."
        )


def check_numbers(edit: str, rows: Mapping[str, Mapping[int, float]]) -> None:
    """Refuse numbers under which an edit would make no band, or infinite states.

    Raises:
        ValueError: they are told, with their layer.
    """
    if edit == "cap":
        _check_band(rows["floor"], rows["ceiling"])
    elif edit in _FINITE:
        _check_finite(rows)


def _by_layer(name: str, threshold: Threshold | str, layers: Sequence[int]) -> dict[int, float]:
    if isinstance(threshold, str):
        raise ValueError(f"{name} {threshold!r}; expected a number, or one by layer")
    if not isinstance(threshold, Mapping):
        threshold = dict.fromkeys(layers, threshold)
    missing = [layer for layer in layers if layer not in threshold]
    if missing:
        raise ValueError(
            f"no {name} for layer {missing[0]}; given for {', '.join(map(str, threshold))}"
        )
    return {layer: float(threshold[layer]) for layer in layers}


def _check_band(floors: Mapping[int, float], ceilings: Mapping[int, float]) -> None:
    for layer, floor in floors.items():
        ceiling = ceilings[layer]
        if math.isnan(floor) or math.isnan(ceiling):
            raise ValueError(f"layer {layer}: floor {floor}, ceiling {ceiling}; expected numbers")
        if floor == math.inf or ceiling == -math.inf:
            raise ValueError(
                f"layer {layer}: floor {floor}, ceiling {ceiling} would send every token to "
                "infinity; a floor is switched off by -inf, a ceiling by +inf"
            )
        if floor > ceiling:
            raise ValueError(
                f"layer {layer}: floor {floor} above ceiling {ceiling}; swap them, or turn the "
                "direction's sign"
            )


def _check_finite(rows: Mapping[str, Mapping[int, float]]) -> None:
    for name, by_layer in rows.items():
        for layer, value in by_layer.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} {value} at layer {layer}; expected a finite number")
