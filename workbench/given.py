"""What a caller gave where several are taken: one thing stands for a list of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError

Blocks = str | int | Sequence[int]
"""Block indices, one of them, or ``all``."""
ALL = "all"


def several(given: Any, *single: type) -> list[Any]:
    """Return what was given as a list; a text, one of ``single`` or no collection is one entry."""
    alone = isinstance(given, (str, *single)) or not isinstance(given, Iterable)
    return [given] if alone else list(given)


def prompts_of(given: Any) -> list[Any]:
    """Return texts and chats as a list: one text or one chat is one prompt, a set is its items."""
    if hasattr(given, "ids") and hasattr(given, "items"):
        return list(given.items)
    found = several(given, Mapping)
    return [found] if found and all(isinstance(one, Mapping) for one in found) else found


def blocks_of(layers: Any, known: Iterable[int]) -> tuple[int, ...]:
    """Return the blocks that are meant, ``all`` being those known; whether they are known is open.

    Raises:
        ConfigError: neither whole numbers nor ``all``.
    """
    if isinstance(layers, str):
        if layers == ALL:
            return tuple(known)
        raise ConfigError(f"layers = {layers!r}; {_BLOCKS}")
    with suppress(TypeError):  # an array has __index__ too, which only a scalar one answers
        return (index(layers),)
    try:
        return tuple(map(index, layers))
    except TypeError as error:
        raise ConfigError(f"layers = {layers!r} ({error}); {_BLOCKS}") from None


def numbers_of(given: Any, name: str) -> list[float]:
    """Return numbers as a list; one number is a list of one.

    Raises:
        ConfigError: words, or what is no number.
    """
    found = several(given)
    wrong = [one for one in found if not isinstance(one, Real)]
    if wrong:
        raise ConfigError(f"{name} = {given!r}: {wrong[0]!r} is no number; give {name}=[-1, 0, 1]")
    return [float(one) for one in found]


def refuse_name(subject: Any) -> None:
    """Refuse the name of a model where a loaded one is taken.

    Raises:
        ConfigError: it is one.
    """
    for one in several(subject, Path) if isinstance(subject, (str, Path, list, tuple)) else ():
        if isinstance(one, (str, Path)):
            raise ConfigError(
                f"subject = {str(one)!r} is a name; load the model first, once for all that is "
                f"asked of it: subject = wb.load({str(one)!r})"
            )


_BLOCKS = 'give block indices such as [14, 15], one such as 14, or "all"'
