"""What a curve is compared with: random, turned, shuffled and idle versions of the same edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.directions import Directions
from workbench.directions.linear_map import LinearMap
from workbench.errors import ConfigError, MismatchError
from workbench.linalg import random_unit

Steering = Directions | LinearMap
"""What an edit acts by: directions, each an arm of its own, or one map for ``linear_map``."""
KINDS = ("random:N", "layers:N", "sign", "shuffled", "noop")
RANDOM = 10
TRIES = 1000
"""Draws of an order of blocks before there is held to be no other."""


@dataclass(frozen=True)
class Controls:
    """Which controls stand beside each direction, at every dose but zero."""

    random: int = RANDOM
    """Norm-matched random directions; a map turned at random."""
    layers: int = 0
    """The vectors moved to other blocks of the window."""
    sign: bool = False
    """The direction turned around."""
    shuffled: bool = False
    """The direction that shuffled labels give, by the same fit."""
    noop: bool = False
    """A cap whose thresholds no state reaches: the edit's path without its effect."""

    @classmethod
    def of(cls, given: int | str | Sequence[int | str]) -> Controls:
        """Read ``10``, ``"random:10"`` or ``["random:10", "sign", "layers:2"]``.

        Raises:
            ConfigError: an unknown kind, or a number below 0.
        """
        words = [given] if isinstance(given, int | str) else list(given)
        found = cls(random=0)
        for word in words:
            kind, _, number = (f"random:{word}" if isinstance(word, int) else word).partition(":")
            if kind == "random":
                found = replace(found, random=_count(word, number))
            elif kind == "layers":
                found = replace(found, layers=_count(word, number))
            elif word == "sign":
                found = replace(found, sign=True)
            elif word == "shuffled":
                found = replace(found, shuffled=True)
            elif word == "noop":
                found = replace(found, noop=True)
            else:
                raise ConfigError(f"control {word!r}; expected a number or {', '.join(KINDS)}")
        return found


def _count(word: int | str, number: str) -> int:
    if number == "":
        return 1 if word == "layers" else RANDOM
    if not number.isdecimal() or not number.isascii():
        raise ConfigError(f"control {word!r}; the number after the colon is 0 or more")
    return int(number)


def versions(
    own: Steering,
    window: tuple[int, ...],
    controls: Controls,
    seed: int,
    shuffled: Directions | None = None,
) -> Iterator[tuple[str, Steering]]:
    """Yield the names of the controls and what they steer by; all but ``noop``.

    A function of the window, the seed and the number alone, so that it is the same at all doses.

    Raises:
        ConfigError: one block cannot be shuffled, or there is no direction of shuffled labels.
        MismatchError: shuffled labels' directions with other names or layers.
    """
    yield from random_versions(own, window, controls.random, seed)
    if controls.sign:
        yield "sign", _turned(own)
    if controls.shuffled:
        yield "shuffled", _shuffled(own, window, shuffled)
    for number in range(controls.layers):
        yield f"layers:{number}", _moved(own, window, seed, number)


def random_versions(
    own: Steering, window: tuple[int, ...], count: int, seed: int
) -> Iterator[tuple[str, Steering]]:
    """Yield norm-matched random directions, or a map followed by a random rotation."""
    for number in range(count):
        if isinstance(own, LinearMap):
            yield f"random:{number}", own.select(window).rotated(state(window, 0, seed, number))
            continue
        raw = np.array(own.vectors, np.float32)
        for layer in window:
            if layer in own.layers:
                row = own.layers.index(layer)
                drawn = random_unit(1, raw.shape[-1], seed=state(window, layer, seed, number))[0]
                raw[:, row] = drawn * np.linalg.norm(raw[:, row], axis=-1, keepdims=True)
        yield f"random:{number}", replace(own, vectors=raw)


def state(window: tuple[int, ...], layer: int, seed: int, number: int) -> int:
    """Return the seed of one control's draws at one block."""
    return int(np.random.SeedSequence([seed, number, layer, *window]).generate_state(1)[0])


def order_of(window: tuple[int, ...], seed: int, number: int) -> tuple[int, ...]:
    """Return the window's blocks in an order in which none keeps its place, another each time.

    Raises:
        ConfigError: the window is one block, or has no other such order.
    """
    if len(window) < 2:
        raise ConfigError(
            f"control layers moves vectors between the blocks of a window, and {list(window)} is "
            "one block; give a window of two or more, or leave that control out"
        )
    drawn: list[tuple[int, ...]] = []
    for one in range(number + 1):
        rng = np.random.default_rng(state(window, 0, seed, one))
        for _ in range(TRIES):
            order = tuple(window[place] for place in rng.permutation(len(window)))
            kept = any(a == b for a, b in zip(order, window, strict=True))
            if not kept and order not in drawn:
                break
        else:
            raise ConfigError(
                f"control layers:{number + 1} asks for more orders than {len(window)} blocks have "
                "in which none keeps its place; ask for fewer"
            )
        drawn.append(order)
    return drawn[-1]


def _turned(own: Steering) -> Steering:
    if isinstance(own, LinearMap):
        raise ConfigError("control sign turns a direction around; a map has none, so leave it out")
    return -own


def _moved(own: Steering, window: tuple[int, ...], seed: int, number: int) -> Steering:
    if isinstance(own, LinearMap):
        raise ConfigError("control layers is for directions; leave it out for a map")
    order = order_of(window, seed, number)
    return replace(own.select(order), layers=window, norms=own.select(window).norms)


def _shuffled(own: Steering, window: tuple[int, ...], shuffled: Directions | None) -> Steering:
    if shuffled is None:
        raise ConfigError(
            "control shuffled needs the direction that shuffled labels give: fit it with "
            "shuffle = 0 (`workbench fit ACTS --set shuffle=0`), and give that as shuffled"
        )
    name = own.names[0]
    if isinstance(own, LinearMap) or name not in shuffled.names:
        raise MismatchError(
            f"shuffled labels' directions are {', '.join(shuffled.names)}; one is called {name!r}"
        )
    own.model.refuse_other(shuffled.model, "the direction of shuffled labels")
    if shuffled.site != own.site:
        raise MismatchError(
            f"the direction of shuffled labels is of site {shuffled.site}, {own.label} of "
            f"{own.site}; fit both at one"
        )
    drawn = shuffled[name].select(window)
    rows = own.rows(window)
    lengths = np.linalg.norm(own.vectors[:, rows], axis=-1, keepdims=True)
    sizes = np.linalg.norm(drawn.vectors, axis=-1, keepdims=True)
    if not sizes.all():
        raise ConfigError("the direction of shuffled labels is zero at a layer; fit it anew")
    norms = None if own.norms is None else own.norms[rows]
    return replace(drawn, vectors=drawn.vectors / sizes * lengths, norms=norms)
