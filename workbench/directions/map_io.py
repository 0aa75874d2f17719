"""One safetensors file for a ``LinearMap``; each layer has tensors and checksums of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from workbench import __version__
from workbench.directions.io import LAYER_CONVENTION, read_json, read_text, split_info
from workbench.directions.linear_map import OPERATION, LinearMap
from workbench.errors import ConfigError, FormatError, WorkbenchError
from workbench.files import make_folder, replacing, unreadable
from workbench.plain import as_json
from workbench.types import ModelStamp, ndarray

FORMAT = "interp-workbench/linear-map"
VERSION = 1
FILE = "map.safetensors"
_PARTS = ("b", "axis", "W", "left", "right")
_INFO = "info/"


def save_map(found: LinearMap, path: str | Path) -> Path:
    """Write one file under a temporary name, then rename it.

    Args:
        found: what to write.
        path: such as ``trust.safetensors``; a file already there is replaced.

    Raises:
        WorkbenchError: the disk is full or the place cannot be written.
    """
    arrays, told = split_info(found.info)
    tensors = _tensors(found) | {_INFO + key: value for key, value in arrays.items()}
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "operation": OPERATION,
        "name": found.name,
        "layers": json.dumps(found.layers),
        "layer_convention": LAYER_CONVENTION,
        "site": found.site,
        "position": found.position,
        "kind": found.kind,
        "model": json.dumps(asdict(found.model)),
        "info": as_json(told, sort_keys=True),
        "created_by": f"interp-workbench {__version__}",
        "sha256": json.dumps({name: _digest(value) for name, value in tensors.items()}),
    }
    target = Path(path)
    make_folder(target.parent)
    with replacing(target, sum(value.nbytes for value in tensors.values())) as temporary:
        _write(tensors, temporary, header)
    return target


def open_map(path: str | Path, *, layers: Sequence[int] | None = None) -> LinearMap:
    """Read a file, or the ``map.safetensors`` of a run's folder.

    Args:
        path: of the file or folder.
        layers: read these alone; a whole matrix of width 5,120 is 105 MB a layer.

    Raises:
        ConfigError: there is no such file, or it lacks a layer.
        FormatError: the file is damaged, of another format, version, operation or layer
            convention, or a key is wrong.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"no file {str(path)!r}; give the path of a map file")
    try:
        with safe_open(path, framework="numpy") as file:
            header = dict(file.metadata() or {})
            _check_kind(header, path)
            stored = _stored(header, path)
            chosen = stored if layers is None else [index(layer) for layer in layers]
            _refuse_absent(chosen, stored, path)
            names = set(file.keys())
            tensors = {n: file.get_tensor(n) for n in _wanted(names, chosen)}
    except (SafetensorError, TypeError, ValueError) as error:
        remedy = "copy it again, or fit the map again"
        raise unreadable(path, ".safetensors", error, remedy) from None
    _check_digests(read_json(header, "sha256", path, dict), tensors, path)
    return _assemble(header, tensors, stored, chosen, path)


def is_map(path: Path) -> bool:
    """Say whether a file's header calls it a linear map; damage is for the readers to report."""
    try:
        with safe_open(path, framework="numpy") as file:
            return bool((file.metadata() or {}).get("format") == FORMAT)
    except (SafetensorError, OSError, ValueError):
        return False


def _tensors(found: LinearMap) -> dict[str, ndarray]:
    tensors: dict[str, ndarray] = {}
    for row, layer in enumerate(found.layers):
        for name, value in [*found.weights(layer).items(), ("axis", found.axis[row])]:
            tensors[f"{name}/{layer}"] = np.ascontiguousarray(value)
    if found.norms is not None:
        tensors["norms"] = found.norms
    return tensors


def _write(tensors: Mapping[str, ndarray], path: Path, header: Mapping[str, str]) -> None:
    path.touch()
    mode = path.stat().st_mode  # that of any new file; the library makes its own private
    try:
        save_file(dict(tensors), path, dict(header))
        path.chmod(mode)
    except SafetensorError as error:  # how the library reports what the system refused
        raise WorkbenchError(f"cannot write {path.parent}: {error}; give another place") from error


def _wanted(names: set[str], layers: Sequence[int]) -> list[str]:
    """Names of the tensors to read: those of the layers, and those of no layer."""
    own = {f"{part}/{layer}" for part in _PARTS for layer in layers}
    return sorted(n for n in names if n in own or n == "norms" or n.startswith(_INFO))


def _stored(header: Mapping[str, str], path: Path) -> list[int]:
    found: list[int] = read_json(header, "layers", path, list)
    if not all(type(layer) is int for layer in found) or len(set(found)) < len(found) or not found:
        raise FormatError(f"{path}: key 'layers' is {found}; block indices, each once, expected")
    return found


def _refuse_absent(chosen: Sequence[int], stored: Sequence[int], path: Path) -> None:
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError(f"layers = {list(chosen)}; name at least one block, each once")
    absent = [layer for layer in chosen if layer not in stored]
    if absent:
        raise ConfigError(
            f"{path} holds no layer {absent[0]}; it holds layers {', '.join(map(str, stored))} "
            "(0-based block indices)"
        )


def _check_kind(header: Mapping[str, str], path: Path) -> None:
    wanted = {
        "format": (FORMAT, "this is no map file"),
        "version": (str(VERSION), "use the package version that wrote it (key 'created_by')"),
        "operation": (OPERATION, "convert W and b to that operation first"),
        "layer_convention": (LAYER_CONVENTION, "convert the layer numbers first"),
    }
    for key, (expected, advice) in wanted.items():
        if header.get(key) != expected:
            raise FormatError(
                f"{path}: key {key!r} is {header.get(key)!r}, expected {expected!r}; {advice}"
            )


def _check_digests(told: Mapping[str, str], tensors: Mapping[str, ndarray], path: Path) -> None:
    for name, value in tensors.items():
        if told.get(name) != _digest(value):
            raise FormatError(
                f"{path}: key 'sha256' does not agree with tensor {name!r}; copy the file again"
            )


def _assemble(
    header: Mapping[str, str],
    tensors: Mapping[str, ndarray],
    stored: Sequence[int],
    chosen: Sequence[int],
    path: Path,
) -> LinearMap:
    rows = [stored.index(layer) for layer in chosen]
    stacked = {part: _part(tensors, part, chosen, path) for part in _PARTS}
    parts: dict[str, Any] = {name: value for name, value in stacked.items() if value is not None}
    info = dict(read_json(header, "info", path, dict))
    info |= {k.removeprefix(_INFO): v[rows] for k, v in tensors.items() if k.startswith(_INFO)}
    try:
        return LinearMap(
            name=read_text(header, "name", path),
            layers=tuple(chosen),
            model=ModelStamp(**read_json(header, "model", path, dict)),
            norms=tensors["norms"][rows] if "norms" in tensors else None,
            site=read_text(header, "site", path),
            position=read_text(header, "position", path),
            info=info,
            **parts,
        )
    except (TypeError, ValueError, IndexError) as error:
        raise FormatError(f"{path}: the header does not fit the numbers: {error}") from None


def _part(
    tensors: Mapping[str, ndarray], part: str, layers: Sequence[int], path: Path
) -> ndarray | None:
    """Stack one part over layers; nothing where no layer has it."""
    names = [f"{part}/{layer}" for layer in layers]
    absent = [name for name in names if name not in tensors]
    if absent and (len(absent) < len(names) or part in ("b", "axis")):
        raise FormatError(f"{path}: tensor {absent[0]!r} is missing; fit the map again")
    return None if absent else np.stack([tensors[name] for name in names])


def _digest(value: ndarray) -> str:
    found = hashlib.sha256(f"{value.dtype.str} {value.shape}".encode())
    found.update(np.ascontiguousarray(value).data)
    return found.hexdigest()
