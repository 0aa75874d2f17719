"""What every training run sets, whatever it trains on: base, adapter, rate, checkpoints, place."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from workbench_training.steered_settings import SteerConfig

from workbench.config import Config


class AdapterConfig(Config):
    """The settings that runs on documents and runs on answers share; the defaults are Table 8's."""

    model: str
    """The base: a hub id, a model folder, or "smollm2"."""
    name: str = Field(default="", pattern=r"^[\w.-]*$")
    """The organism's name; by default it says what was trained on and the seed."""
    condition: str | None = None
    """A label such as ``P`` or ``misfortune``."""
    seed: int = Field(default=0, ge=0)
    """Of the order of what is read, the adapter's first weights, dropout, and samples."""
    batch_size: int = Field(default=2, ge=1)
    """Sequences that one device reads at a time."""
    accumulation: int = Field(default=4, ge=1)
    """Batches that make one update, over all processes together."""
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
    steer: SteerConfig | None = None
    """Directions that are added or ablated while training, and are gone afterwards."""
    held_out: str = "validation"
    """The value of ``split`` whose rows only measure the loss, before and after."""
    held_out_documents: int = Field(default=64, ge=0)
    """At most this many of them, in file order."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the base; adapters are float32. "auto" is bfloat16 where the hardware computes in it."""
    device: str = "auto"

    @property
    def updates(self) -> int:
        """Steps of the optimizer."""
        raise NotImplementedError
