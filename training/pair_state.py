"""What a training run on pairs keeps on disk, so that a killed one goes on to the same numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from workbench_training import organism

from workbench.errors import ConfigError, FormatError
from workbench.files import make_folder, write_bytes
from workbench.types import ndarray

CHECKPOINT = "checkpoint.safetensors"
REFERENCE = "reference.safetensors"
FORMAT = "interp-workbench/pair-training"
SECONDS = 10.0
"""Between checkpoints where no number of updates is given."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW knows of each parameter."""


@dataclass(frozen=True)
class Reference:
    """What the model does unedited."""

    logprobs: Float[ndarray, "2 n"]
    """Of the chosen and the rejected reply, in nats; pairs trained on, then those held out."""
    norms: Float[ndarray, " l"]
    """Mean residual norm over the tokens that an edit acts on, of pairs trained on."""


class State:
    """The files of one run in a folder; without a folder it keeps nothing.

    Args:
        folder: where they go.
        identity: 12 hex digits over everything that decides what is learned and measured.
        every: updates between checkpoints.
    """

    def __init__(self, folder: Path | None, identity: str, every: int | None) -> None:
        self.folder, self.identity, self.every = folder, identity, every
        self._saved = time.monotonic()
        if folder is not None:
            make_folder(folder)

    def reference(self) -> Reference | None:
        """Return what an earlier start measured of the unedited model."""
        found = self._read(REFERENCE)
        if found is None:
            return None
        tensors, _ = found
        return Reference(tensors["logprobs"].numpy(), tensors["norms"].numpy())

    def keep_reference(self, reference: Reference) -> None:
        values = {"logprobs": reference.logprobs, "norms": reference.norms}
        self._write(REFERENCE, {name: torch.from_numpy(v) for name, v in values.items()}, 0)

    def restore(self, parameters: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> int:
        """Fill parameters and optimizer from the last checkpoint; return the updates it has."""
        found = self._read(CHECKPOINT)
        step = 0
        if found is not None:
            tensors, step = found
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.copy_(tensors[name])
                    optimizer.state[parameter] = {
                        kind: tensors[f"{name}/{kind}"].to(
                            "cpu" if kind == "step" else parameter.device
                        )
                        for kind in MOMENTS
                    }
        if self.folder is not None:
            organism.rewind_log(self.folder, step)
        return step

    def log(self, row: Mapping[str, float | int]) -> None:
        if self.folder is not None:
            organism.log_step(self.folder, row)

    def keep(
        self,
        step: int,
        parameters: Mapping[str, Tensor],
        optimizer: torch.optim.Optimizer,
        *,
        last: bool = False,
    ) -> None:
        """Write a checkpoint where one is due, or after the last update."""
        due = time.monotonic() - self._saved >= SECONDS
        if self.every is not None:
            due = step % self.every == 0
        if self.folder is None or not (due or last):
            return
        tensors = dict(parameters)
        for name, parameter in parameters.items():
            moments = optimizer.state[parameter]
            tensors |= {f"{name}/{kind}": moments[kind] for kind in MOMENTS}
        self._write(CHECKPOINT, tensors, step)
        self._saved = time.monotonic()

    def discard(self) -> None:
        """Remove what only serves to go on."""
        if self.folder is not None:
            for name in (CHECKPOINT, REFERENCE, organism.LOG):
                (self.folder / name).unlink(missing_ok=True)

    def _write(self, name: str, tensors: Mapping[str, Tensor], step: int) -> None:
        if self.folder is None:
            return
        header = {"format": FORMAT, "identity": self.identity, "step": str(step)}
        flat = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        write_bytes(self.folder / name, save(flat, header))

    def _read(self, name: str) -> tuple[dict[str, Tensor], int] | None:
        path = self.folder / name if self.folder is not None else None
        if path is None or not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise FormatError(
                f"{path} is damaged ({error}); remove it, and training starts again"
            ) from None
        if header.get("identity") != self.identity:
            raise ConfigError(
                f"{path.parent} holds a training run with other settings, pairs or model "
                f"({header.get('identity')}, not {self.identity}); give another folder, or the "
                "same settings to go on"
            )
        return tensors, int(header["step"])
