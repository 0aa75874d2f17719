"""The verb profiles: emotion vectors in organisms' states, and a direction fitted to their gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError, unknown
from workbench.files import write_bytes
from workbench.pipelines.verb import Verb, Work, save_frame

if TYPE_CHECKING:
    import pandas as pd

    from workbench.directions import Directions
    from workbench.emotions.profiles import Fleet

GAPS, PROFILES, SEEDS = "gaps.parquet", "profiles.parquet", "profiles_by_seed.parquet"
CONTRAST = "contrast.safetensors"
PEAK = "peak"


class ProfilesConfig(Config):
    """Read saved directions in organisms and their base, on one prompt set."""

    directions: list[str] = Field(min_length=1)
    """Files of emotion vectors and composites, of different names."""
    acts: list[str] = Field(min_length=1)
    """Stores of the same items, with the column half: of the base, and of each organism."""
    high: str = "A"
    """Condition whose gap over ``low`` is positive."""
    low: str = "P"
    window: list[int] | None = None
    """Layers that are averaged; by default the window in the first file."""
    curves: str | None = None
    """``curves.parquet`` of the emotions run: the held-out AUC stands beside every gap."""
    contrast: list[str] = Field(default_factory=lambda: ["anger", "disgust", "fear", "joy"])
    """Emotions on whose span the gap of the first half is projected; none for no such fit."""
    ridge: float = Field(default=1e-3, ge=0)
    draws: int = Field(default=1000, ge=200)
    """Random directions of each kind."""
    seed: int = Field(default=0, ge=0)


def verb() -> Verb:
    """Read profiles."""
    return Verb(ProfilesConfig, _inputs, _body, _preview, shards=False, artefact=PROFILES)


def _inputs(config: ProfilesConfig) -> list[Path]:
    curves = [] if config.curves is None else [config.curves]
    return list(map(Path, [*config.directions, *config.acts, *curves]))


def _open(config: ProfilesConfig) -> tuple[Directions, Fleet, list[int]]:
    """Open everything.

    Raises:
        ConfigError: two directions of one name, no window, or stores that do not belong together.
        UnknownNameError: an emotion in ``contrast`` that nobody knows.
        MismatchError: directions of another kind of model.
    """
    from workbench.activations import open_activations
    from workbench.directions import open_directions
    from workbench.directions.container import stack
    from workbench.emotions import read_emotions
    from workbench.emotions.profiles import Fleet, Reading
    from workbench.results import organism_of

    parts = [open_directions(path) for path in config.directions]
    names = [name for part in parts for name in part.names]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"two directions are called {min(twice)!r}; give one file that has it")
    window = parts[0].info.get("window") if config.window is None else config.window
    if window is None:
        raise ConfigError(
            f"{config.directions[0]} names no window; give window = [LAYERS], or emotion vectors"
        )
    readings = []
    for path in config.acts:
        acts = open_activations(path)
        condition, seed = organism_of(acts.model.key.partition("+")[2])
        readings.append(Reading(acts, condition, seed, path))
    fleet = Fleet(readings, config.high, config.low)
    fleet.refuse_alike()
    directions = stack(parts)
    for name in config.contrast:
        if name not in directions.names and name not in (known := read_emotions()):
            raise unknown("emotion", name, {*directions.names, *known}, "It stands in contrast.")
    return directions, fleet, _window(window, directions, fleet)


def _window(named: Sequence[int], directions: Directions, fleet: Fleet) -> list[int]:
    """Return the window, neighbors among the layers that the vectors and every store hold.

    Raises:
        ConfigError: a layer that the vectors lack or the stores, each told apart; no neighbors.
    """
    from workbench.emotions.vectors import run_of

    window = run_of([int(one) for one in named], directions.layers, f"{directions.label}, window")
    held = fleet.reference.acts.layers
    if missing := [layer for layer in window if layer not in held]:
        raise ConfigError(
            f"the stores of acts, such as {fleet.reference.label}, hold no layer {missing[0]} of "
            f"the window {list(window)} (they hold {', '.join(map(str, held))}); cache it in all "
            "models, or give a window of layers that they hold"
        )
    return list(window)


def _body(config: ProfilesConfig, work: Work) -> Mapping[str, Any]:
    from workbench.directions import save_directions
    from workbench.directions.container import stack
    from workbench.emotions.profiles import Scores, gap_table, profile_table
    from workbench.emotions.vectors import label_of
    from workbench.pipelines.report_emotion import REPORT, gaps_page

    directions, fleet, window = _open(config)
    layers = [one for one in directions.layers if one in fleet.reference.acts.layers]
    directions, folder = directions.select(layers), work.run.path
    chosen = [name for name in config.contrast if name in directions.names]
    if chosen:
        fitted = _contrast(config, directions[chosen], fleet, window)
        directions = stack([directions, fitted])
    scores = Scores(fleet, directions, window)
    gaps = gap_table(scores, draws=config.draws, seed=config.seed)
    if config.curves is not None:
        gaps = with_aucs(gaps, Path(config.curves), window)
    tables = {GAPS: gaps, PROFILES: profile_table(scores)}
    tables[SEEDS] = profile_table(scores, by_seed=True)
    if chosen:
        save_directions(fitted, folder / CONTRAST)
    for name, table in tables.items():
        save_frame(table, folder / name)
    write_bytes(folder / REPORT, gaps_page(folder).encode())
    return {
        "models": [one.acts.model.key for one in fleet.readings],
        "directions": len(directions),
        "items": len(fleet.reference.acts.columns["id"]),
        "window": label_of(window),
        "contrast": chosen,
        "left_out": sorted(set(config.contrast) - set(chosen)),
    }


def _contrast(
    config: ProfilesConfig, directions: Directions, fleet: Fleet, window: Sequence[int]
) -> Directions:
    """Fit the gap of the first half in the span of some emotions.

    Raises:
        ConfigError: a layer at which the conditions do not differ.
    """
    from workbench.emotions.profiles import FIRST
    from workbench.emotions.vectors import contrast_fit

    gap = fleet.gap(directions.layers, fleet.halves()[FIRST])
    if same := [layer for layer, v in zip(directions.layers, gap, strict=True) if not v.any()]:
        raise ConfigError(
            f"organisms of {config.high!r} and {config.low!r} have the same mean state at layer "
            f"{same[0]}, so no contrast can be fitted there; give contrast = [], or cache layers "
            "that training changed"
        )
    fitted = contrast_fit(directions, gap, ridge=config.ridge)
    told = {
        "layer": window[len(window) // 2],
        "window": list(window),
        "fitted_on": f"{config.high} minus {config.low}, {FIRST} half of items",
    }
    return replace(fitted, info={**fitted.info, **told})


def with_aucs(gaps: pd.DataFrame, curves: Path, window: Sequence[int]) -> pd.DataFrame:
    """Add how well the vectors tell their emotion from others, on held-out stories.

    ``auc`` and ``auc_low`` are at the gap's layer, or the means over the window; NaN for sums of
    emotions. ``reads`` says whether ``auc_low`` is above 0.5: a gap along a vector that does not
    read its emotion is a gap along some direction.
    """
    import pandas as pd

    found = pd.read_parquet(curves)
    own = found[found["variant"] == "denoised"]
    at = own.set_index(["emotion", "layer"])[["auc", "low"]]
    over = own[own["layer"].isin(list(window))].groupby("emotion")[["auc", "low"]].mean()
    rows = []
    for row in gaps.to_dict("records"):
        place = (row["emotion"], row["layer"])
        known = at if row["window"] == PEAK else over
        key = place if row["window"] == PEAK else row["emotion"]
        rows.append(known.loc[key].tolist() if key in known.index else [float("nan")] * 2)
    auc, low = zip(*rows, strict=True)
    return gaps.assign(auc=auc, auc_low=low, reads=[one > 0.5 for one in low])


def _preview(config: ProfilesConfig) -> Mapping[str, Any]:
    directions, fleet, window = _open(config)
    return {
        "directions": list(directions.names),
        "halves": {name: len(rows) for name, rows in fleet.halves().items()},
        "seeds": {name: len(fleet.of(name)) for name in (fleet.high, fleet.low)},
        "window": window,
    }
