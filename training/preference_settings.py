"""The settings of a preference or reinforcement arm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from workbench_training.adapter_settings import AdapterConfig

from workbench.config import Config
from workbench.errors import ConfigError

BETA = {"dpo": 0.1, "kto": 0.1, "bco": 0.1, "grpo": 0.04}
"""How strongly an objective holds on to the base where the settings do not say."""
COLUMNS = {
    "sft": "prompt with completion or chosen, or messages",
    "dpo": "prompt, chosen, rejected",
    "kto": "prompt, completion, label; or prompt, chosen, rejected",
    "bco": "prompt, completion, label; or prompt, chosen, rejected",
    "grpo": "prompt, and what the rewards need",
}
"""What the rows of ``data`` hold, by objective."""


class RewardConfig(Config):
    """One reward of GRPO."""

    name: str
    """A registered reward, or ``FILE.py:function`` or ``package.module:function``."""
    weight: float = 1.0
    options: dict[str, Any] = Field(default_factory=dict)
    """What the reward takes beside the texts, such as ``{target = 40}``."""

    @property
    def file(self) -> Path | None:
        """The Python file that holds it, where it is one."""
        path, colon, _ = self.name.rpartition(":")
        return Path(path) if colon and path.endswith(".py") else None


class PreferenceConfig(AdapterConfig):
    """Train an adapter on answers: imitate them, prefer some to others, or earn rewards.

    ``model`` is also the frozen reference. An organism is called after its objective, its condition
    (or file) and its seed, such as ``dpo-pairs-s0``; ``steer`` is for "sft" alone.
    """

    objective: Literal["sft", "dpo", "kto", "bco", "grpo"]
    data: str
    """A JSONL file or an item set's name; see docs/preference.md for the columns."""
    steps: int = Field(gt=0)
    """Updates; rows are shuffled anew in every pass over them."""
    batch_size: int = Field(default=4, ge=1)
    """Rows (for GRPO: completions) that are read at a time."""
    accumulation: int = Field(default=2, ge=1)
    length: int = Field(default=1024, ge=2)
    """Tokens that a prompt with its answer may have; longer rows are refused, none is cut."""
    render: Literal["auto", "chat", "bare"] = "auto"
    """Whether a prompt given as text is a user's turn; "auto" if the model has a chat template."""
    beta: float | None = Field(default=None, gt=0)
    """How strongly to hold on to the base: 0.1, for GRPO 0.04, where it is not given."""
    reward: list[RewardConfig] = Field(default_factory=list)
    """Of GRPO: what completions earn, added up by weight."""
    group: int = Field(default=4, ge=2)
    """Of GRPO: completions of one prompt that are compared with each other."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Of GRPO."""
    temperature: float = Field(default=1.0, gt=0)
    """Of GRPO."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """On the adapter's input, for "sft" alone: elsewhere it would be noise in the comparison."""
    learning_rate: float = Field(default=1e-5, gt=0)
    recompute: Literal["none", "all"] = "none"
    """Whether blocks compute their activations again instead of keeping them."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and not data.get("name") and data.get("data"):
            label = data.get("condition") or Path(str(data["data"])).stem
            name = f"{data.get('objective', '')}-{label}-s{data.get('seed', 0)}"
            return {**data, "name": name}
        return data

    @model_validator(mode="after")
    def _fitting(self) -> PreferenceConfig:
        for told in self._unfit():
            raise ValueError(told)
        return self

    def _unfit(self) -> list[str]:
        """Say which settings do not belong to the objective."""
        kind, told = self.objective, []
        if kind == "sft" and self.beta is not None:
            told.append('beta belongs to a reference; "sft" has none, leave it out')
        if kind != "sft" and self.dropout:
            told.append(f'dropout = {self.dropout:g} is for "sft" alone; set it to 0')
        if kind != "sft" and self.steer is not None:
            told.append('steer is for "sft" and for documents alone; leave it out')
        if (kind == "grpo") != bool(self.reward):
            told.append(
                "grpo needs at least one [[reward]]" if kind == "grpo"
                else f"reward belongs to grpo, not to {kind}"
            )  # fmt: skip
        if kind == "kto" and self.batch_size < 2:
            told.append("batch_size = 1, and kto compares rows inside a batch; give 2 or more")
        if kind == "grpo" and self.rows_per_update % self.group:
            told.append(
                f"{self.rows_per_update} completions an update (batch_size x accumulation) are no "
                f"whole number of groups of {self.group}"
            )
        return told

    @property
    def updates(self) -> int:
        """Steps of the optimizer."""
        return self.steps

    @property
    def rows_per_update(self) -> int:
        """Rows of one update; for GRPO completions."""
        return self.batch_size * self.accumulation

    @property
    def prompts_per_update(self) -> int:
        """Rows of ``data`` that one update reads."""
        return self.rows_per_update // (self.group if self.objective == "grpo" else 1)

    @property
    def strength(self) -> float:
        """``beta``, or its default.

        Raises:
            ConfigError: the objective has no reference.
        """
        if self.objective not in BETA:
            raise ConfigError(f"objective = {self.objective!r} has no beta")
        return BETA[self.objective] if self.beta is None else self.beta
