"""The verb monitor: does the projection before the answer foretell what the answer is like?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from workbench.config import Config
from workbench.directions.rollouts import UNJUDGED
from workbench.errors import ConfigError
from workbench.pipelines.labelled import Labelled, judge_of, labelled
from workbench.pipelines.vectors import Vectors, open_vectors, vector_files
from workbench.pipelines.verb import Verb, Work, save_frame

if TYPE_CHECKING:
    import pandas as pd

    from workbench.directions import Directions

FILE = "monitor.parquet"
POLES = "none: the pole of the instruction"
"""Stands for the judge where the instruction is told apart, not the answer."""


class MonitorConfig(Config):
    """Correlate projections at the last prompt token with the answers' scores, trait by trait."""

    directions: list[Vectors] = Field(min_length=1)
    """Trait vectors; each is read on the rollouts of the trait of its name."""
    acts: str
    """Store of the chats without their answers, at position last."""
    transcripts: str
    """Of the same rollouts, with scores."""
    target: Literal["auto", "score", "pole"] = "auto"
    """What is foretold: the answer's score, or (by itself only where nobody judged) whether the
    instruction was for the trait, which says nothing of the answer."""
    seen: bool = False
    """Take questions too from which the vectors were made."""
    layers: list[int] | None = None
    draws: int = Field(default=1000, ge=100)
    """Of the bootstrap, and random directions."""
    level: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


def verb() -> Verb:
    """Correlate projections before the answer with its score."""
    return Verb(MonitorConfig, _inputs, _body, _preview, shards=False, artefact=FILE)


def monitoring(config: MonitorConfig) -> pd.DataFrame:
    """Return the correlation for each trait and layer, over all its prompts and within them.

    Within takes the mean of each system prompt off (of each pair of them for poles, whose two
    sides differ in the system prompt), because most of such a correlation is between prompts.

    Returns:
        The columns of ``shifts.monitor``, and trait, model, target, questions (held out, or seen),
        random (the ``level`` quantile of |correlation| of isotropic directions), others (mean
        |correlation| of the other traits' vectors; NaN of one alone).

    Raises:
        ConfigError: no rollouts of a trait of the vectors' names, or no question that was held out.
    """
    import pandas as pd

    from workbench.directions.shifts import monitor

    directions, acts, judge = _opened(config)
    target = _target(config, judge)
    acts, questions = _unseen(config, acts)
    by_trait = {name: acts.take(acts.column("trait") == name) for name in directions.names}
    by_trait = {name: rows for name, rows in by_trait.items() if len(rows)}
    if not by_trait:
        raise ConfigError(
            f"no rollout is of a trait named {', '.join(directions.names[:5])}; traits here: "
            f"{', '.join(np.unique(acts.column('trait')).tolist()[:5])}"
        )
    told = {"model": acts.model.key, "target": target, "questions": questions}
    tables = []
    for name, rows in by_trait.items():
        rows = _with_target(rows, target)
        for within in ("", "told"):
            found = monitor(
                directions[name], rows, judge=judge if target == "score" else POLES,
                score="target", within=within or None, groups="question", draws=config.draws,
                level=config.level, seed=config.seed,
            )  # fmt: skip
            random, others = _controls(directions, name, rows, within, config)
            found = found.assign(trait=name, random=random, others=others, **told)
            words = "system prompt" if target == "score" else "pair of instructions"
            tables.append(found.assign(within=words if within else ""))
    return pd.concat(tables, ignore_index=True).drop(columns="direction")


def _with_target(rows: Labelled, target: str) -> Labelled:
    """Add what is foretold, 0 to 100, and the text that the rollout was told."""
    prompt, pole = rows.column("prompt").astype(str), rows.column("pole").astype(int)
    scores = rows.column("score") if target == "score" else 50.0 + 50.0 * np.sign(pole)
    told = np.char.add(prompt, np.where(pole > 0, "+", "-")) if target == "score" else prompt
    return replace(rows, columns={**rows.columns, "target": scores, "told": told})


def _controls(
    directions: Directions, name: str, rows: Labelled, within: str, config: MonitorConfig
) -> tuple[list[float], list[float]]:
    """Return by layer what isotropic directions and the other traits' vectors reach."""
    from workbench.directions.rows import read_items, varying
    from workbench.linalg import random_unit, unit
    from workbench.stats import correlations

    kept = np.flatnonzero(~np.isnan(rows.column("target")))
    inner = rows.column(within)[kept] if within else None
    others = [other for other in directions.names if other != name]
    random, rest = [], []
    for layer in directions.layers:
        wanted = varying(rows.column("target")[kept, None], layer, inner)
        values = varying(read_items(rows, layer)[kept], layer, inner)
        lines = random_unit(config.draws, values.shape[1], (config.seed, layer))
        reached = np.abs(correlations(values @ lines.T, wanted)[0, :, 0])
        random.append(float(np.nanquantile(reached, config.level)))
        if others:
            along = values @ unit(directions[others].at(layer)).T
            rest.append(float(np.nanmean(np.abs(correlations(along, wanted)[0, :, 0]))))
    return random, rest or [float("nan")] * len(random)


def _target(config: MonitorConfig, judge: str) -> str:
    if config.target == "auto":
        return "pole" if judge == UNJUDGED else "score"
    if config.target == "score" and judge == UNJUDGED:
        raise ConfigError(
            f"{config.transcripts} has no scores to foretell; judge it first (workbench judge), or "
            'take target = "pole"'
        )
    return config.target


def _unseen(config: MonitorConfig, acts: Labelled) -> tuple[Labelled, str]:
    """Leave out the questions from which the vectors were made."""
    from workbench.directions import open_directions

    asked = acts.column("question").astype(str)
    infos = [open_directions(file).info for file in vector_files(config.directions)]
    if config.seen:
        return acts, "seen and unseen"
    if any("questions" not in info for info in infos):
        return acts, "unknown"
    used = {str(name) for info in infos for name in info["questions"]}
    keep = ~np.isin(asked, sorted(used))
    if not keep.any():
        raise ConfigError(
            f"the vectors were made from all {len(used)} questions of {config.acts}, so nothing is "
            "left to try them on; make them with held_out = 0.5, or give seen = true"
        )
    return acts.take(keep), "held out"


def _opened(config: MonitorConfig) -> tuple[Directions, Labelled, str]:
    from workbench.activations import open_activations
    from workbench.transcripts import read_transcripts

    transcripts = read_transcripts(config.transcripts)
    acts = labelled(open_activations(config.acts), transcripts)
    found = open_vectors(config.directions, config.layers)
    shared = [layer for layer in found.layers if layer in acts.layers]
    directions = found.select(config.layers or shared)
    return directions, acts, judge_of(transcripts)


def _inputs(config: MonitorConfig) -> Sequence[Path]:
    return [*vector_files(config.directions), Path(config.acts), Path(config.transcripts)]


def _body(config: MonitorConfig, work: Work) -> Mapping[str, Any]:
    table = monitoring(config)
    save_frame(table, work.run.path / FILE)
    first = table.iloc[0]
    told = {name: first[name] for name in ("model", "judge", "target", "questions")}
    return {**told, "traits": int(table["trait"].nunique()), "rows": len(table)}


def _preview(config: MonitorConfig) -> Mapping[str, Any]:
    directions, acts, judge = _opened(config)
    left, questions = _unseen(config, acts)
    target = _target(config, judge)
    return {"traits": list(directions.names), "layers": len(directions.layers), "judge": judge,
            "target": target, "items": len(left), "questions": questions}  # fmt: skip
