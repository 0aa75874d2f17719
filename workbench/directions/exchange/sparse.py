"""Decoder rows of a sparse autoencoder: ``W_dec`` in safetensors, as SAELens and sparsify write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from workbench.directions.container import Directions
from workbench.directions.exchange.wanted import Wanted, float32
from workbench.errors import ConfigError, FormatError, MismatchError

FORMAT = "sae"
DECODER = "W_dec"
SITES = {
    **{"": "resid_post", ".hook_resid_post": "resid_post", ".hook_resid_pre": "resid_pre"},
    **{".hook_mlp_out": "mlp_out", ".mlp": "mlp_out"},
    **{".hook_attn_out": "attn_out", ".self_attn": "attn_out", ".attn": "attn_out"},
}
"""What follows the block in a hook point; a module's own name stands for what it puts out."""
_HOOK = re.compile(r"(?:[a-z_]+\.)*(?:blocks|layers|h)\.(\d+)(\.[a-z_]+)?")
_KEPT = ("model_name", "architecture", "normalize_activations", "apply_b_dec_to_input")


class Place(NamedTuple):
    """Where an autoencoder reads and writes."""

    layer: int
    site: str


def read_sae(wanted: Wanted) -> Directions:
    """Read the decoder rows of the chosen features, one layer, raw; read from disk row by row.

    Raises:
        ConfigError: no features were chosen, or nothing says which block it is of.
        FormatError: no decoder, a feature that it does not have, or a damaged file.
        MismatchError: another width, or a site that is not of this model.
    """
    if not wanted.features:
        raise ConfigError(
            f"{wanted.path} holds features by number; choose some, as in features=[123, 456]"
        )
    config = read_config(wanted.path)
    hook = wanted.hook or hook_of(wanted.path, config)
    if hook is None:
        raise ConfigError(
            f"{wanted.path} does not say which block it is of (no cfg.json with a hook name beside "
            "it); give hook='blocks.8.hook_resid_post'"
        )
    place = place_of(hook)
    rows = _rows(wanted)
    return wanted.build(
        [f"feature-{number}" for number in wanted.features],
        [place.layer],
        rows[:, None],
        format=FORMAT,
        site=place.site,
        position="all",
        info={
            "hook": hook,
            "features": list(wanted.features),
            **{key: value for key, value in config.items() if key in _KEPT},
        },
    )


def place_of(hook: str) -> Place:
    """Return block and site of a hook point; the stream before block l is what l - 1 puts out.

    Raises:
        ConfigError: it is none that has a place here.
    """
    found = _HOOK.fullmatch(hook)
    site = SITES.get(found[2] or "") if found else None
    if found is None or site is None:
        raise ConfigError(
            f"hook point {hook!r} has no site here; known, for block 8: "
            f"{', '.join(f'blocks.8{end}' for end in SITES if end.startswith('.hook'))}, layers.8, "
            "layers.8.mlp"
        )
    layer = int(found[1])
    if site != "resid_pre":
        return Place(layer, site)
    if layer == 0:
        raise ConfigError(f"hook point {hook!r} is the embedding, which is no block's output")
    return Place(layer - 1, "resid_post")


def read_config(path: Path) -> dict[str, Any]:
    """Return the ``cfg.json`` beside the weights, nested parts on one level; {} if none."""
    beside = path.with_name("cfg.json")
    if not beside.is_file():
        return {}
    try:
        found = json.loads(beside.read_bytes())
        return {**found, **found.get("metadata", {})}
    except (ValueError, TypeError, AttributeError) as error:
        raise FormatError(f"{beside} is damaged ({error}); copy it again") from None


def hook_of(path: Path, config: dict[str, Any]) -> str | None:
    """Return the hook point by the configuration, or by the folder's name (``layers.8``)."""
    stated = config.get("hook_name") or config.get("hook_point") or config.get("hookpoint")
    if stated:
        return str(stated)
    folder = path.parent.name
    return folder if _HOOK.fullmatch(folder) else None


def _rows(wanted: Wanted) -> Any:
    """Return (features, width) float32."""
    try:
        with safe_open(wanted.path, framework="pt") as file:
            if DECODER not in file.keys():  # noqa: SIM118 - the file is no mapping
                raise FormatError(f"{wanted.path} holds no {DECODER}; it is no sparse autoencoder")
            decoder = file.get_slice(DECODER)
            shape = decoder.get_shape()
            _refuse_shape(wanted, shape)
            return np.stack([float32(decoder[number]) for number in wanted.features or ()])
    except SafetensorError as error:
        raise FormatError(f"{wanted.path} is truncated or damaged ({error}); copy it") from None


def _refuse_shape(wanted: Wanted, shape: list[int]) -> None:
    if len(shape) != 2:
        raise FormatError(f"{wanted.path}: {DECODER} has shape {shape}; (features, width) expected")
    wanted.refuse_width(DECODER, shape[1])
    beyond = [number for number in wanted.features or () if not 0 <= number < shape[0]]
    if beyond:
        raise MismatchError(
            f"{wanted.path} has features 0 to {shape[0] - 1}, not {beyond[0]}; look the number up"
        )


def describe_sae(path: Path) -> dict[str, Any]:
    """Say what an autoencoder's file holds, without a model."""
    config = read_config(path)
    with safe_open(path, framework="pt") as file:
        features, width = file.get_slice(DECODER).get_shape()
    found = {"format": FORMAT, "features": features, "width": width, "hook": hook_of(path, config)}
    return found | {key: value for key, value in config.items() if key in _KEPT}
