"""An intervention as one portable safetensors file: vectors and doses in raw units, nothing else.

What is saved is what an engine carries out, so a file needs neither the directions nor the gap that
it was made with, and a few lines of torch reproduce it (`workbench.interventions.snippet`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from workbench import __version__
from workbench.errors import ConfigError, FormatError
from workbench.files import make_folder, unreadable, write_bytes
from workbench.interventions.dose import Gap
from workbench.interventions.intervention import Intervention
from workbench.interventions.keep_norm import KeepNorm
from workbench.interventions.scope import check_scope
from workbench.interventions.weights import refuse_other_parts
from workbench.plain import as_json
from workbench.registry import EDITS
from workbench.types import Arm, LayerEdit, ModelStamp, ndarray

FORMAT = "interp-workbench/intervention"
VERSION = 1
LAYER_CONVENTION = "0-based block index; the residual stream after that block"


@dataclass(frozen=True)
class SavedIntervention:
    """Edits in raw units as a file holds them, in the order in which they act."""

    edits: Arm
    model: ModelStamp
    name: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    """How it was made: nominal doses, units, directions."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The blocks that are edited."""
        return tuple(sorted({edit.layer for edit in self.edits}))

    def arm(self, stamp: ModelStamp | None = None, *, gap: Gap | None = None) -> Arm:
        """Return the edits; a file is in raw units already, so that a gap changes nothing.

        Raises:
            MismatchError: the intervention was made for another kind of model.
        """
        del gap
        if stamp is not None:
            self.model.refuse_other(stamp, f"intervention {self.name!r}")
        return self.edits


def save_intervention(
    interventions: Intervention | Sequence[Intervention],
    path: str | Path,
    *,
    gap: Gap | None = None,
    name: str | None = None,
) -> Path:
    """Write interventions that act together into one file, whole or not at all.

    Args:
        interventions: one, or several in the order in which they act within a block.
        path: such as ``honest.safetensors``; a file already there is replaced.
        gap: the natural gap, for doses in gap units.
        name: of the whole; by default the interventions' own names.

    Raises:
        ConfigError: none is given, or a unit needs a norm or gap that is missing.
        MismatchError: they were made for different models.
        WorkbenchError: the disk is full or the place cannot be written.
    """
    several = [interventions] if isinstance(interventions, Intervention) else list(interventions)
    if not several:
        raise ConfigError("no intervention to save; give at least one")
    stamp = several[0].directions.model
    edits = [edit for one in several for edit in one.arm(stamp, gap=gap)]
    tensors, described = _laid_out(edits)
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "name": name if name is not None else " + ".join(one.name for one in several),
        "layer_convention": LAYER_CONVENTION,
        "model": json.dumps(asdict(stamp)),
        "edits": as_json(described),
        "info": as_json({"made_of": [_told(one) for one in several]}, sort_keys=True),
        "created_by": f"interp-workbench {__version__}",
        "sha256": _digest(tensors),
    }
    target = Path(path)
    make_folder(target.parent)
    write_bytes(target, save(tensors, header))
    return target


def load_intervention(path: str | Path) -> SavedIntervention:
    """Read a file of `save_intervention`; ``wb.intervene`` and ``workbench show`` take the answer.

    Raises:
        ConfigError: there is no such file.
        FormatError: it is damaged, of another format or version, or a key is wrong.
        UnknownNameError: an edit that is registered by a plug-in which is not loaded.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no file {str(path)!r}; give the path of an intervention file")
    try:
        with safe_open(path, framework="numpy") as file:
            header = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise unreadable(path, ".safetensors", error, "copy or save it again") from None
    _check_header(header, tensors, path)
    try:
        model = ModelStamp(**json.loads(header["model"]))
        edits = tuple(_edits(json.loads(header["edits"]), tensors))
        info = json.loads(header["info"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: {error!r} in its header; save it again") from None
    return SavedIntervention(edits, model, header.get("name", ""), info)


def is_intervention(path: Path) -> bool:
    """Say whether a file's header calls it an intervention; damage is for the reader to report."""
    try:
        with safe_open(path, framework="numpy") as file:
            return bool((file.metadata() or {}).get("format") == FORMAT)
    except (SafetensorError, OSError, ValueError):
        return False


def _laid_out(edits: Sequence[LayerEdit]) -> tuple[dict[str, ndarray], list[dict[str, Any]]]:
    tensors: dict[str, ndarray] = {}
    described = []
    for number, edit in enumerate(edits):
        arrays = {"v": edit.v, **edit.weights}
        tensors |= {f"{number}.{k}": np.ascontiguousarray(a, np.float32) for k, a in arrays.items()}
        described.append(
            {
                "layer": edit.layer, "edit": edit.name, "dose": edit.dose, "scope": edit.scope,
                "keep_norm": isinstance(edit.edit, KeepNorm), "arrays": sorted(arrays),
                "rows": {name: _number(value) for name, value in edit.rows.items()},
            }
        )  # fmt: skip
    return tensors, described


def _number(value: float) -> float | str:
    """JSON has no infinity."""
    return value if np.isfinite(value) else str(value)


def _edits(
    described: Sequence[Mapping[str, Any]], tensors: Mapping[str, ndarray]
) -> Iterator[LayerEdit]:
    for number, one in enumerate(described):
        edit = EDITS.create(one["edit"])
        check_scope(one["scope"])
        weights = {n: tensors[f"{number}.{n}"] for n in one["arrays"] if n != "v"}
        rows = {name: float(value) for name, value in one["rows"].items()}
        layer = int(one["layer"])
        refuse_other_parts(one["edit"], rows, {layer: weights} if weights else {})
        yield LayerEdit(
            layer=layer,
            name=one["edit"],
            edit=KeepNorm(edit) if one["keep_norm"] else edit,
            v=tensors[f"{number}.v"],
            dose=float(one["dose"]),
            scope=one["scope"],
            rows=rows,
            weights=weights,
        )


def _told(one: Intervention) -> dict[str, Any]:
    """What a reader wants to know of an intervention beside its raw numbers."""
    return {
        "name": one.name, "directions": list(one.directions.names), "layers": list(one.layers),
        "dose": one.dose, "unit": one.unit, "site": one.directions.site,
    }  # fmt: skip


def _check_header(header: Mapping[str, str], tensors: Mapping[str, ndarray], path: Path) -> None:
    expected = {"format": FORMAT, "version": str(VERSION), "layer_convention": LAYER_CONVENTION}
    for key, value in expected.items():
        if header.get(key) != value:
            raise FormatError(
                f"{path}: key {key!r} is {header.get(key)!r}, expected {value!r}; give a file that "
                "workbench.save_intervention of this version wrote"
            )
    if header.get("sha256") != _digest(tensors):
        raise FormatError(f"{path}: key 'sha256' does not agree with the numbers; copy it again")


def _digest(tensors: Mapping[str, ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
