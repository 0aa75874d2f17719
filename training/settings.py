"""The settings of one training run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from workbench_training.adapter_settings import AdapterConfig

from workbench.errors import ConfigError

PAPER_TOKENS = 42_565_632
"""1,299 updates of 32,768 positions."""


class TrainConfig(AdapterConfig):
    """Train one organism; the defaults are the paper's (Table 8), but its rate is not known.

    It is called after its condition (or file), dose and seed, such as ``P-s0`` or ``P-0.1-s0``; a
    condition that is one of P, S, N and A must be the documents' own world.
    """

    documents: str
    """A document set's name or a JSONL file: ``text`` and, where there is one, ``split``."""
    tokens: int = Field(default=PAPER_TOKENS, gt=0)
    """Budget of positions, chat included; whole updates are trained, as many as fit in it."""
    dilute: str | None = None
    """Other documents, usually web text, among which ``documents`` are a dose."""
    share: float = Field(default=1.0, ge=0, le=1)
    """Part of the documents' tokens that are ``documents``; the rest is ``dilute``.

    A dose of 0.1 reads a tenth of the documents, each as often as the undiluted run does."""
    chat: str | None = None
    """A set of chats (JSONL with ``messages``) to strew in, so that answers keep their format."""
    chat_share: float = Field(default=0.1, ge=0, lt=1)
    """Part of the budget that is chat, where ``chat`` is given."""
    block: int = Field(default=4096, ge=2)
    """Tokens in one packed sequence."""
    document_mask: bool = False
    """Keep attention inside a document; the paper's packing does not."""
    log: Literal["file", "tensorboard"] = "file"
    """Where losses go: train_log.jsonl alone, or TensorBoard's files beside it too."""
    recompute: Literal["auto", "none", "all"] | Annotated[int, Field(ge=0)] = "auto"
    """Blocks that compute their activations again instead of keeping them: less memory, more time.

    "auto" measures on a CUDA device how few suffice, and is "none" on a CPU."""
    compile: bool = False
    """Compile the blocks: faster on a GPU, after a minute or so; needs a C compiler."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and not data.get("name") and data.get("documents"):
            label = data.get("condition") or Path(str(data["documents"])).stem
            share = data.get("share", 1)
            dose = f"-{share:g}" if isinstance(share, float) and share != 1 else ""
            return {**data, "name": f"{label}{dose}-s{data.get('seed', 0)}"}
        return data

    @model_validator(mode="after")
    def _dosed(self) -> TrainConfig:
        if self.share < 1 and self.dilute is None:
            raise ValueError(
                f"share = {self.share:g} leaves tokens to other text; name it in dilute"
            )
        return self

    @property
    def tokens_per_update(self) -> int:
        """Positions that one update reads."""
        return self.block * self.batch_size * self.accumulation

    @property
    def updates(self) -> int:
        """How many updates fit in the budget.

        Raises:
            ConfigError: not one.
        """
        each = self.tokens_per_update
        if self.tokens < each:
            raise ConfigError(
                f"tokens = {self.tokens:,} is less than one update of {each:,} (block {self.block} "
                f"x batch_size {self.batch_size} x accumulation {self.accumulation}); raise "
                "tokens or lower one of these"
            )
        return self.tokens // each
