"""One safetensors file for ``Directions``, whose header says all that it means."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from workbench import __version__
from workbench.directions.container import Directions
from workbench.errors import ConfigError, FormatError
from workbench.files import make_folder, unreadable, write_bytes
from workbench.plain import as_json
from workbench.types import ModelStamp, ndarray

FORMAT = "interp-workbench/directions"
VERSION = 1
LAYER_CONVENTION = "0-based block index; the residual stream after that block"
_EXTRA = "info/"


def save_directions(directions: Directions, path: str | Path, *, edit: str | None = None) -> Path:
    """Write one file under a temporary name, then rename it.

    Args:
        directions: what to write.
        path: such as ``truth.safetensors``; a file already there is replaced.
        edit: the edit that the directions are meant for; by default the one in ``info``, or add.

    Raises:
        WorkbenchError: the disk is full or the place cannot be written.
    """
    arrays, told = _split(directions.info)
    tensors = {"vectors": directions.vectors, **arrays}
    tensors |= {
        name: value
        for name in ("norms", "center")
        if (value := getattr(directions, name)) is not None
    }
    tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "names": json.dumps(directions.names),
        "layers": json.dumps(directions.layers),
        "layer_convention": LAYER_CONVENTION,
        "site": directions.site,
        "position": directions.position,
        "kind": directions.kind,
        "model": json.dumps(asdict(directions.model)),
        "edit": edit or str(directions.info.get("edit", "add")),
        "info": as_json(told, sort_keys=True),
        "created_by": f"interp-workbench {__version__}",
        "sha256": _digest(tensors),
    }
    target = Path(path)
    make_folder(target.parent)
    write_bytes(target, save(tensors, header))
    return target


def open_directions(path: str | Path) -> Directions:
    """Read a file, or the ``directions.safetensors`` of a run's folder.

    Raises:
        ConfigError: there is no such file.
        FormatError: the file is damaged, of another format or version, or a key is wrong.
    """
    path = Path(path)
    path = path / "directions.safetensors" if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(f"no file {str(path)!r}; give the path of a directions file")
    data = path.read_bytes()
    try:
        tensors = load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        remedy = "copy it again, or fit the directions again"
        raise unreadable(path, ".safetensors", error, remedy) from None
    header = _header(data)
    _check_kind(header, path)
    _check_digest(header, tensors, path)
    return _assemble(header, tensors, path)


def _header(data: bytes) -> dict[str, str]:
    (length,) = struct.unpack("<Q", data[:8])
    found = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    return dict(found)


def _check_kind(header: Mapping[str, str], path: Path) -> None:
    found = header.get("format")
    if found != FORMAT:
        raise FormatError(
            f"{path}: key 'format' is {found!r}, expected {FORMAT!r}; this is no directions file"
        )
    if header.get("version") != str(VERSION):
        raise FormatError(
            f"{path}: key 'version' is {header.get('version')!r}, this package reads {VERSION}; "
            "use the package version that wrote it (key 'created_by')"
        )
    if header.get("layer_convention") != LAYER_CONVENTION:
        raise FormatError(
            f"{path}: key 'layer_convention' is {header.get('layer_convention')!r}, expected "
            f"{LAYER_CONVENTION!r}; convert the layer numbers first"
        )


def _check_digest(header: Mapping[str, str], tensors: Mapping[str, ndarray], path: Path) -> None:
    if read_text(header, "sha256", path) != _digest(tensors):
        raise FormatError(f"{path}: key 'sha256' does not agree with the numbers; copy it again")


def _assemble(header: Mapping[str, str], tensors: Mapping[str, ndarray], path: Path) -> Directions:
    if "vectors" not in tensors:
        raise FormatError(f"{path}: tensor 'vectors' is missing; fit the directions again")
    info = dict(read_json(header, "info", path, dict))
    info |= {"edit": read_text(header, "edit", path)}
    info |= {k.removeprefix(_EXTRA): v for k, v in tensors.items() if k.startswith(_EXTRA)}
    try:
        return Directions(
            names=tuple(read_json(header, "names", path, list)),
            layers=tuple(read_json(header, "layers", path, list)),
            vectors=tensors["vectors"],
            model=ModelStamp(**read_json(header, "model", path, dict)),
            norms=tensors.get("norms"),
            center=tensors.get("center"),
            kind=read_text(header, "kind", path),
            site=read_text(header, "site", path),
            position=read_text(header, "position", path),
            info=info,
        )
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}: the header does not fit the numbers: {error}") from None


def read_text(header: Mapping[str, str], key: str, path: Path) -> str:
    """Return one key of a header, or say that it is missing."""
    if key not in header:
        raise FormatError(f"{path}: key {key!r} is missing from the header; fit it again")
    return header[key]


def read_json(header: Mapping[str, str], key: str, path: Path, kind: type) -> Any:
    """Return one key of a header that holds JSON of some kind, or say what it holds."""
    try:
        value = json.loads(read_text(header, key, path))
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}: key {key!r} is not JSON ({error.msg})") from None
    if not isinstance(value, kind):
        raise FormatError(f"{path}: key {key!r} is {value!r}, expected a JSON {kind.__name__}")
    return value


def _split(info: Mapping[str, Any]) -> tuple[dict[str, ndarray], dict[str, Any]]:
    arrays, told = split_info(info)
    told.pop("edit", None)
    return {_EXTRA + key: value for key, value in arrays.items()}, told


def split_info(info: Mapping[str, Any]) -> tuple[dict[str, ndarray], dict[str, Any]]:
    """Part what becomes tensors, arrays of numbers, from what the header says as JSON."""
    arrays = {
        key: np.ascontiguousarray(value)
        for key, value in info.items()
        if isinstance(value, ndarray) and value.dtype.kind in "biuf"
    }
    return arrays, {key: value for key, value in info.items() if key not in arrays}


def _digest(tensors: Mapping[str, ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        found.update(f"{name} {value.dtype.str} {value.shape}".encode())
        found.update(value.tobytes())
    return found.hexdigest()
