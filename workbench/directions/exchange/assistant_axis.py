"""Files of the Assistant Axis (Lu et al. 2026): axis, roles, traits, and the released caps.

All of them count blocks from 0 and hold what the block puts out, averaged over the response. The
axis points toward the Assistant. Roles and the default are means; traits and the axis are
differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.directions.container import Directions
from workbench.directions.exchange.persona import tensor_of
from workbench.directions.exchange.pickled import load_pickled
from workbench.directions.exchange.wanted import Wanted, float32
from workbench.errors import ConfigError, FormatError, MismatchError, unknown
from workbench.types import ndarray

FORMAT = "assistant-axis"
CAPPING = "capping-config"
POSITION = "mean:assistant"
KINDS = {
    **{"assistant_axis": "difference", "axis": "difference", "trait_vectors": "difference"},
    **{"default_vector": "mean", "default": "mean", "role_vectors": "mean"},
    **{"pos_3": "mean", "pos_2": "mean", "mean": "mean"},
}
"""By the name of a file or its folder, or by the ``type`` that a file states."""
NAMES = {"assistant_axis": "assistant", "axis": "assistant", "default_vector": "default"}
CAPS = "caps/"


def read_assistant_axis(wanted: Wanted) -> Directions:
    """Read an axis, a role, a trait or the default; or a folder of them, named by file.

    Raises:
        FormatError: no tensor of (layers, width), or a pickle that runs code.
        MismatchError: another number of layers or width, or means and differences in one folder.
        ConfigError: nothing says whether it is a mean or a difference.
    """
    folder = wanted.path.is_dir()
    paths = sorted(wanted.path.glob("*.pt")) if folder else [wanted.path]
    if not paths:
        raise FormatError(f"{wanted.path} holds no .pt file")
    parts = [_read_one(path, wanted) for path in paths]
    kinds = {kind for _, kind, _ in parts}
    if len(kinds) > 1:
        raise MismatchError(
            f"{wanted.path} holds means and differences; import files of one kind at a time"
        )
    names = [NAMES.get(path.stem, path.stem) for path in paths]
    if wanted.name is not None and not folder:
        names = [wanted.name]
    return wanted.build(
        names,
        range(wanted.model.n_layers),
        np.stack([vectors for vectors, _, _ in parts]),
        format=FORMAT,
        position=POSITION,
        kind=kinds.pop(),
        info={} if folder else parts[0][2],
    )


def _read_one(path: Path, wanted: Wanted) -> tuple[ndarray, str, dict[str, Any]]:
    """Return (vectors, kind, what else the file says)."""
    content = load_pickled(path)
    told: dict[str, Any] = {}
    stated = None
    if isinstance(content, Mapping):
        key = "axis" if "axis" in content else "vector"
        stated = "axis" if key == "axis" else content.get("type")
        told = {str(k): _plain(v) for k, v in content.items() if k != key}
        content = content.get(key)
    rows = float32(tensor_of(content, wanted))
    wanted.refuse_width(path.name, rows.shape[1])
    if len(rows) != wanted.model.n_layers:
        raise MismatchError(
            f"{path} has {len(rows)} rows, but {wanted.model.key} has {wanted.model.n_layers} "
            "blocks; take a file that was made with this model"
        )
    kind = next((KINDS[k] for k in (stated, path.stem, path.parent.name) if k in KINDS), None)
    if kind is None and wanted.kind is None:
        raise ConfigError(
            f"{path} does not say what it is; give kind='mean' (a role: mean activations) or "
            "kind='difference' (a trait or an axis)"
        )
    return rows, kind or str(wanted.kind), told


def _plain(value: Any) -> Any:
    import torch

    return float32(value) if isinstance(value, torch.Tensor) else value


# --- the released caps ----------------------------------------------------------------------------


def read_capping(wanted: Wanted) -> Directions:
    """Read ``capping_config.pt``: a vector for each block and, in ``info``, all experiments' caps.

    The released vectors are role minus default, so that they point away from the Assistant, and a
    cap is the largest coordinate along them: a ceiling. ``released_caps`` gives one experiment's.

    Raises:
        FormatError: not of that form, or a pickle that runs code.
        MismatchError: another width, or a block that the model does not have.
    """
    content = load_pickled(wanted.path)
    try:
        entries = {name: (int(e["layer"]), e["vector"]) for name, e in content["vectors"].items()}
        experiments = {
            str(one["id"]): [(i["vector"], float(i["cap"])) for i in one["interventions"]]
            for one in content["experiments"]
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(
            f"{wanted.path}: {type(error).__name__} at {error}; 'vectors' with layer and vector, "
            "and 'experiments' with id and interventions, expected"
        ) from None
    names, layers, vectors = _arrange(wanted, entries)
    caps = {
        f"{CAPS}{id}": _ceilings(wanted, id, caps, entries, layers)
        for id, caps in experiments.items()
    }
    return wanted.build(
        names,
        layers,
        vectors,
        format=CAPPING,
        edit="cap",
        position=POSITION,
        info={**caps, "experiments": list(experiments)},
    )


def _arrange(
    wanted: Wanted, entries: Mapping[str, tuple[int, Any]]
) -> tuple[list[str], list[int], ndarray]:
    """Return names (what follows the last "/"), layers, and vectors (k, l, d)."""
    by_name: dict[str, dict[int, ndarray]] = {}
    for full, (layer, vector) in entries.items():
        values = float32(vector)
        if values.ndim != 1:
            raise FormatError(f"{wanted.path}: {full} has shape {values.shape}; a vector expected")
        wanted.refuse_width(full, len(values))
        name = full.rpartition("/")[2]
        if layer in by_name.setdefault(name, {}):
            raise FormatError(f"{wanted.path}: {name} stands twice for layer {layer}")
        by_name[name][layer] = values
    if not by_name:
        raise FormatError(f"{wanted.path} holds no vectors")
    layers = sorted(next(iter(by_name.values())))
    for name, found in by_name.items():
        if sorted(found) != layers:
            lacking = sorted(set(layers) ^ set(found))[0]
            raise FormatError(f"{wanted.path}: {name} and another name differ in layer {lacking}")
    names = [wanted.name] if wanted.name and len(by_name) == 1 else list(by_name)
    stacked = np.stack([np.stack([found[layer] for layer in layers]) for found in by_name.values()])
    return names, layers, stacked


def _ceilings(
    wanted: Wanted,
    id: str,
    caps: Sequence[tuple[str, float]],
    entries: Mapping[str, tuple[int, Any]],
    layers: list[int],
) -> ndarray:
    """Return (l,) float64 ceilings of one experiment, +inf where it caps nothing."""
    found = np.full(len(layers), np.inf)
    for name, cap in caps:
        if name not in entries:
            raise FormatError(f"{wanted.path}: experiment {id} names {name}, which is no vector")
        row = layers.index(entries[name][0])
        if np.isfinite(found[row]) or not np.isfinite(cap):
            raise FormatError(f"{wanted.path}: experiment {id} has no single cap for {name}")
        found[row] = cap
    return found


def released_caps(directions: Directions, experiment: str) -> dict[int, float]:
    """Return one released experiment's ceiling by block, as ``Intervention.cap`` takes it.

    Example: ``ceiling = released_caps(found, "layers_46:54-p0.25")``, then
    ``wb.Intervention.cap(found, layers=list(ceiling), ceiling=ceiling)``.

    Raises:
        UnknownNameError: there is no such experiment.
    """
    caps = directions.info.get(CAPS + experiment)
    if caps is None:
        known = [key.removeprefix(CAPS) for key in directions.info if key.startswith(CAPS)]
        raise unknown("experiment", experiment, known)
    pairs = zip(directions.layers, np.asarray(caps), strict=True)
    return {layer: float(cap) for layer, cap in pairs if np.isfinite(cap)}
