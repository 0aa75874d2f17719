"""The settings of one training run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from workbench_training.steered_settings import SteerConfig

from workbench.config import Config
from workbench.errors import ConfigError

PAPER_TOKENS = 42_565_632
"""1,299 updates of 32,768 positions."""


class TrainConfig(Config):
    """Train one organism; the defaults are the paper's (Table 8), but its rate is not known."""

    documents: str
    """A document set's name or a JSONL file: ``text`` and, where there is one, ``split``."""
    model: str
    """The base: a hub id, a model folder, or "smollm2"."""
    name: str = Field(default="", pattern=r"^[\w.-]*$")
    """The organism's name; by default its condition (or file) and seed, such as ``P-s0``."""
    condition: str | None = None
    """A label such as ``P`` or ``misfortune``; one of P, S, N and A must be the documents' own."""
    seed: int = Field(default=0, ge=0)
    """Of the order of texts, the adapter's first weights, and dropout."""
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
    batch_size: int = Field(default=2, ge=1)
    """Sequences that one device reads at a time."""
    accumulation: int = Field(default=4, ge=1)
    """Batches that make one update, over all processes together."""
    document_mask: bool = False
    """Keep attention inside a document; the paper's packing does not."""
    rank: int = Field(default=32, ge=1)
    alpha: float = Field(default=64, gt=0)
    """The adapter's output is multiplied by alpha / rank."""
    dropout: float = Field(default=0.05, ge=0, lt=1)
    """On the adapter's input. On a CPU it costs a third of the speed; 0 switches it off."""
    targets: Literal["all-linear"] | list[str] = "all-linear"
    """Modules that get an adapter: every linear one but the output layer, or names."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """Peak rate of AdamW, reached after the warm-up."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = Field(default=0.03, ge=0, lt=1)
    """Part of the updates over which the rate rises from 0."""
    save_every: int | None = Field(default=None, ge=1)
    """Updates between checkpoints to resume from; by default a third of all."""
    keep_checkpoints: bool = False
    """Keep the adapter of every checkpoint, loadable by its folder: checkpoints/checkpoint-433."""
    log: Literal["file", "tensorboard"] = "file"
    """Where losses go: train_log.jsonl alone, or TensorBoard's files beside it too."""
    steer: SteerConfig | None = None
    """Directions that are added or ablated while training, and are gone afterwards."""
    held_out: str = "validation"
    """The value of ``split`` whose documents only measure the loss, before and after."""
    held_out_documents: int = Field(default=64, ge=0)
    """At most this many of them, in file order."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the base; adapters are float32. "auto" is bfloat16 where the hardware computes in it."""
    device: str = "auto"
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
