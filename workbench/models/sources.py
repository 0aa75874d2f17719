"""From a reference in words (hub id, folder, organism, "smollm2") to what must be opened."""

from __future__ import annotations

import difflib
import functools
import json
import logging
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from workbench.errors import ConfigError, FormatError, MismatchError, UnknownNameError
from workbench.models import embedded

logger = logging.getLogger(__name__)

ORGANISMS = Path("runs/train")
"""Where names of trained organisms resolve."""
_ADAPTER = "adapter_config.json"
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Source:
    """A model and an adapter on top of it, each as its name and the place to open."""

    base: str
    base_path: str
    adapter: str | None = None
    adapter_path: str | None = None
    revision: str | None = None
    adapter_revision: str | None = None
    quantization: str | None = None
    offline: bool = False
    """The hub was asked and did not answer: read its cache alone."""


@dataclass(frozen=True)
class _Place:
    """One resolved reference."""

    name: str
    path: str
    adapter: dict[str, Any] | None = None
    """The content of adapter_config.json, for an adapter."""
    quantization: str | None = None
    offline: bool = False


def find_source(
    ref: str, *, adapter: str | None = None, base: str | None = None, revision: str | None = None
) -> Source:
    """Resolve a reference.

    Args:
        ref: a hub id, a folder, the name of an organism under runs/train, or "smollm2". It may be
            an adapter: then its base is ``base``, or what its config records.
        adapter: an adapter to put on top of the model ``ref``.
        base: the base of the adapter ``ref``.
        revision: the hub revision of ``ref``.

    Raises:
        UnknownNameError: nothing of that name.
        MismatchError: an adapter whose base is missing or is itself an adapter.
        ConfigError: keywords that contradict each other.
        FormatError: a folder that holds neither a model nor an adapter.
    """
    place = _locate(ref, revision)
    if place.adapter is not None:
        if adapter is not None:
            raise ConfigError(
                f"{ref!r} is itself an adapter, so adapter={adapter!r} cannot go on top; "
                "give the base model first and one adapter"
            )
        return _with_base(place, base, revision)
    if base is not None:
        raise ConfigError(
            f"base={base!r} was given, but {ref!r} is a whole model; base= goes with an adapter"
        )
    source = Source(
        place.name,
        place.path,
        revision=revision,
        quantization=place.quantization,
        offline=place.offline,
    )
    return source if adapter is None else _with_adapter(source, adapter)


def _with_base(place: _Place, base: str | None, revision: str | None) -> Source:
    recorded = (place.adapter or {}).get("base_model_name_or_path")
    name = base or recorded
    if not name:
        raise MismatchError(
            f"adapter {place.name!r} records no base model (base_model_name_or_path in "
            f"{_ADAPTER} is empty); write it there, or name it in Python with base=..."
        )
    base_revision = None if base else (place.adapter or {}).get("revision")
    try:
        below = _locate(name, base_revision)
    except (UnknownNameError, FormatError) as error:
        origin = "given as base" if base else f"recorded in its {_ADAPTER}"
        raise MismatchError(
            f"the base model {name!r} of adapter {place.name!r} ({origin}) is missing: "
            f"{str(error).rstrip('.')}. Write another place for the same model there, or name "
            "it in Python with base=..."
        ) from error
    if below.adapter is not None:
        raise MismatchError(
            f"the base {name!r} of adapter {place.name!r} is itself an adapter, a whole model is "
            f"expected; write that into its {_ADAPTER}, or name it in Python with base=..."
        )
    return Source(
        below.name,
        below.path,
        place.name,
        place.path,
        base_revision,
        revision,
        below.quantization,
        below.offline or place.offline,
    )


def _with_adapter(source: Source, adapter: str) -> Source:
    place = _locate(adapter, None)
    if place.adapter is None:
        raise MismatchError(
            f"adapter={adapter!r} is a whole model, an adapter ({_ADAPTER}) is expected; "
            f"load it by itself instead of on top of {source.base!r}"
        )
    recorded = place.adapter.get("base_model_name_or_path")
    if recorded and recorded != source.base:
        logger.info("adapter %s was trained on %s, loaded on %s", adapter, recorded, source.base)
    return replace(
        source,
        adapter=place.name,
        adapter_path=place.path,
        offline=source.offline or place.offline,
    )


def _locate(ref: str, revision: str | None) -> _Place:
    """Find one reference: the embedded name, then folders, then the hub."""
    if not isinstance(ref, str) or not ref.strip():
        raise ConfigError(f"{ref!r} names no model; give a hub id, a folder or {embedded.NAME!r}")
    if embedded.is_meant(ref):
        return _Place(embedded.NAME, str(embedded.folder()), quantization=embedded.QUANTIZATION)
    for folder in (Path(ref).expanduser(), ORGANISMS / ref):
        if folder.is_dir():
            return _local(ref, folder)
    if _HUB_ID.fullmatch(ref) is None or ref.startswith("."):
        raise UnknownNameError(
            f"no model folder {ref!r}, and it is no hub id (owner/name) either; give the path of "
            f"a folder with a config.json or {_ADAPTER}, a hub id, or {embedded.NAME!r}"
        )
    return _hub(ref, revision)


def _local(ref: str, folder: Path) -> _Place:
    name = ref.rstrip("/")
    if (folder / _ADAPTER).is_file():
        return _Place(name, str(folder), _adapter_config(folder / _ADAPTER))
    if (folder / "config.json").is_file():
        # One name however the folder was given: results of organisms are paired with their base's.
        return _Place(str(folder.resolve()), str(folder))
    raise FormatError(
        f"folder {str(folder)!r} holds neither a model (config.json) nor an adapter ({_ADAPTER}); "
        "if it is a training run, let it finish, else give the folder that save_pretrained wrote"
    )


def _adapter_config(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path} is not JSON ({error}); save the adapter again") from None
    if not isinstance(content, dict):
        raise FormatError(f"{path}: a JSON object is expected; save the adapter again")
    return content


def _hub(ref: str, revision: str | None) -> _Place:
    """Ask the hub whether ``ref`` is an adapter; the model's own files are read later."""
    if not constants.HF_HUB_OFFLINE and not _reachable(constants.ENDPOINT):
        return _cached(ref, revision)
    try:
        return _Place(
            ref, ref, _adapter_config(Path(hf_hub_download(ref, _ADAPTER, revision=revision)))
        )
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError):
        return _cached(ref, revision)
    except EntryNotFoundError:
        return _Place(ref, ref)
    except GatedRepoError:
        raise UnknownNameError(
            f"the hub keeps {ref!r} behind an access form; ask for access on its page, sign in "
            "with `hf auth login`, then try again"
        ) from None
    except RevisionNotFoundError:
        raise UnknownNameError(
            f"the hub's {ref!r} has no revision {revision!r}; leave revision= out or name another"
        ) from None
    except RepositoryNotFoundError:
        raise _nothing(
            ref, "the hub has no such model (or it is private: `hf auth login`)"
        ) from None
    except HfHubHTTPError as error:
        raise _nothing(ref, f"the hub answered: {str(error).splitlines()[0]}") from None


@functools.cache
def _reachable(endpoint: str) -> bool:
    """Whether the hub can be connected to at all; asked once, where no proxy stands between.

    Saves half a minute of retries where there is no network. As patient as the hub's own client.
    """
    address = urlparse(endpoint)
    if getproxies() or address.hostname is None:
        return True
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        with socket.create_connection((address.hostname, port), constants.HF_HUB_ETAG_TIMEOUT):
            return True
    except OSError as error:
        logger.info("%s cannot be reached: %s", endpoint, error)
        return False


def _cached(ref: str, revision: str | None) -> _Place:
    """The hub did not answer: its cache must hold the model's config."""
    try:
        hf_hub_download(ref, "config.json", revision=revision, local_files_only=True)
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        off = "is switched off (HF_HUB_OFFLINE)"
        state = off if constants.HF_HUB_OFFLINE else "cannot be reached (HF_HUB_OFFLINE=1 skips it)"
        raise _nothing(ref, f"the hub {state} and its local cache has no such model") from None
    return _Place(ref, ref, offline=True)


def _nothing(ref: str, hub: str) -> UnknownNameError:
    organisms = sorted(p.name for p in ORGANISMS.glob("*") if p.is_dir())
    known = f"; organisms in {ORGANISMS}: {', '.join(organisms)}" if organisms else ""
    near = difflib.get_close_matches(ref, [embedded.NAME, *organisms, *_at_hand()], n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(
        f"unknown model {ref!r}: no folder {ref!r}, no folder {str(ORGANISMS / ref)!r}, and "
        f"{hub}. Give a hub id, a model folder or {embedded.NAME!r}{known}; an organism of another "
        f"--runs folder by its path, such as FOLDER/train/NAME.{guess}"
    )


def _at_hand() -> list[str]:
    """Return the model folders here and one below, and the models in the hub's local cache."""
    files = [f for name in ("config.json", _ADAPTER) for f in Path().glob(f"*/{name}")]
    files += [f for name in ("config.json", _ADAPTER) for f in Path().glob(f"*/*/{name}")]
    kept = Path(constants.HF_HUB_CACHE).glob("models--*")
    hub = [folder.name.removeprefix("models--").replace("--", "/") for folder in kept]
    return sorted({str(file.parent) for file in files} | set(hub))
