"""The formats, which of them a file is, and the two functions that go through them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.directions.container import Directions
from workbench.directions.exchange import assistant_axis, control_vector, persona, sparse
from workbench.directions.exchange.pickled import load_pickled
from workbench.directions.exchange.wanted import Wanted
from workbench.directions.io import FORMAT as OWN_FORMAT
from workbench.directions.io import open_directions, save_directions
from workbench.errors import ConfigError, FormatError, unknown
from workbench.types import ModelStamp, Subject

OWN = "directions"
_ZIP, _PICKLE, _GGUF = b"PK\x03\x04", b"\x80", b"GGUF"


@dataclass(frozen=True)
class Format:
    """One kind of file."""

    about: str
    read: Callable[[Wanted], Directions]
    write: Callable[[Directions, Path, str | None], Path] | None = None
    suffix: str = ""
    """By which ``export_directions`` chooses it."""


def _read_own(wanted: Wanted) -> Directions:
    """Read our own file, and compare what it says with what the caller expects."""
    found = open_directions(wanted.path)
    found.model.refuse_other(wanted.model, str(wanted.path))
    for key, value in (
        ("edit", found.info["edit"]),
        ("site", found.site),
        ("position", found.position),
        ("kind", found.kind),
    ):
        wanted.refuse_other(key, value)
    return found if wanted.layers is None else found.select(wanted.layers)


def _write_own(directions: Directions, path: Path, edit: str | None) -> Path:
    return save_directions(directions, path, edit=edit)


FORMATS: Mapping[str, Format] = {
    OWN: Format(
        "safetensors with a header that says what it means",
        *(_read_own, _write_own, ".safetensors"),
    ),
    control_vector.FORMAT: Format(
        "GGUF control vector (llama.cpp, repeng): one direction, added after blocks 1 and up",
        *(control_vector.read_control_vector, control_vector.write_control_vector, ".gguf"),
    ),
    persona.FORMAT: Format(
        "persona_vectors .pt: a row for each of hidden_states, one more than blocks",
        persona.read_persona,
    ),
    assistant_axis.FORMAT: Format(
        "assistant-axis .pt, or a folder of them: axis, roles, traits, a row for each block",
        assistant_axis.read_assistant_axis,
    ),
    assistant_axis.CAPPING: Format(
        "capping_config.pt of the assistant axis: vectors and thresholds",
        assistant_axis.read_capping,
    ),
    sparse.FORMAT: Format(
        "sparse autoencoder, safetensors with W_dec: chosen decoder rows", sparse.read_sae
    ),
}
"""What can be read, and written where ``write`` is there."""


def import_directions(
    path: str | Path,
    model: Subject | ModelStamp,
    *,
    format: str | None = None,
    name: str | None = None,
    kind: str | None = None,
    edit: str | None = None,
    site: str | None = None,
    position: str | None = None,
    layers: Sequence[int] | None = None,
    features: Sequence[int] | None = None,
    hook: str | None = None,
) -> Directions:
    """Read directions that another program wrote; no code in the file is run.

    ``info`` keeps the format, the file's name and its sha256. What a file says wins over nothing:
    where it contradicts the call it is refused.

    Args:
        path: a file, or a folder of role or trait vectors.
        model: which model the directions are of; foreign files carry no fingerprint.
        format: a name of ``FORMATS``; by content unless given.
        name: what to call a single direction; by the file unless given.
        kind: mean or difference, expected, or where the file does not say.
        edit: the operation expected: add, ablate or cap.
        site: the site expected, such as resid_post.
        position: where the vectors were read, expected, or where the file does not say.
        layers: 0-based blocks to keep.
        features: of a sparse autoencoder.
        hook: a sparse autoencoder's hook point, where the file does not say.

    Raises:
        ConfigError: nothing there, or something is left for the caller to say.
        FormatError: damaged, of no known format, or a pickle that runs code.
        MismatchError: another model, width, site, layer convention or operation, named.
    """
    stamp = model.stamp if isinstance(model, Subject) else model
    place = Path(path)
    wanted = Wanted(
        path=place,
        model=stamp,
        name=name,
        kind=kind,
        edit=edit,
        site=site,
        position=position,
        layers=None if layers is None else tuple(layers),
        features=None if features is None else tuple(features),
        hook=hook,
    )
    return _format(format or recognise(place, stamp)).read(wanted)


def export_directions(
    directions: Directions,
    path: str | Path,
    *,
    format: str | None = None,
    edit: str | None = None,
) -> Path:
    """Write directions for other programs; whole or not at all.

    Args:
        directions: what to write; a control vector holds one.
        path: ``.gguf`` or ``.safetensors`` unless ``format`` says it.
        format: a name of ``FORMATS`` that can be written.
        edit: the operation that they are meant for; by default the one in ``info``, or add.

    Raises:
        ConfigError: the format cannot hold them; the message says what to leave out.
        WorkbenchError: the disk is full or the place cannot be written.
    """
    place = Path(path)
    writable = {name: one for name, one in FORMATS.items() if one.write is not None}
    if format is None:
        format = next((n for n, one in writable.items() if one.suffix == place.suffix), None)
    if format is None:
        endings = ", ".join(one.suffix for one in writable.values())
        raise ConfigError(f"{place.name} does not end in {endings}; give format=")
    write = _format(format).write
    if write is None:
        raise ConfigError(f"format {format!r} is only read; written are: {', '.join(writable)}")
    return write(directions, place, edit)


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]


# --- recognising ----------------------------------------------------------------------------------


def recognise(path: Path, model: ModelStamp | None = None) -> str:
    """Return the format of a file by its content.

    Args:
        path: a file or folder.
        model: tells persona vectors from the assistant axis, by the number of rows.

    Raises:
        ConfigError: nothing is there.
        FormatError: no known format.
    """
    if not path.exists():
        raise ConfigError(f"no file {str(path)!r}; give the path of a file with directions")
    if path.is_dir():
        return OWN if (path / "directions.safetensors").is_file() else assistant_axis.FORMAT
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(_GGUF):
        return control_vector.FORMAT
    header = _header(path, start)
    if header is None and start.startswith((_ZIP, _PICKLE)):
        return _recognise_pickled(path, model)
    if header is None:
        raise FormatError(
            f"{path} is of no known format; known: "
            + "; ".join(f"{name} ({one.about})" for name, one in FORMATS.items())
        )
    if header.get("__metadata__", {}).get("format") == OWN_FORMAT:
        return OWN
    if sparse.DECODER in header:
        return sparse.FORMAT
    raise FormatError(
        f"{path} is a safetensors file without format = {OWN_FORMAT!r} in its header and without "
        f"{sparse.DECODER}; nothing says what its tensors mean"
    )


def _header(path: Path, start: bytes) -> dict[str, Any] | None:
    """Return the header of a safetensors file, or None; its length may begin like a pickle."""
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= path.stat().st_size - 8:
        return None
    with path.open("rb") as file:
        file.seek(8)
        try:
            found = json.loads(file.read(length))
        except ValueError:
            return None
    return found if isinstance(found, dict) else None


def _recognise_pickled(path: Path, model: ModelStamp | None) -> str:
    content = load_pickled(path)
    if isinstance(content, Mapping):
        capping = "experiments" in content and "vectors" in content
        return assistant_axis.CAPPING if capping else assistant_axis.FORMAT
    rows = len(content) if hasattr(content, "shape") and content.ndim == 2 else 0
    if model is not None and rows == model.n_layers + 1:
        return persona.FORMAT
    return assistant_axis.FORMAT


def describe_foreign(path: Path) -> dict[str, Any]:
    """Say what a file of another program holds, without a model.

    Raises:
        ConfigError: nothing is there.
        FormatError: damaged, of no known format, or a pickle that runs code.
    """
    format = recognise(path)
    if format == control_vector.FORMAT:
        return control_vector.describe_control_vector(path)
    if format == sparse.FORMAT:
        return sparse.describe_sae(path)
    if format == OWN:
        return {"format": OWN, "directions": repr(open_directions(path))}
    if path.is_dir():
        return {"format": format, "files": len(list(path.glob("*.pt")))}
    return {"format": format, **_describe_pickled(load_pickled(path))}


def _describe_pickled(content: Any) -> dict[str, Any]:
    if isinstance(content, Mapping):
        counts = {key: len(v) for key, v in content.items() if isinstance(v, (list, dict))}
        return {"holds": ", ".join(map(str, content)), **counts}
    rows, *rest = getattr(content, "shape", (0,))
    return {
        "shape": (rows, *rest),
        "rows": f"a model of {rows} blocks (assistant-axis) or of {rows - 1} (persona-vectors)",
    }
