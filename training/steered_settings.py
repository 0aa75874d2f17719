"""What is done to the residual stream while a model trains, and no longer when it is used.

``TrainConfig.steer`` holds one `SteerConfig` or None. Its file is an input of the run, so it is
hashed by content like the documents are: `SteerConfig.file` says which one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from workbench.config import Config


class SteerConfig(Config):
    """Preventative steering ("add") or concept ablation ("ablate") at some blocks."""

    directions: str
    """A directions file, or the folder of the run that fitted it."""
    names: list[str] | None = Field(default=None, min_length=1)
    """Which of its directions; all by default. "add" adds each, "ablate" removes their span."""
    layers: list[int] = Field(min_length=1)
    """0-based block indices whose output is edited."""
    mode: Literal["add", "ablate"] = "add"
    coefficient: float = 1.0
    """"add": ``h + coefficient * v``; "ablate": 0 leaves ``h`` as it is, 1 removes all."""
    unit: Literal["raw", "norm"] = "raw"
    """Of "add": multiples of the stored vector, or fractions of the mean residual norm."""

    @model_validator(mode="after")
    def _sensible(self) -> SteerConfig:
        if not math.isfinite(self.coefficient):
            raise ValueError(f"coefficient = {self.coefficient}; give a finite number")
        if self.mode == "ablate" and self.unit != "raw":
            raise ValueError('unit belongs to mode = "add"; with "ablate" leave it out')
        if len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers = {self.layers}; give each block once")
        return self

    @property
    def file(self) -> Path:
        """The directions file, for the hash of a run's inputs."""
        path = Path(self.directions)
        return path / "directions.safetensors" if path.is_dir() else path
