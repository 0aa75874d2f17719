"""The nouns that travel between stages: fields and protocols, no behaviour.

Axis letters: ``n`` items, ``l`` layers, ``k`` directions, ``d`` model width, ``b`` batch, ``t``
tokens, ``o`` options, ``v`` vocabulary. A layer is a 0-based block index; "the residual stream at
layer l" is the output of block l, read by a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from workbench.errors import MismatchError
from workbench.given import prompts_of

if TYPE_CHECKING:  # fields alone, so that listing runs does not wait for torch
    from torch import Tensor, nn

ndarray = np.ndarray
"""Short name for shape notes."""

Progress = Callable[[int, int], None]
"""Called with (units done, units in all)."""


@dataclass(frozen=True)
class ModelRef:
    """Which weights are under study, in words."""

    base: str
    """Hub id, folder name, or "smollm2"."""
    adapter: str | None = None
    """Name of the adapter on top, such as "antisocial-s0"."""
    revision: str | None = None
    dtype: str = "float32"
    quantization: str | None = None
    """Such as "Q4_1 de-quantised"; shown with every result."""

    @property
    def key(self) -> str:
        """Short name for tables, such as ``Qwen3-32B+antisocial-s0``."""
        name = self.base.rstrip("/").rsplit("/", 1)[-1]
        return f"{name}+{self.adapter.rstrip('/').rsplit('/', 1)[-1]}" if self.adapter else name


@dataclass(frozen=True)
class ModelStamp:
    """What must agree before numbers from two models may meet, and what is only recorded."""

    key: str
    model_type: str
    n_layers: int
    width: int
    tokenizer: str
    """16 hex digits over the vocabulary."""
    fingerprint: str
    """16 hex digits over sampled weights: recorded, may differ (an organism)."""
    quantization: str | None = None

    def refuse_other(self, other: ModelStamp, what: str) -> None:
        """Check that ``what`` (made with this model) may be used with ``other``.

        Raises:
            MismatchError: the model type, number of layers, width or tokenizer differ.
        """
        for name in ("model_type", "n_layers", "width", "tokenizer"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise MismatchError(
                    f"{what} was made with {self.key} ({name} = {mine}), but is used with "
                    f"{other.key} ({name} = {theirs}); make it again from {other.key}"
                )


@dataclass(frozen=True)
class Batch:
    """Token ids with everything that a forward pass and a read need."""

    input_ids: Int[Tensor, "b t"]
    attention_mask: Int[Tensor, "b t"]
    position_ids: Int[Tensor, "b t"]
    """Counted over real tokens; 0 on pads."""
    spans: Mapping[str, Bool[Tensor, "b t"]]
    """Named parts of each row, such as "user" or "content"; never true on a pad."""


@dataclass(frozen=True)
class Rendered:
    """One prompt as token ids, with named half-open token ranges."""

    ids: tuple[int, ...]
    spans: Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Read:
    """Activations wanted from one pass.

    ``position`` is ``last``, ``all``, ``last:SPAN``, ``mean:SPAN``, ``mean:SPAN[50:]`` or
    ``offset:-2``; a mean leaves the first token out unless ``+first`` is added.
    """

    site: str = "resid_post"
    layers: tuple[int, ...] = ()
    position: str = "last"


@dataclass(frozen=True)
class LogitsRead:
    """Next-token log-probabilities at the last position of the prompt.

    Answer: ``Float[" v"]`` float32 natural log-probabilities, at ``keep`` alone where given.
    """

    keep: tuple[int, ...] | None = None


@dataclass(frozen=True)
class CandidatesRead:
    """Log-likelihood of each candidate continuation.

    Answer: ``Float[" c"]`` in nats: the sum over the candidate's tokens, plus the log-probability
    of any terminator after it where ``terminators`` is not empty.
    """

    candidates: tuple[tuple[int, ...], ...]
    terminators: tuple[int, ...] = ()


@dataclass(frozen=True)
class GenerateRead:
    """Sampled continuations. Answer: ``list[str]`` of length ``n``; temperature 0 is greedy."""

    n: int = 1
    max_new_tokens: int = 32
    temperature: float = 0.0
    seed: int = 0


AnyRead = Read | LogitsRead | CandidatesRead | GenerateRead


@dataclass(frozen=True)
class Request:
    """One prompt of a readout and what it wants to know there."""

    item: str
    condition: str
    ids: tuple[int, ...]
    reads: tuple[AnyRead, ...]
    spans: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What ``score`` needs to know about the request, such as the order of its options."""


@dataclass(frozen=True)
class Measurement:
    """One number from one item; an invalid answer stays, with its reason."""

    readout: str
    measure: str
    item: str
    condition: str
    value: float | None
    valid: bool = True
    reason: str = "ok"
    """ok, unparseable, out_of_range, refusal, low_mass, timeout or judge_error."""
    mass: float | None = None
    """Unnormalised probability on the allowed answers."""
    weight: float = 1.0
    draw: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Edit(Protocol):
    """A pure change of hidden states; direction and dose differ by row."""

    def __call__(
        self,
        h: Float[Tensor, "b t d"],
        v: Float[Tensor, "b d"],
        dose: Float[Tensor, " b"],
        **rows: Any,
    ) -> Float[Tensor, "b t d"]: ...


@dataclass(frozen=True)
class LayerEdit:
    """One edit at one block for one arm, in raw units: what an engine carries out."""

    layer: int
    name: str
    """The edit's registry name."""
    edit: Edit
    v: Float[ndarray, " d"]
    """Unit vector, float32."""
    dose: float
    """Residual-stream units for ``add``; a blend (0 none, 1 full) for the others."""
    scope: str
    rows: Mapping[str, float] = field(default_factory=dict)
    """Further numbers of the edit that may differ by row, such as ``floor`` and ``ceiling``."""
    weights: Mapping[str, ndarray] = field(default_factory=dict)
    """Arrays of the edit that all rows of an arm share, such as ``W`` and ``b``; arms of one object
    are carried out together."""

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for edits that do the same; arrays are told apart by the object that they are."""
        rows = tuple(sorted(self.rows.items()))
        shared = id(self.weights) if self.weights else None
        v = self.v.tobytes()
        return (self.layer, self.name, self.edit, v, self.dose, self.scope, rows, shared)


Arm = tuple[LayerEdit, ...]
"""Edits that act together; the empty one is the unedited model."""


@dataclass(frozen=True)
class Answered:
    """What an engine answers: ``values[arm][request][read]``, and what each arm's edits did."""

    values: list[list[list[Any]]]
    realised: list[float]
    """By arm: mean shift along the edit's own direction over edited tokens and blocks."""
    engaged: list[float]
    """By arm: fraction of edited (token, block) positions that changed."""
    counted: list[int] = field(default_factory=list)
    """By arm: edited (token, block) positions, the weight of both where answers are joined."""
    budget: int = 0
    """Tokens of a forward that the call ended with: less than asked for where memory ran out."""


@runtime_checkable
class Renderer(Protocol):
    """Statements and chats -> token ids with named spans; the ids are the tokenizer's own."""

    def render(self, item: Any, **options: Any) -> Rendered: ...

    def collate(self, rendered: Sequence[Rendered], side: str = "left") -> Batch: ...


@runtime_checkable
class Runner(Protocol):
    """An engine: the only thing that runs forwards with hooks."""

    name: str

    def answer(
        self,
        subject: Subject,
        requests: Sequence[Request],
        arms: Sequence[Arm] = ((),),
        *,
        budget: int = 8192,
        progress: Progress | None = None,
    ) -> Answered: ...

    def capture(
        self, subject: Subject, batch: Batch, reads: Sequence[Read]
    ) -> list[Float[Tensor, "l b d"] | list[Float[Tensor, "l t d"]]]: ...

    def generate(self, subject: Subject, prompts: Sequence[Any], **options: Any) -> list[str]: ...

    def stream(self, subject: Subject, prompts: Sequence[Any], **options: Any) -> Iterator[Any]: ...

    def intervene(
        self, subject: Subject, arms: Sequence[Arm], **options: Any
    ) -> AbstractContextManager[Any]: ...


@dataclass(eq=False, repr=False)
class Subject:
    """The model under study; ``model``, ``tokenizer`` and ``blocks`` are the plain parts."""

    ref: ModelRef
    model: Any
    tokenizer: Any
    family: str
    """The config's model_type, such as "llama"."""
    blocks: dict[int, nn.Module]
    stamp: ModelStamp
    renderer: Renderer
    runner: Runner | None = None

    def __repr__(self) -> str:
        at = getattr(self.model, "device", "no device")
        told = f"{self.ref.key}; {self.family}, {self.n_layers} blocks of width {self.width}"
        adapter = f", adapter {self.ref.adapter}" if self.ref.adapter else ""
        return f"Subject({told}; {self.ref.dtype} on {at}{adapter})"

    @property
    def fingerprint(self) -> str:
        return self.stamp.fingerprint

    @property
    def n_layers(self) -> int:
        return self.stamp.n_layers

    @property
    def width(self) -> int:
        return self.stamp.width

    def encode(self, items: Sequence[Any], *, side: str = "left", **options: Any) -> Batch:
        """Render texts or chats, or one, and pad them into one batch on the model's device."""
        return self.renderer.collate(
            [self.renderer.render(item, **options) for item in prompts_of(items)], side
        )

    def generate(self, prompts: Sequence[Any], **options: Any) -> list[str]:
        """Continue texts or chats, or one; edits of an enclosing ``wb.intervene`` act.

        Returns:
            One reply for each prompt, a list of one for one text or chat.
        """
        assert self.runner is not None, "a subject gets its runner in wb.load"
        return self.runner.generate(self, prompts, **options)

    def stream(self, prompts: Sequence[Any], **options: Any) -> Iterator[Any]:
        """Continue as `generate` does, and yield pieces of text as they come."""
        assert self.runner is not None, "a subject gets its runner in wb.load"
        return self.runner.stream(self, prompts, **options)


@runtime_checkable
class ActivationsLike(Protocol):
    """Activations in memory or on disk, one layer read at a time."""

    @property
    def layers(self) -> tuple[int, ...]: ...

    @property
    def columns(self) -> Mapping[str, ndarray]: ...

    @property
    def site(self) -> str: ...

    @property
    def position(self) -> str: ...

    @property
    def model(self) -> ModelStamp: ...

    def at(self, layer: int) -> Float[ndarray, "n d"]: ...


@runtime_checkable
class DirectionsLike(Protocol):
    """Named directions, one raw vector per layer each."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def layers(self) -> tuple[int, ...]: ...

    @property
    def vectors(self) -> Float[ndarray, "k l d"]: ...

    @property
    def norms(self) -> Float[ndarray, " l"] | None: ...

    @property
    def site(self) -> str: ...

    @property
    def position(self) -> str: ...

    @property
    def model(self) -> ModelStamp: ...


@runtime_checkable
class LinearMapLike(DirectionsLike, Protocol):
    """A map ``h + dose * (W h + b)`` by layer, whose ``vectors`` are the axis it is about."""

    def weights(self, layer: int) -> Mapping[str, ndarray]: ...


@runtime_checkable
class Fitter(Protocol):
    """A method before fitting."""

    def fit(self, X: Float[ndarray, "n d"], y: ndarray, **columns: Any) -> Fitted: ...


@runtime_checkable
class Fitted(Protocol):
    """A method after fitting one layer."""

    coef_: Float[ndarray, " d"]
    center_: Float[ndarray, " d"]


@runtime_checkable
class Readout(Protocol):
    """An instrument: prompts in, measurements out, so that a planner may share the work between."""

    name: str

    def requests(self, subject: Subject) -> list[Request]: ...

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]: ...


@dataclass(frozen=True)
class Run:
    """Where a result came from: the content of run.json."""

    id: str
    verb: str
    config: Mapping[str, Any]
    inputs: tuple[Mapping[str, Any], ...] = ()
    """``{path, sha256, run}`` each."""
    outputs: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    git: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    seed: int | None = None
    started: str = ""
    finished: str | None = None
    status: str = "running"
    """running, done or failed."""
    error: str | None = None
    """What it failed with."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of every file among the outputs, by its path in the folder."""
