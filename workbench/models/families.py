"""Where any family keeps its blocks and sizes; there is no table of module paths."""

from __future__ import annotations

from typing import Any

from torch import nn

from workbench.errors import ConfigError, MismatchError

_NAMES = ("layers", "h", "blocks")


def find_blocks(model: Any) -> dict[int, nn.Module]:
    """Return the decoder's blocks by 0-based index, also through an adapter's wrapper.

    Raises:
        MismatchError: no block list, or several candidates for it.
    """
    n_layers = text_config(model).num_hidden_layers
    for owner in (model, getattr(model, "model", None)):
        decoder = _decoder(owner)
        for name in _NAMES:
            blocks = getattr(decoder, name, None)
            if isinstance(blocks, nn.ModuleList) and len(blocks) == n_layers:
                return dict(enumerate(blocks))
    return dict(enumerate(_scan(model, n_layers)))


def text_config(model: Any) -> Any:
    """Return the config of the language part, which has the decoder's sizes."""
    return model.config.get_text_config(decoder=True)


def room_of(model: Any) -> int | None:
    """Return how many tokens the model can place, None where its config does not bound them."""
    whole: Any = getattr(model, "config", None)
    config = whole.get_text_config(decoder=True) if hasattr(whole, "get_text_config") else whole
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if isinstance(scaling, dict) and scaling.get("rope_type", "default") in ("dynamic", "yarn"):
        return None  # the config's number is the one before stretching
    found = getattr(config, "max_position_embeddings", None)
    return int(found) if found else None


def refuse_long(model: Any, tokens: int, where: str) -> None:
    """Refuse more tokens than the model can place: what it says there is not what it learned.

    Raises:
        ConfigError: there are more.
    """
    room = room_of(model)
    if room is not None and tokens > room:
        raise ConfigError(
            f"{where} has {tokens} tokens with what is to come, over the {room} that the model "
            "can place (max_position_embeddings); shorten it, or give a model that reads more"
        )


def width_of(model: Any) -> int:
    """Width of the residual stream."""
    return int(text_config(model).hidden_size)


def _decoder(owner: Any) -> Any:
    finder = getattr(owner, "get_decoder", None)
    return finder() if callable(finder) else None


def _scan(model: Any, n_layers: int) -> nn.ModuleList:
    """The only text-side module list of the right length (Llama 4 names no decoder)."""
    found = {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, nn.ModuleList)
        and len(part) == n_layers
        and not any(word in name for word in ("vision", "visual", "audio", "expert"))
    }
    if len(found) != 1:
        raise MismatchError(
            f"{type(model).__name__}: {len(found)} module lists of {n_layers} blocks "
            f"({', '.join(found) or 'none'}), one expected; this architecture is not a plain "
            "decoder, so load a causal language model"
        )
    return next(iter(found.values()))
