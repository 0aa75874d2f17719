"""Preventative steering and concept ablation: edits of a model's blocks while it trains.

Adding a trait's direction during finetuning relieves the weights of learning it (Chen et al. 2025);
projecting a concept out during finetuning keeps them from using it (Casademunt et al. 2025).
Neither edit is there when the organism is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from workbench_training.steered_settings import SteerConfig

from workbench.directions import open_directions
from workbench.engine.apply import arm_of
from workbench.engine.blocks import check_layers, hidden_of, watching, with_hidden
from workbench.interventions import Intervention
from workbench.types import LayerEdit, Subject


@contextmanager
def applied(config: SteerConfig | None, subject: Subject) -> Iterator[None]:
    """Edit the output of blocks in training mode, at every position; gone when the block ends.

    A block in evaluation mode is left alone, so that a held-out loss in between is of the model as
    it will be used. Pads are edited too: nothing reads them. Gradients flow through an edit, and a
    block that gradient checkpointing runs again is edited again.

    Args:
        config: what to do; None does nothing.
        subject: the base whose network is trained; its adapter may be in place already.

    Raises:
        ConfigError: no such directions file.
        UnknownNameError: it holds no direction of that name.
        MismatchError: its directions are of another kind of model.
        WorkbenchError: a block that the model or the file lacks, or a vector that is zero.
    """
    if config is None or config.coefficient == 0:
        yield
        return
    edits: dict[int, list[Placed]] = defaultdict(list)
    for edit in planned(config, subject):
        edits[edit.layer].append(Placed(edit))

    def see(layer: int, output: Any) -> Any:
        if not subject.blocks[layer].training:
            return output
        h = hidden_of(output)
        with torch.autocast(h.device.type, enabled=False):  # it would round float32 products
            for placed in edits[layer]:
                h = placed(h)
        return with_hidden(output, h)

    with watching(subject, sorted(edits), see):
        yield


def planned(config: SteerConfig, subject: Subject) -> tuple[LayerEdit, ...]:
    """Return the edits in raw units, checked against the model.

    Raises:
        WorkbenchError: as `applied`.
    """
    check_layers(subject, config.layers)
    found = open_directions(config.directions)
    found = found if config.names is None else found[config.names]
    where: dict[str, Any] = {"layers": config.layers, "dose": config.coefficient}
    if config.mode == "ablate":
        every = Intervention.project_to_subspace(found, inside=0.0, outside=1.0, **where)
        return arm_of(subject, [every])
    singles = [Intervention.add(found[name], unit=config.unit, **where) for name in found.names]
    return arm_of(subject, singles)


class Placed:
    """One edit with its tensors on the device of what it edits, put there once."""

    def __init__(self, edit: LayerEdit) -> None:
        self._edit = edit
        self._parts: dict[torch.device, tuple[Tensor, Tensor, dict[str, Tensor]]] = {}

    def __call__(self, h: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        if h.device not in self._parts:
            self._parts[h.device] = self._put(h.device)
        v, dose, weights = self._parts[h.device]
        rows = {
            name: torch.full((len(h),), value, device=h.device)
            for name, value in self._edit.rows.items()
        }
        return self._edit.edit(h, v.expand(len(h), -1), dose.expand(len(h)), **rows, **weights)

    def _put(self, device: torch.device) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        weights = {
            name: torch.as_tensor(values, dtype=torch.float32).to(device)
            for name, values in self._edit.weights.items()
        }
        v = torch.as_tensor(self._edit.v, dtype=torch.float32).to(device)
        return v, torch.tensor(self._edit.dose, dtype=torch.float32, device=device), weights
