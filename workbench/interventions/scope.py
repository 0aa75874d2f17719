"""Where in a row an edit acts: scope strings read as unions of terms, and turned into masks."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from workbench.errors import ConfigError, unknown
from workbench.types import ndarray

PLACES = ("all", "first", "last", "prompt", "generated")
"""Terms that count positions."""
ROLES = ("user", "system", "assistant", "tool", "content", "header", "template")
"""Terms that name a span of the rendered prompt."""
SCOPES = ("all", "all+first", *PLACES[2:], *ROLES[:4])
"""The scopes that the pages name; further ones are unions of terms."""
ScopeLike = str | Collection[bool] | ndarray | Tensor
"""A scope as text, or one boolean for each token of a row."""
_HINT = (
    "Join terms with +, as in user+tool; tokens:3,5:9 counts positions from 0, span:NAME is a span "
    "of your own."
)
_RANGES = re.compile(r"\d+(:\d*)?(,\d+(:\d*)?)*")
_NAME = re.compile(r"[^\W\d][\w.-]*")


@dataclass(frozen=True)
class Scope:
    """A union of terms."""

    text: str
    places: frozenset[str]
    roles: tuple[str, ...]
    """Spans of the prompt, which leave out a row's first token."""
    own: tuple[str, ...]
    """Spans of the caller's, taken as they are."""
    ranges: tuple[tuple[int, int | None], ...]
    """Positions counted over real tokens from 0, half-open; an end of None is open."""

    @property
    def spans(self) -> tuple[str, ...]:
        """Every span that it names."""
        return self.roles + self.own

    @property
    def touches_prompt(self) -> bool:
        """Whether it may cover a prompt token before the last: then no prompt's cache is kept."""
        return bool(self.spans or self.ranges or self.places - {"last", "generated"})

    @property
    def after_prompt(self) -> bool:
        """Whether it covers no token of a prompt at all."""
        return self.places == {"generated"} and not (self.spans or self.ranges)

    @property
    def needs_prompt(self) -> bool:
        """Whether one must know what the prompt is, beyond which columns were cached."""
        return bool(self.spans or self.places & {"prompt", "generated"})


@functools.cache
def parse_scope(text: str) -> Scope:
    """Read a scope such as ``all``, ``user+generated``, ``tokens:3,5:9`` or ``span:mine``.

    Raises:
        UnknownNameError: a term that nobody knows; the known scopes are listed.
        ConfigError: a term stands twice, or a range of tokens is empty.
    """
    terms = text.split("+")
    if doubled := [term for term in terms if terms.count(term) > 1]:
        raise ConfigError(f"scope {text!r} names {doubled[0]!r} twice; give each term once")
    places, roles, own, ranges = [], [], [], []
    for term in terms:
        kind, _, rest = term.partition(":")
        if term in PLACES:
            places.append(term)
        elif term in ROLES:
            roles.append(term)
        elif kind == "span" and _NAME.fullmatch(rest):
            own.append(rest)
        elif kind == "tokens" and _RANGES.fullmatch(rest):
            ranges += [_range(part, text) for part in rest.split(",")]
        else:
            raise unknown("scope", text, SCOPES, _HINT)
    return Scope(text, frozenset(places), tuple(roles), tuple(own), tuple(ranges))


def check_scope(scope: str) -> None:
    """Refuse a scope that nobody knows; raises as `parse_scope`."""
    parse_scope(scope)


def scope_of(scope: ScopeLike) -> str:
    """Return a scope as text; an explicit mask over a row's tokens becomes ``tokens:...``.

    Raises:
        ValueError: a mask that is not one row of booleans, or that covers nothing.
        UnknownNameError: a text that is no scope.
    """
    if isinstance(scope, str):
        check_scope(scope)
        return scope
    flags = np.asarray(scope.cpu() if isinstance(scope, Tensor) else scope)
    if flags.ndim != 1 or flags.dtype != bool or not flags.any():
        raise ValueError(
            f"a mask of shape {flags.shape} and type {flags.dtype} as scope; expected one boolean "
            "for each token of a row, some true. For a mask of another kind by row give "
            'scope="span:mine" and wb.intervene(..., spans={"mine": mask})'
        )
    edges = np.flatnonzero(np.diff(np.r_[False, flags, False]))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return "tokens:" + ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in runs)


def refuse_absent(scope: str, present: Collection[str], where: str) -> None:
    """Refuse a prompt that has none of the spans that a scope names.

    In a union the absent ones edit nothing: ``user+tool`` is the user's tokens where no tool spoke.

    Raises:
        ConfigError: there is none of them.
    """
    wanted = parse_scope(scope).spans
    if wanted and not set(wanted) & set(present):
        named = " or ".join(repr(name) for name in wanted)
        raise ConfigError(
            f"{where} has no span {named}, which scope {scope!r} edits; its spans: "
            f"{', '.join(sorted(present)) or 'none'}; give prompts with that part, or a scope "
            "without it such as 'prompt'"
        )


@dataclass(frozen=True)
class Tokens:
    """What a scope must know about the new tokens of one pass."""

    real: Bool[Tensor, "b t"]
    place: Int[Tensor, "b t"]
    """Number of the token in its row, counted over real tokens from 0."""
    decoded: Bool[Tensor, "b t"]
    """After the prompt."""
    final: Bool[Tensor, "b t"]
    """The prompt's last token."""
    spans: Mapping[str, Bool[Tensor, "b t"]] | None
    """None where nobody knows them."""

    def within(self, scope: str) -> Bool[Tensor, "b t"]:
        """Mark the tokens that a scope covers; never a pad.

        Raises:
            ConfigError: the scope names spans, and nobody knows them.
        """
        asked, inside = parse_scope(scope), torch.zeros_like(self.real)
        later = self.place > 0
        if "all" in asked.places:
            inside = inside | later
        if "prompt" in asked.places:
            inside = inside | (later & ~self.decoded)
        if asked.places & {"generated", "last"}:
            inside = inside | self.decoded
        if "last" in asked.places:
            inside = inside | self.final
        if "first" in asked.places:
            inside = inside | (self.place == 0)
        for name in asked.spans:
            flags = self._span(name, scope)
            inside = inside | (flags if name in asked.own else flags & later)
        for start, stop in asked.ranges:
            reached = self.place >= start
            inside = inside | (reached if stop is None else reached & (self.place < stop))
        return inside & self.real

    def _span(self, name: str, scope: str) -> Bool[Tensor, "b t"]:
        if self.spans is None:
            raise ConfigError(
                f"scope {scope!r} needs to know which tokens are {name!r}, which a plain forward "
                "does not say; give the model the input_ids of subject.encode themselves, call "
                f"subject.generate, or pass spans={{{name!r}: mask}} to wb.intervene"
            )
        return self.spans.get(name, torch.zeros_like(self.real))


def tokens_of(
    attention_mask: Shaped[Tensor, "b s"],
    t: int,
    prompt: int | Tensor | None = None,
    spans: Mapping[str, Bool[Tensor, "b p"]] | None = None,
) -> Tokens:
    """Describe the last ``t`` columns of a batch; the arguments are those of `scope_mask`."""
    real = attention_mask.bool()
    s = real.shape[1]
    start = s - t
    width = (start or s) if prompt is None else prompt
    width = width[:, None] if isinstance(width, Tensor) else width
    column = torch.arange(s, device=real.device)
    decoded = (column >= width).expand(real.shape)
    final = torch.where(real & ~decoded, column, -1).amax(1, keepdim=True) == column
    known = None
    if spans is not None:
        known = {name: _widened(flags, real)[:, start:] for name, flags in spans.items()}
    place = real.cumsum(1) - 1
    return Tokens(real[:, start:], place[:, start:], decoded[:, start:], final[:, start:], known)


def scope_mask(
    scope: str,
    attention_mask: Shaped[Tensor, "b s"],
    t: int,
    prompt: int | Tensor | None = None,
    spans: Mapping[str, Bool[Tensor, "b p"]] | None = None,
) -> Bool[Tensor, "b t"]:
    """Return which of the last ``t`` columns an edit of this scope may touch; never a pad.

    Positions are absolute: they are counted over the whole mask, cached tokens included, so the
    same token is treated alike in a prefill, in a chunk of one and in a decoding step.

    Args:
        scope: ``all`` (real tokens but each row's first), ``last`` (the final prompt token and
            every decoded one), ``prompt``, ``generated`` (every decoded one), a role, or a union;
            ``+first`` adds a row's first token.
        attention_mask: 1 on real tokens, over cached and new columns.
        t: number of new columns.
        prompt: number of columns that hold the prompt, for all rows or by row. Left out: all
            columns where nothing is cached, else the cached ones, so that every new token counts
            as decoded.
        spans: named parts over the first columns, at least the prompt's.

    Raises:
        UnknownNameError: there is no such scope.
        ConfigError: the scope names spans, and none are given.
    """
    return tokens_of(attention_mask, t, prompt, spans).within(scope)


def _widened(flags: Bool[Tensor, "b p"], real: Bool[Tensor, "b s"]) -> Bool[Tensor, "b s"]:
    """Bring spans to the width of a batch; what comes after them is in none."""
    whole = torch.zeros_like(real)
    columns = min(flags.shape[1], real.shape[1])
    whole[:, :columns] = flags[:, :columns].to(real.device)
    return whole


def _range(part: str, text: str) -> tuple[int, int | None]:
    first, colon, last = part.partition(":")
    start = int(first)
    stop = start + 1 if not colon else int(last) if last else None
    if stop is not None and stop <= start:
        raise ConfigError(f"scope {text!r}: the range {part!r} is empty; its end lies behind it")
    return start, stop
