"""GGUF control vectors, as llama.cpp and repeng read and write them.

``direction.N`` is added to what block N puts out, N counted from 0; llama.cpp cannot say block 0,
so N begins at 1. The file has no field for the operation, the site or the place of reading: ours
carry them under ``interp_workbench``, which other readers pass over.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from workbench import __version__
from workbench.directions.container import Directions
from workbench.directions.exchange.wanted import Wanted
from workbench.errors import ConfigError, FormatError, MismatchError
from workbench.files import make_folder, replacing
from workbench.plain import as_json, plain
from workbench.types import ModelStamp, ndarray

FORMAT = "gguf"
ARCHITECTURE = "controlvector"
LAYER_CONVENTION = "direction.N acts on the output of block N, counted from 0"
OWN = "interp_workbench"
VERSION = 1
HINTS = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3"}
"""What llama.cpp calls a model type where it is not the same without ``_``."""
OPERATIONS = {"add": "add", "project": "ablate"}
"""Values of ``glp.mode``, by which some runtimes tell projecting files from added ones."""
STATED = (
    *("layer_convention", "operation", "site", "position", "kind", "model", "layers", "name"),
    "sha256",
)


# --- reading --------------------------------------------------------------------------------------


def read_control_vector(wanted: Wanted) -> Directions:
    """Read one control vector.

    Raises:
        FormatError: no control vector, damaged, or a layer is missing.
        MismatchError: another model, width, site or operation.
    """
    fields, tensors = _open(wanted.path)
    if fields.get("general.architecture") != ARCHITECTURE:
        raise FormatError(
            f"{wanted.path}: general.architecture is {fields.get('general.architecture')!r}, "
            f"{ARCHITECTURE!r} expected; this GGUF file is no control vector"
        )
    if f"{OWN}.version" in fields:
        return _read_own(wanted, fields, tensors)
    _refuse_hint(wanted, fields)
    layers = _layers(wanted, tensors)
    _refuse_gap(wanted, fields, layers)
    edit, site = _operation(wanted, fields)
    kept = {key: value for key, value in fields.items() if not key.startswith("GGUF.")}
    return wanted.build(
        [wanted.name or wanted.path.stem],
        sorted(layers),
        np.stack([tensors[layers[layer]] for layer in sorted(layers)])[None],
        format=FORMAT,
        edit=edit,
        site=site,
        info={"metadata": plain(kept)},
    )


def _open(path: Path) -> tuple[dict[str, Any], dict[str, ndarray]]:
    """Return the fields and the float32 tensors."""
    from gguf import GGMLQuantizationType, GGUFReader

    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        found = [(one.name, one.tensor_type, np.array(one.data)) for one in reader.tensors]
    except (ValueError, IndexError, KeyError, OSError, OverflowError, MemoryError) as error:
        raise FormatError(
            f"{path} is truncated, damaged or no GGUF file ({error}); copy it again"
        ) from None
    tensors = {}
    for name, kind, values in found:
        if kind not in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
            raise FormatError(f"{path}: {name} is {kind.name}; F32 or F16 expected")
        if values.ndim != 1:
            raise FormatError(f"{path}: {name} has shape {values.shape}; one vector expected")
        tensors[name] = values.astype(np.float32)
    return fields, tensors


def _layers(wanted: Wanted, tensors: dict[str, ndarray]) -> dict[int, str]:
    """Return the name of each block's tensor; a negative number counts from the last block."""
    found: dict[int, str] = {}
    for name in tensors:
        number = re.fullmatch(r"direction\.(-?\d+)", name)
        if number is None or int(number[1]) == 0:
            raise FormatError(
                f"{wanted.path}: tensor {name!r}; 'direction.N' expected, N a block from 1 on"
            )
        layer = int(number[1])
        layer += wanted.model.n_layers if layer < 0 else 0
        if layer in found or not 0 < layer < wanted.model.n_layers:
            raise MismatchError(
                f"{wanted.path}: {name} is block {layer}, but {wanted.model.key} has blocks 0 to "
                f"{wanted.model.n_layers - 1}, each at most once; take a file of this model"
            )
        wanted.refuse_width(name, len(tensors[name]))
        found[layer] = name
    if not found:
        raise FormatError(f"{wanted.path} holds no tensor 'direction.N'")
    return found


def _refuse_gap(wanted: Wanted, fields: dict[str, Any], layers: dict[int, str]) -> None:
    count = fields.get(f"{ARCHITECTURE}.layer_count")
    if count == len(layers) or wanted.layers is not None:
        return
    raise FormatError(
        f"{wanted.path}: {ARCHITECTURE}.layer_count is {count}, but there are {len(layers)} "
        f"directions (blocks {', '.join(map(str, sorted(layers)))}); copy the file again, or give "
        "the layers that you expect, as in layers=[14, 15]"
    )


def _refuse_hint(wanted: Wanted, fields: dict[str, Any]) -> None:
    hint = fields.get(f"{ARCHITECTURE}.model_hint")
    names = {_plain_name(wanted.model.model_type), _plain_name(model_hint(wanted.model))}
    known = hint is None or _plain_name(hint) in {*names, _plain_name(wanted.model.key)}
    if not known:
        raise MismatchError(
            f"{wanted.path}: {ARCHITECTURE}.model_hint is {hint!r}, but {wanted.model.key} is a "
            f"{wanted.model.model_type}; take a file that was made with this model"
        )


def model_hint(model: ModelStamp) -> str:
    """Return what llama.cpp calls this kind of model."""
    return HINTS.get(model.model_type, model.model_type.removesuffix("_text").replace("_", ""))


def _plain_name(name: Any) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _operation(wanted: Wanted, fields: dict[str, Any]) -> tuple[str, str]:
    """Return edit and site of a file that is not ours: added after the block unless it says so."""
    mode = fields.get("glp.mode", "add")
    if mode not in OPERATIONS:
        raise FormatError(
            f"{wanted.path}: glp.mode is {mode!r}; known: {', '.join(OPERATIONS)}; applied "
            "otherwise than meant, a direction does the opposite without an error"
        )
    hook = fields.get("glp.hook_point", "residual_stream_post_layer")
    if hook != "residual_stream_post_layer":
        raise MismatchError(
            f"{wanted.path}: glp.hook_point is {hook!r}, and only residual_stream_post_layer is "
            "a site here (resid_post)"
        )
    return OPERATIONS[mode], "resid_post"


def _read_own(wanted: Wanted, fields: dict[str, Any], tensors: dict[str, ndarray]) -> Directions:
    """Read a file that ``write_control_vector`` made, by what it says of itself."""
    own = {key.removeprefix(f"{OWN}."): value for key, value in fields.items()}
    if own["version"] != VERSION:
        raise FormatError(
            f"{wanted.path}: {OWN}.version is {own['version']}, this package reads {VERSION}"
        )
    lacking = [key for key in STATED if key not in own]
    if lacking:
        raise FormatError(f"{wanted.path}: {OWN}.{lacking[0]} is missing; export it again")
    if own["layer_convention"] != LAYER_CONVENTION:
        raise MismatchError(
            f"{wanted.path}: {OWN}.layer_convention is {own['layer_convention']!r}, "
            f"{LAYER_CONVENTION!r} expected; convert the layer numbers first"
        )
    model, layers, info = _parsed(wanted.path, own)
    model.refuse_other(wanted.model, str(wanted.path))
    absent = [layer for layer in layers if f"direction.{layer}" not in tensors]
    if absent or len(tensors) != len(layers):
        raise FormatError(
            f"{wanted.path}: layers {own['layers']} announced, but there are "
            f"{', '.join(tensors)}; copy it or export it again"
        )
    _layers(wanted, tensors)
    vectors = np.stack([tensors[f"direction.{layer}"] for layer in layers])[None]
    if sha256(vectors.tobytes()).hexdigest() != own["sha256"]:
        raise FormatError(f"{wanted.path}: the numbers do not match {OWN}.sha256; copy it again")
    return wanted.build(
        [wanted.name or own["name"]],
        layers,
        vectors,
        format=FORMAT,
        edit=own["operation"],
        site=own["site"],
        position=own["position"],
        kind=own["kind"],
        info=info,
        norms=np.array(own["norms"], np.float32) if "norms" in own else None,
    )


def _parsed(path: Path, own: dict[str, Any]) -> tuple[ModelStamp, list[int], dict[str, Any]]:
    """Return model, layers and info of a header."""
    try:
        model = ModelStamp(**json.loads(own["model"]))
        layers = [int(layer) for layer in json.loads(own["layers"])]
        return model, layers, dict(json.loads(own.get("info", "{}")))
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{path}: its header is damaged ({error}); copy it again") from None


# --- writing --------------------------------------------------------------------------------------


def write_control_vector(directions: Directions, path: Path, edit: str | None) -> Path:
    """Write one direction for llama.cpp, repeng and whatever reads their files.

    What the format cannot hold stays behind: ``center``, and arrays in ``info``.

    Raises:
        ConfigError: several directions, block 0, another site or operation than adding.
    """
    operation = edit or str(directions.info.get("edit", "add"))
    _refuse_unfit(directions, operation)
    make_folder(path.parent)
    with replacing(path, directions.vectors.nbytes) as temporary:
        _write(directions, temporary)
    return path


def _refuse_unfit(directions: Directions, operation: str) -> None:
    if len(directions) != 1:
        raise ConfigError(
            f"a control vector holds one direction, {directions.label} are {len(directions)}; "
            f"export them one by one, as in directions[{directions.names[0]!r}]"
        )
    if 0 in directions.layers:
        raise ConfigError(
            "llama.cpp adds control vectors from block 1 on and cannot say block 0; leave it out, "
            "as in directions.select([layer for layer in directions.layers if layer])"
        )
    if directions.site != "resid_post":
        raise ConfigError(
            f"{directions.label} is of site {directions.site}, but a control vector is added to "
            "what a block puts out (resid_post); export it as safetensors"
        )
    if operation != "add":
        raise ConfigError(
            f"{directions.label} is meant for {operation!r}, but control vectors are added by who "
            "reads them; export as safetensors, or give edit='add' where adding is meant"
        )


def _write(directions: Directions, path: Path) -> None:
    from gguf import GGUFWriter

    writer = GGUFWriter(path, ARCHITECTURE)
    try:
        _fill(directions, writer)
    finally:
        writer.close()


def _fill(directions: Directions, writer: Any) -> None:
    writer.add_string(f"{ARCHITECTURE}.model_hint", model_hint(directions.model))
    writer.add_uint32(f"{ARCHITECTURE}.layer_count", len(directions.layers))
    writer.add_uint32(f"{OWN}.version", VERSION)
    for key, value in _stated(directions).items():
        writer.add_string(f"{OWN}.{key}", value)
    if directions.norms is not None:
        writer.add_array(f"{OWN}.norms", [float(norm) for norm in directions.norms])
    for layer, vector in zip(directions.layers, directions.vectors[0], strict=True):
        writer.add_tensor(f"direction.{layer}", np.ascontiguousarray(vector))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()


def _stated(directions: Directions) -> dict[str, str]:
    told = {k: v for k, v in directions.info.items() if not isinstance(v, ndarray) and k != "edit"}
    return {
        "layer_convention": LAYER_CONVENTION,
        "operation": "add",
        "site": directions.site,
        "position": directions.position,
        "kind": directions.kind,
        "name": directions.names[0],
        "layers": json.dumps(directions.layers),
        "model": json.dumps(asdict(directions.model)),
        "info": as_json(told, sort_keys=True),
        "sha256": sha256(np.ascontiguousarray(directions.vectors).tobytes()).hexdigest(),
        "created_by": f"interp-workbench {__version__}",
    }


# --- describing -----------------------------------------------------------------------------------


def describe_control_vector(path: Path) -> dict[str, Any]:
    """Say what a control vector holds, without a model."""
    fields, tensors = _open(path)
    width = {len(values) for values in tensors.values()}
    return {
        "format": FORMAT,
        "directions": ", ".join(tensors),
        "width": " and ".join(map(str, sorted(width))),
        **{key: value for key, value in fields.items() if not key.startswith("GGUF.")},
    }
