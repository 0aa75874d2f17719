"""The settings of a method that a model trains on pairs of replies."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from workbench.config import Config

SCOPES = {
    "user": "user",
    "last_user": "content",
    "user+tool": "user+tool",
    "assistant": "generated",
}
"""Spans that an edit may be trained on, and the scope by which it acts there afterwards."""


class PairFitConfig(Config):
    """Train directions, or a map, on pairs of replies while the model itself stays frozen."""

    pairs: str
    """A JSONL file of rows ``prompt, chosen, rejected``, or an item set's name."""
    method: str = "bipo"
    params: dict[str, Any] = Field(default_factory=dict)
    """Of the method."""
    name: str | None = Field(default=None, min_length=1)
    """Of what is learned, which is more of in the chosen replies; by default the method's name."""
    layers: Literal["all"] | list[int] = "all"
    """Blocks whose output is edited, together."""
    span: Literal["user", "last_user", "user+tool", "assistant"] = "user"
    """Tokens that are edited: of all user turns, of the last one, of these and of tools' results,
    or of the reply itself. What is learned holds for that span alone."""
    epochs: int = Field(default=10, ge=1)
    batch_size: int = Field(default=4, ge=1)
    """Pairs that make one update."""
    learning_rate: float = Field(default=5e-4, gt=0, allow_inf_nan=False)
    """Peak rate of AdamW, reached after the warm-up."""
    weight_decay: float = Field(default=0.05, ge=0, allow_inf_nan=False)
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Part of the updates over which the rate rises; then it falls along a cosine."""
    floor: float = Field(default=0.1, ge=0, le=1)
    """Part of the peak rate that is left at the end."""
    length: int = Field(default=4096, ge=2)
    """Tokens that a prompt with its reply may have; longer ones are refused, none is cut."""
    held_out: str = "test"
    """The value of ``split`` whose pairs only measure the margin, before and after."""
    held_out_pairs: int = Field(default=200, ge=0)
    """At most this many of them, in file order."""
    seed: int = Field(default=0, ge=0)
    """Of the order of pairs, of what a method draws, and of its first numbers."""
    shuffle: int | None = Field(default=None, ge=0)
    """A seed: swap the replies of half of the pairs, drawn with it, as the null of a sweep."""
    budget: int | None = Field(default=None, ge=1)
    """Padded tokens of one forward; by default 16,384 on a GPU and 2,048 elsewhere."""
    recompute: Literal["auto", "none", "all"] | int = "auto"
    """Blocks that compute their activations again: as few as memory demands, all, or a number."""
    save_every: int | None = Field(default=None, ge=1)
    """Updates between checkpoints; by default there is one whenever ten seconds have passed."""
