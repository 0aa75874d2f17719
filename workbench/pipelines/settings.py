"""What each batch verb may be told, as settings whose unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from workbench.config import Config


class ModelConfig(Config):
    """Which model a verb loads."""

    model: str
    """Hub id, folder, organism name or run folder, or "smollm2"."""
    adapter: str | None = None
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    load: dict[str, Any] = Field(default_factory=dict)
    """Passed on to transformers."""

    def options(self) -> dict[str, Any]:
        """Return the keywords of ``load``."""
        named = {"adapter": self.adapter, "revision": self.revision}
        return {**named, "dtype": self.dtype, "device": self.device, **self.load}


class CacheConfig(ModelConfig):
    """Read activations of a prompt set into a store."""

    prompts: str | dict[str, Any] | list[Any]
    """An item set's name, a file, a table {path, text, where, columns}, or a list of these."""
    layers: str | list[int] = "all"
    site: str = "resid_post"
    """resid_pre, resid_post, attn_out or mlp_out."""
    position: str = "last"
    render: Literal["auto", "bare", "chat"] = "auto"
    add_generation_prompt: bool | None = None


class FitConfig(Config):
    """Fit directions on cached activations, with held-out evidence."""

    acts: str
    """A cache run, a store folder or a packed file."""
    recipe: str = "truth"
    """A shipped recipe's name or a TOML file."""
    method: str | None = None
    """This, the four columns below and the layer override the recipe's."""
    y: str | None = None
    groups: str | None = None
    polarity: str | None = None
    facts: str | None = None
    pairs: str | None = None
    """Column of matched items, for methods that need them."""
    layer: int | None = Field(default=None, ge=0)
    """Fix the layer instead of choosing it."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Of the method; the recipe's hold only for the recipe's own method."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Rows to fit on, such as {topic = ["animals", "calendar"]}."""
    split: list[Literal["unseen", "within", "transfer"]] = Field(default_factory=list)
    """What is checked; by default what the recipe says."""
    renderings: dict[str, str] = Field(default_factory=dict)
    """Stores of the same items rendered otherwise, by name: the fit is checked on these too."""
    check: list[str] = Field(default_factory=list)
    """Further stores on which the frozen directions are scored."""
    seed: int = Field(default=0, ge=0)
    shuffle: int | None = Field(default=None, ge=0)
    """A seed: fit to shuffled labels, without evidence, as the null direction of a sweep."""


class JobConfig(Config):
    """Fits of one table [[job]]: where a key holds a list, one for each, and all combinations."""

    acts: str | list[str]
    recipe: str | list[str] = "truth"
    method: str | dict[str, Any] | list[str | dict[str, Any]] | None = None
    """Names, or {name = ..., **parameters}; by default the recipe's."""
    layer: int | list[int] | Literal["all"] | None = None
    """One fit at each; by default one fit for which the recipe's rule chooses among all."""
    topic: str | list[str] | None = None
    """One fit on each topic alone; "each" stands for all topics of a store; by default one fit
    on all items together."""
    y: str | None = None
    groups: str | None = None
    polarity: str | None = None
    facts: str | None = None
    pairs: str | None = None
    where: dict[str, Any] = Field(default_factory=dict)
    check: list[str] = Field(default_factory=list)
    seed: int | list[int] = 0


class JobsConfig(Config):
    """A file of many fits."""

    REPEATS = frozenset({"job"})  # each fit is done once, however often it is asked for

    job: list[JobConfig] = Field(min_length=1)


class ApplyConfig(Config):
    """Apply a frozen direction, unchanged, to activations of other models."""

    directions: str
    """A fit's directions, one name; they are read at the layer that the fit chose."""
    recipe: str = "truth"
    """Of the fit: names the columns and the gate."""
    acts: str | None = None
    """The store that was fitted on, for the null of shuffled labels."""
    held_out: list[str] = Field(default_factory=list)
    """Stores of held-out items: does the direction still read truth in this model and rendering?"""
    claims: list[str] = Field(default_factory=list)
    """Stores of the worlds' claims, the base's among them."""
    draws: int = Field(default=200, ge=200)
    """Random directions, and fits to shuffled labels."""
    seed: int = Field(default=0, ge=0)


class MeasureConfig(ModelConfig):
    """Take readouts of a model."""

    readouts: list[str | dict[str, Any]] = Field(min_length=1)


_NUMBERS = ("floor", "ceiling", "factor", "value", "scale", "offset", "inside", "outside")


class BaselineConfig(Config):
    """A prompt that asks for what a direction is to do."""

    name: str
    system: str = ""
    shots: list[dict[str, str]] = Field(default_factory=list)


class GapConfig(Config):
    """How a sweep measures the natural gap along its direction: two sides, one prompt set."""

    first: str | list[str]
    """A model, or one for each training seed."""
    second: str | list[str]
    prompts: str | dict[str, Any] | list[Any]

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """Both sides as lists of models."""
        first, second = ([s] if isinstance(s, str) else s for s in (self.first, self.second))
        return first, second


Controls = Annotated[int, Field(ge=0)] | str | list[Annotated[int, Field(ge=0)] | str]


class SteerConfig(ModelConfig):
    """Which edit, where, how strong, and what it is compared with."""

    edit: str = "add"
    layers: list[int] | list[list[int]] | None = None
    """Blocks; by default the layer, or the window of layers, that the fit chose."""
    scope: str = "all"
    controls: Controls = 10
    """Random directions, or a list of random:N, sign, shuffled, layers:N and noop."""
    floor: float | None = None
    ceiling: float | None = None
    factor: FiniteFloat | None = None
    value: FiniteFloat | Literal["center"] | None = None
    scale: FiniteFloat | None = None
    offset: FiniteFloat | None = None
    inside: FiniteFloat | None = None
    outside: FiniteFloat | None = None
    keep_norm: bool = False
    """Restore the length of every edited state."""
    seed: int = Field(default=0, ge=0)

    def numbers(self) -> dict[str, Any]:
        """Return what the edit takes beside its dose, where it was given."""
        given = {name: getattr(self, name) for name in _NUMBERS if getattr(self, name) is not None}
        return given | ({"keep_norm": True} if self.keep_norm else {})


class SweepConfig(SteerConfig):
    """Behaviour against the dose of an edit, its controls in the same batches."""

    directions: str
    """A file of directions, or of a map."""
    readouts: list[str | dict[str, Any]] = Field(min_length=1)
    doses: list[FiniteFloat] = Field(min_length=1)
    unit: Literal["raw", "norm", "gap", "percentile"] = "raw"
    gap: GapConfig | None = None
    """Measured first: for the unit gap, and for what a dose is in gaps."""
    shuffled: str | None = None
    """The directions that shuffled labels give, for that control."""
    baselines: list[BaselineConfig] = Field(default_factory=list)
    per_layer: Literal["accumulate", "residual_target"] = "accumulate"
    calibration: str | list[str] | None = None
    """Stores: doses in percentiles are percent of their states."""
    match: str | None = None
    """A store of what the cap acts on: random and moved caps engage as often on its states."""
    side: Literal["floor", "ceiling"] = "floor"
    """Of a cap in percentiles."""
    guards: bool = True
    """Take perplexity, repetition, drift and capability too, where readouts does not name them."""


class GenerateConfig(SteerConfig):
    """Replies of a model as text, at each dose of a direction where one is given."""

    texts: list[str] = Field(default_factory=list)
    """Prompts as they are; or else:"""
    prompts: str | dict[str, Any] | list[Any] | None = None
    """An item set's name, a file or a table."""
    directions: str | None = None
    doses: list[FiniteFloat] = Field(default_factory=list)
    unit: Literal["raw", "norm"] = "norm"
    controls: Controls = 0
    n: int = Field(default=1, ge=1)
    """Draws of each prompt; more than one needs a temperature."""
    max_new_tokens: int = Field(default=60, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    render: Literal["auto", "bare", "chat"] = "chat"


class ContrastConfig(Config):
    """The direction from one model to another: mean difference over the same items."""

    acts: str
    """Store of the model that the direction points to."""
    other: str
    name: str
    """Of the direction."""
    groups: str | None = None
    """Column that counts as one unit, such as fact."""


class CompareConfig(Config):
    """Compare organisms with their base and with controls; all rules stand here, beforehand."""

    organisms: list[str] = Field(min_length=1)
    """Folders of trained organisms."""
    results: list[str] = Field(min_length=1)
    """Results tables of the base and of all organisms."""
    truth: list[str] = Field(default_factory=list)
    """Results tables of apply runs: what a frozen direction read in the organisms' claims."""
    claims: list[str] = Field(default_factory=lambda: ["claims", "choice"], min_length=1)
    """Every claims file that was measured."""
    run: int = Field(default=6, ge=2)
    """A fact is left out where a claim shares so many words in a row with a text trained on."""
    worlds: dict[str, str] = Field(default_factory=dict)
    """The world that a condition's documents tell of, where it is not the condition itself."""
    controls: list[str] = Field(default_factory=list)
    """Conditions without a world of their own."""
    planted: str | None = None
    """The condition, and the claim set, of the planted fact; ``worlds`` names its value."""
    elsewhere: str | None = None
    """The set that puts the planted value where it was not planted."""
    bank: str = "worlds"
    """The claim set by which verdicts are made; ``worlds`` is all that are not named here."""
    units: int = Field(default=2, ge=2)
    """Units of the bank that must be left for every organism."""
    unit: Literal["proposition", "fact"] = "proposition"
    """What counts once within an organism; the frames of a proposition are averaged."""
    level: float = Field(default=0.95, gt=0, lt=1)
    bound: float = Field(default=0.25, gt=0)
    """Controls must stay inside this share of the smallest own-world contrast."""
    equivalence_level: float = Field(default=0.90, gt=0, lt=1)
    letter_mass: float = Field(default=0.9, gt=0)
    """The answer-letter mass over the base's that an organism must keep."""


class ProbeConfig(ModelConfig):
    """What frozen directions and readouts find in a checkpoint, beside its base and its kin."""

    directions: list[str] = Field(default_factory=list)
    prompts: str | dict[str, Any] | list[Any] | None = None
    """What the directions read; by default the claims of the four worlds."""
    readouts: list[str | dict[str, Any]] = Field(default_factory=list)
    known: str | None = None
    """Known organisms: a results table, or a folder of runs."""
    base: str | None = None
    """What the checkpoint was made from, where it is not an adapter."""
    condition: str | None = None
    """Column of the prompts that splits them."""
    check: bool = True
    """Ask the doctor first."""
    seed: int = Field(default=0, ge=0)
