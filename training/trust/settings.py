"""The settings of a corpus of trust pairs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from workbench.config import Config

PAIRS = 2000


class TrustPairsConfig(Config):
    """Write contrastive conversations; the defaults are the scale of Lasnier et al. (2026)."""

    kind: Literal["trust_pairs"] = "trust_pairs"
    pairs: int = Field(default=PAIRS, ge=12)
    """How many are written, over the facets evenly."""
    neutral: int = Field(default=200, ge=0)
    """Further rows whose two replies are one, for measuring alone, of held-out scenarios; fewer
    where these give fewer that differ, none where ``test`` is 0."""
    test: float = Field(default=0.1, ge=0, le=0.5)
    """Share of the pairs that is held out, in scenarios of their own, some of every family."""
    styles: list[Literal["terse", "mixed", "long"]] = Field(
        default=["terse", "mixed", "long"], min_length=1
    )
    """Length styles, dealt evenly."""
    turns: list[Literal[1, 2, 3]] = Field(default=[1, 2, 3], min_length=1)
    """How many user turns a conversation may have; two and three are twice as frequent as one."""
    writer: Literal["templates", "server", "local"] = "templates"
    """Who writes the replies: this package's grammar, or a language model."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What a language-model writer takes, such as ``{url = ..., model = ...}``."""
    near_duplicate: float = Field(default=0.7, gt=0, le=1)
    """Jaccard index over five-word shingles of both replies from which two pairs count as one."""
    length_tolerance: float = Field(default=0.1, gt=0, lt=1)
    """How far the shorter reply may lie below the longer one, as a share of its words."""
    max_dropped: float = Field(default=0.1, ge=0, le=1)
    """Refuse the corpus where the rules drop more than this share of what was planned."""
    max_probe: float = Field(default=0.65, gt=0.5, le=1)
    """Refuse it where surface features alone tell the poles apart with a higher AUC than this."""
    seed: int = Field(default=0, ge=0)
