"""What every method has that a model trains on pairs: its runs, its edit, its loss, its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator
from torch import Tensor

from workbench.directions import Directions, LinearMap
from workbench.types import ModelStamp, ndarray


@dataclass(frozen=True)
class Run:
    """One way in which a reply of each pair goes through the model in an update."""

    reply: Literal["chosen", "rejected"]
    strength: float = 1.0
    """What the edit is multiplied by; 0 leaves the model as it is."""
    null: bool = False
    """Take the concept out, in place of adding it."""


BOTH = (Run("chosen"), Run("rejected"))


@dataclass(frozen=True)
class Marks:
    """Where, and how strongly, an edit acts in a batch."""

    strength: Float[Tensor, "b t"]
    """0 on tokens that are left alone."""
    null: Float[Tensor, "b t"]
    """1 on tokens of rows that take the concept out."""
    nulls: bool = False
    """Whether there are such rows."""


@dataclass(frozen=True)
class Known:
    """What is known of the pairs of a batch before any edit."""

    reference: Float[Tensor, "2 b"]
    """Log-probability of the chosen and of the rejected reply without an edit, in nats."""
    sizes: Float[Tensor, "2 b"]
    """Tokens of both."""


@dataclass(frozen=True)
class Loss:
    """What a batch's pairs cost, and what is worth a look."""

    losses: Float[Tensor, " b"]
    told: Mapping[str, Float[Tensor, " b"]] = field(default_factory=dict)
    """Such as ``margin`` and ``reward_chosen``; averaged over an update."""


@dataclass(frozen=True)
class Learned:
    """What training found, and what its result says of where it holds."""

    parameters: Mapping[str, Tensor]
    layers: tuple[int, ...]
    model: ModelStamp
    norms: Float[ndarray, " l"]
    """Mean residual norm over the edited tokens."""
    position: str
    info: Mapping[str, Any]
    shift: Float[ndarray, "l d"] | None = None
    """Mean displacement of the edited tokens, for maps."""


def refuse_no_number(name: str, value: Any, *, above: bool = False) -> None:
    """Refuse what is no finite number of 0 or more, or above 0; true and false are none.

    Raises:
        ValueError: what was given, and what is expected.
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not (0 < value < np.inf or (value == 0 and not above)):
        least = "above 0" if above else "of 0 or more"
        raise ValueError(f"{name} = {value!r}; expected a number {least}")


class PairMethod(BaseEstimator):
    """A method that a model trains on pairs; its parameters are its settings.

    At the start its edit changes nothing. Positive doses make the chosen replies likelier.
    """

    gives: ClassVar[str] = "direction"
    needs: ClassVar[tuple[str, ...]] = ("model",)

    def check(self) -> None:
        """Refuse settings that make no sense.

        Raises:
            ValueError: what was given, and what is expected.
        """

    def start(self, layers: int, width: int, seed: int) -> dict[str, Tensor]:
        """Return the first numbers of what is trained, float32, the first axis the layer."""
        raise NotImplementedError

    def parts(self, parameters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what the edit reads, formed once a forward; the first axis is the layer."""
        return parameters

    def edited(
        self, h: Float[Tensor, "b t d"], part: Mapping[str, Tensor], marks: Marks
    ) -> Float[Tensor, "b t d"]:
        """Return a block's edited output, float32; ``part`` is the layer's own."""
        raise NotImplementedError

    def runs(self, rng: np.random.Generator) -> tuple[Run, ...]:
        """Say how the pairs of one update run; what is drawn is drawn here."""
        raise NotImplementedError

    def loss(self, runs: Sequence[Run], logprobs: Float[Tensor, "r b"], known: Known) -> Loss:
        """Return the loss of each pair from the log-probabilities of its runs."""
        raise NotImplementedError

    def settle(self, parameters: Mapping[str, Tensor], rate: float) -> None:
        """Do what follows an update of the optimizer, in place."""

    def sizes(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, " l"]:
        """Return the length of what each layer's edit is made of; 0 where it does nothing."""
        raise NotImplementedError

    def result(self, learned: Learned, name: str) -> Directions | LinearMap:
        """Return what was learned."""
        raise NotImplementedError


class VectorMethod(PairMethod):
    """A method whose edit adds one vector a block, ``h + strength * v``."""

    def start(self, layers: int, width: int, seed: int) -> dict[str, Tensor]:  # noqa: ARG002
        return {"v": torch.zeros(layers, width)}

    def edited(
        self, h: Float[Tensor, "b t d"], part: Mapping[str, Tensor], marks: Marks
    ) -> Float[Tensor, "b t d"]:
        # As a product, whose gradient is one too: nothing of the size of h is kept for it.
        return h + torch.outer(marks.strength.flatten(), part["v"]).view(h.shape)

    def sizes(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, " l"]:
        lengths: Tensor = torch.linalg.vector_norm(parameters["v"].detach(), dim=1)
        return lengths

    def result(self, learned: Learned, name: str) -> Directions:
        v = learned.parameters["v"].detach().cpu().numpy()
        return Directions(
            names=(name,),
            layers=learned.layers,
            vectors=v[None],
            model=learned.model,
            norms=learned.norms,
            position=learned.position,
            info=learned.info,
        )
