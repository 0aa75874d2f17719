"""What each batch verb may be told, as settings whose unknown keys are errors."""

from __future__ import annotations

from typing import Any, Literal

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
    """Column of matched items, for methods that give a map."""
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
    where: dict[str, Any] = Field(default_factory=dict)
    check: list[str] = Field(default_factory=list)
    seed: int | list[int] = 0


class JobsConfig(Config):
    """A file of many fits."""

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


class SweepConfig(ModelConfig):
    """Behaviour against the dose of an edit, with random-direction controls."""

    directions: str
    readouts: list[str | dict[str, Any]] = Field(min_length=1)
    doses: list[FiniteFloat] = Field(min_length=1)
    edit: str = "add"
    layers: list[int] | list[list[int]] | None = None
    """Blocks; by default the layer that the fit chose."""
    unit: Literal["raw", "norm"] = "raw"
    """Gaps are measured between subjects, so doses in gaps are for ``wb.sweep`` alone."""
    scope: str = "all"
    controls: int = Field(default=10, ge=0)
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
