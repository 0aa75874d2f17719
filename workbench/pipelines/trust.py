"""The verb trust: sweeps of steering matrices in, margins by dose, facet and block out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError, MismatchError
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.plain import as_json

if TYPE_CHECKING:
    import pandas as pd

    from workbench.directions import Directions
    from workbench.directions.linear_map import LinearMap
    from workbench.effects.curves import How

MAIN = "margin.parquet"
BASELINE = "mean_difference"
GAME = "trust_game"
TRANSFER = ("measure", "condition", "control", "dose", "value", "change", "low", "high")


class TrustConfig(Config):
    """Judge steering matrices by what their sweeps did to held-out pairs of replies."""

    sweeps: dict[str, str | list[str]] = Field(min_length=1)
    """By method, the results of its sweep: the one with margins, and others of the same doses."""
    matrices: dict[str, str] = Field(default_factory=dict)
    """By method, its directions or its map, for norms and cosines by block."""
    shuffled: dict[str, str] = Field(default_factory=dict)
    """By method, what shuffled labels gave, for the same."""
    baseline: str = BASELINE
    """The method whose matrix the others are compared with, where it is among the matrices."""
    pairs: str
    """The file of pairs that was swept, for the texts behind the items."""
    draws: int = Field(default=2000, ge=100)
    """Of the bootstrap or the sign flips that give p, and of the trust game's intervals."""
    intervals: Literal["t"] = "t"
    """Over scenario means; runs that drew scenarios instead are of another id, and made again."""
    level: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class Judged:
    """The tables of a run; each has the method in front."""

    margin: pd.DataFrame
    facets: pd.DataFrame
    monotone: pd.DataFrame
    displacement: pd.DataFrame
    """How far each reply's likelihood moved; empty where ``chosen`` was not measured."""
    items: pd.DataFrame
    transfer: pd.DataFrame
    """Changes of the trust game by dose; empty where no sweep asked it."""
    blocks: pd.DataFrame
    scopes: Mapping[str, tuple[str, str]]
    """By method: where it acted, and where it was trained to act (nothing if nobody says)."""
    models: tuple[str, ...]
    seen: Mapping[str, tuple[int, int]]
    """Of pairs and of neutral replies: how many are of scenarios that pairs to train on have too,
    and how many there are."""


def verb() -> Verb:
    """Judge the sweeps of steering matrices."""
    return Verb(TrustConfig, _inputs, _body, _preview, shards=False, artefact=MAIN)


def _inputs(config: TrustConfig) -> list[Path]:
    named = [*config.matrices.values(), *config.shuffled.values(), config.pairs]
    return [*(path for paths in _sweeps(config).values() for path in paths), *map(Path, named)]


def _sweeps(config: TrustConfig) -> dict[str, list[Path]]:
    listed = {m: [p] if isinstance(p, str) else p for m, p in config.sweeps.items()}
    return {method: [Path(path) for path in paths] for method, paths in listed.items()}


def _body(config: TrustConfig, work: Work) -> Mapping[str, Any]:
    from workbench.pipelines.report_trust import write_report

    found = judge(config)
    for name in ("margin", "facets", "monotone", "displacement", "items", "transfer", "blocks"):
        table = getattr(found, name)
        if len(table):
            save_frame(table, work.run.path / f"{name}.parquet")
    pairs = pairs_table(config.pairs, set(found.items["item"]))
    save_frame(pairs, work.run.path / "pairs.parquet")
    write_report(found, work.run.path)
    told = {"methods": list(config.sweeps), "pairs": len(pairs), "rows": len(found.margin)}
    seen = {kind: count for kind, (count, _) in found.seen.items()}
    return {"model": found.models[0], **told, "of_trained_scenarios": seen}


def _preview(config: TrustConfig) -> Mapping[str, Any]:
    from workbench.data.reply_pairs import read_pairs

    return {"methods": list(config.sweeps), "pairs": len(read_pairs(config.pairs))}


def judge(config: TrustConfig) -> Judged:
    """Judge every method's sweep, and look at every matrix.

    Raises:
        ConfigError: results without margins, with rows that stand twice or of pairs that are not
            held out, or a matrix of a method that has no sweep.
        MismatchError: the sweeps are of different models.
    """
    import pandas as pd

    from workbench.effects.curves import How
    from workbench.effects.margins import (
        accuracies,
        displacement,
        margin_curves,
        margin_items,
        monotonicity,
    )
    from workbench.results import read_results

    _check_names(config)
    how = How("scenario", config.level, config.draws, config.seed)
    frames = {m: [read_results(p) for p in paths] for m, paths in _sweeps(config).items()}
    whole = {m: pd.concat(own, ignore_index=True) for m, own in frames.items()}
    models = tuple(dict.fromkeys(str(s) for f in whole.values() for s in f["subject"].unique()))
    if len(models) > 1:
        raise MismatchError(f"the sweeps are of {' and '.join(models)}; judge one model at a time")
    items = {method: margin_items(frame) for method, frame in whole.items()}
    told = _stacked(items)
    margins = told[told["measure"] == "margin"]
    return Judged(
        margin=_stacked({m: margin_curves(own, how) for m, own in items.items()}),
        facets=_stacked({m: accuracies(own, how) for m, own in items.items()}),
        monotone=_stacked({m: monotonicity(own, how) for m, own in items.items()}),
        displacement=_stacked({m: displacement(own, how) for m, own in items.items()}),
        items=margins.rename(columns={"value": "margin"}).drop(columns="measure"),
        transfer=_stacked({m: transfer(frame, how) for m, frame in whole.items()}),
        blocks=_stacked_blocks(config),
        scopes={m: (_only(frame, "scope"), _trained(config, m)) for m, frame in whole.items()},
        models=models,
        seen=_seen(config.pairs, told),
    )


def _seen(path: str, told: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Count what was swept of scenarios whose other pairs are trained on."""
    from workbench.data.reply_pairs import read_pairs

    trained = {pair.scenario for pair in read_pairs(path) if pair.split == "train"}
    items = told.drop_duplicates("item")
    neutral = items["facet"] == "neutral"
    kinds = {"pairs": items[~neutral], "neutral replies": items[neutral]}
    return {k: (int(own["scenario"].isin(trained).sum()), len(own)) for k, own in kinds.items()}


def transfer(frame: pd.DataFrame, how: How) -> pd.DataFrame:
    """Return how far each dose moves the trust game from the zero dose, paired by frame.

    Raises:
        ConfigError: a frame was asked twice at one dose.
    """
    import pandas as pd

    from workbench.effects import How as ByItem
    from workbench.effects import changes
    from workbench.effects.margins import refuse_repeats

    rows = frame[frame["readout"] == GAME]
    if rows.empty:
        return pd.DataFrame()
    refuse_repeats(rows, ("measure", "condition", "control", "dose", "item"))
    found = changes(rows, how=ByItem("item", how.level, how.draws, how.seed))
    kept = [*TRANSFER, "interval", "n", "unit", "n_lost", "band", "band_name", "beyond_band"]
    return found[[*kept, "mass"]].reset_index(drop=True)


def pairs_table(path: str | Path, items: set[str]) -> pd.DataFrame:
    """Return the texts of the pairs that were swept; ``prompt`` is JSON."""
    import pandas as pd

    from workbench.data.reply_pairs import read_pairs

    rows = [
        {
            "item": pair.id, "facet": pair.facet, "scenario": pair.scenario,
            "style": str(pair.row.get("style", "")),
            "prompt": as_json(list(pair.prompt)),
            "chosen": pair.chosen, "rejected": pair.rejected,
        }
        for pair in read_pairs(path)
        if pair.id in items
    ]  # fmt: skip
    if len(rows) < len(items):
        raise ConfigError(
            f"{path} has {len(rows)} of the {len(items)} pairs that were swept; give the file "
            "that the sweeps read"
        )
    return pd.DataFrame(rows)


def _check_names(config: TrustConfig) -> None:
    for key in ("matrices", "shuffled"):
        for method in getattr(config, key):
            if method not in config.sweeps:
                raise ConfigError(
                    f"{key} has {method!r}, which no sweep is of; sweeps: "
                    f"{', '.join(config.sweeps)}"
                )


def _stacked(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Stack the methods' tables, the method in front."""
    import pandas as pd

    kept = []
    for method, table in tables.items():
        if len(table):
            copy = table.reset_index(drop=True)
            copy.insert(0, "method", method)
            kept.append(copy)
    return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()


def _stacked_blocks(config: TrustConfig) -> pd.DataFrame:
    from workbench.effects.matrix import by_block

    opened = {method: open_matrix(path) for method, path in config.matrices.items()}
    base = opened.get(config.baseline)
    tables = {
        (method, control): by_block(matrix, base)
        for control, found in (
            ("none", opened),
            ("shuffled", {m: open_matrix(path) for m, path in config.shuffled.items()}),
        )
        for method, matrix in found.items()
    }
    return _stacked_pairs(tables)


def _stacked_pairs(tables: Mapping[tuple[str, str], pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    kept = [t.assign(method=m, control=c) for (m, c), t in tables.items()]
    if not kept:
        return pd.DataFrame()
    whole = pd.concat(kept, ignore_index=True)
    return whole[["method", "control", *(c for c in whole if c not in ("method", "control"))]]


def open_matrix(path: str | Path) -> Directions | LinearMap:
    """Open directions of one name, or a map.

    Raises:
        ConfigError: there are several names.
    """
    from workbench.directions import open_directions, open_map

    file = Path(path)
    found = open_map(file) if file.name == "map.safetensors" else open_directions(file)
    if len(found.names) > 1:
        raise ConfigError(
            f"{file} holds {len(found.names)} directions ({', '.join(found.names[:3])}, ...); a "
            "steering matrix is one: save it by itself"
        )
    return found


def _trained(config: TrustConfig, method: str) -> str:
    """Return the scope that a matrix was trained on, if it says so."""
    if method not in config.matrices:
        return ""
    return str(open_matrix(config.matrices[method]).info.get("scope", ""))


def _only(frame: pd.DataFrame, column: str) -> str:
    from workbench.effects.margins import READOUT

    return str(frame.loc[frame["readout"] == READOUT, column].iloc[0])
