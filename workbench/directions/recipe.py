"""Recipes: which prompts, read, fit, layer rule and checks make a concept's directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workbench.config import Config, parse, read_toml
from workbench.errors import unknown

FOLDER = Path(__file__).parent / "recipes"


class PromptsPart(Config):
    """What the model reads."""

    set: str = "statements"
    """An item set that ships with the package, or a prompt file."""
    render: Literal["auto", "bare", "chat"] = "bare"


class ReadPart(Config):
    """Where its activations are read."""

    site: str = "resid_post"
    position: str = "last"


class FitPart(Config):
    """How a direction comes of them.

    The columns ``groups``, ``polarity``, ``facts`` and ``pairs`` may be absent from the
    activations, unless a recipe names them itself.
    """

    method: str
    name: str = "truth"
    """Of the direction; positive means more of it."""
    y: str = "label"
    groups: str = "topic"
    polarity: str = "polarity"
    facts: str = "fact"
    """The unit to split and to resample by."""
    pairs: str = "fact"
    """Matched items, for the methods that need them."""
    params: dict[str, Any] = Field(default_factory=dict)


class LayersPart(Config):
    """How the layer is chosen, on held-out topics."""

    rule: Literal["lowest_polarity", "balanced"] = "lowest_polarity"
    """Maximise the lower, or the mean, of the two polarities' AUC averaged over held-out topics."""
    candidates: Literal["all"] | list[int] = "all"


class CheckPart(Config):
    """What evidence is written."""

    split: list[Literal["unseen", "within", "transfer"]] = Field(
        default=["unseen", "within"], min_length=1
    )
    held_out: str | None = None
    """An item set whose facts take no part in the fit, the choice of the layer or these checks."""
    controls: list[Literal["shuffled", "random"]] = Field(default=["shuffled", "random"])
    draws: int = Field(default=200, ge=20)
    """Directions in each null."""
    bootstrap: int = Field(default=1000, ge=100)
    gate: float = Field(default=0.9, gt=0.5, le=1)
    """AUC that the lower polarity must reach for a reading to be called usable."""


class Recipe(Config):
    """One concept."""

    prompts: PromptsPart = PromptsPart()
    read: ReadPart = ReadPart()
    fit: FitPart
    layers: LayersPart = LayersPart()
    check: CheckPart = CheckPart()


def shipped_recipes() -> dict[str, Path]:
    """Return the file of every recipe that ships with the package, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def recipe_path(name: str | Path) -> Path:
    """Return the file of a shipped recipe, or the given file.

    Raises:
        UnknownNameError: neither a shipped name nor a TOML file.
    """
    if str(name) in shipped_recipes():
        return shipped_recipes()[str(name)]
    if Path(name).suffix != ".toml":
        raise unknown("recipe", str(name), shipped_recipes(), "Or give the path of a TOML file.")
    return Path(name)


def read_recipe(name: str | Path) -> Recipe:
    """Read a shipped recipe by name, or a TOML file.

    Raises:
        UnknownNameError: no such recipe.
        ConfigError: no such file, not TOML, or a wrong key.
    """
    path = recipe_path(name)
    return parse(Recipe, read_toml(path), str(path))
