"""The verb emotions: from stories and neutral dialogues to emotion vectors and their checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError, MismatchError, unknown
from workbench.files import write_bytes
from workbench.pipelines.verb import Verb, Work, save_frame
from workbench.plain import no_value, plain

if TYPE_CHECKING:
    import pandas as pd

    from workbench.activations import Activations
    from workbench.directions import Directions
    from workbench.emotions import Emotion
    from workbench.emotions.vectors import Stories

VECTORS = "emotions.safetensors"
FILES = {"denoised": VECTORS, "raw": "raw.safetensors", "random control": "control.safetensors"}
COMPOSITE, SINGLES = "composite.safetensors", "singles.safetensors"
SIGNS = {"anger": 1, "disgust": 1, "fear": 1, "joy": -1}
"""What distrust is expected to go with, fixed before anything was read."""
TOLD = ("layer", "window", "window_auc", "window_fixed", "extracted_at")
"""What every saved vector says of the window and the stories."""


class EmotionsConfig(Config):
    """Make emotion vectors and say how far they can be trusted."""

    stories: str
    """A store of sifted stories, such as at ``mean:content[50:]``; columns emotion and topic."""
    neutral: str
    """A store of neutral dialogues: a mean each, or all tokens (``position = "all"``)."""
    emotions: str | None = None
    """A file of emotions with marks of valence and arousal; those that ship by default."""
    explained: float = Field(default=0.5, gt=0, lt=1)
    """Share of the neutral variance whose components are removed."""
    window: int = Field(default=3, ge=1)
    """Neighboring layers that are read and steered together."""
    fixed: list[int] | None = None
    """The window's layers, neighbors in order, where they are not to be chosen."""
    folds: int = Field(default=3, ge=2)
    """Of topics, for the held-out curves that choose the window."""
    composite: dict[str, int] = Field(default_factory=lambda: dict(SIGNS))
    """Signs of the emotions that are summed; those without stories are left out and told."""
    read_at: str = "last"
    """Where saved vectors are read by readouts and gaps: the last token of a prompt, at which they
    foretell the reply. Where they come from stands in the file as ``extracted_at``."""
    draws: int = Field(default=200, ge=20)
    """Of emotions shuffled among stories."""
    permutations: int = Field(default=10_000, ge=100)
    """Of the marks over emotions."""
    seed: int = Field(default=0, ge=0)


def verb() -> Verb:
    """Make emotion vectors."""
    return Verb(EmotionsConfig, _inputs, _body, _preview, shards=False, artefact=VECTORS)


def _inputs(config: EmotionsConfig) -> list[Path]:
    named = [config.stories, config.neutral, *([config.emotions] if config.emotions else [])]
    return list(map(Path, named))


def _open(config: EmotionsConfig) -> tuple[Stories, Activations, dict[str, Emotion]]:
    """Open both stores, the emotions in the order of their file, and check the settings by them.

    Raises:
        ConfigError: a column is missing, an emotion without marks, or two emotions are lacking; a
            fixed window that is none, a position or a sign that is none.
        UnknownNameError: a sign of an emotion that is not known.
        MismatchError: stores of two models or sites.
    """
    from workbench.activations import open_activations
    from workbench.directions.fit import column
    from workbench.emotions import read_emotions
    from workbench.emotions.vectors import EMOTION, Stories, run_of
    from workbench.engine.pool import parse_position

    parse_position(config.read_at)
    stories, neutral = open_activations(config.stories), open_activations(config.neutral)
    stories.model.refuse_other(neutral.model, f"stories {config.stories}")
    if stories.site != neutral.site or set(stories.layers) - set(neutral.layers):
        raise MismatchError(
            f"stories hold site {stories.site}, layers {list(stories.layers)}; neutral dialogues "
            f"{neutral.site}, {list(neutral.layers)}; capture the dialogues at the same"
        )
    if config.fixed is not None:
        run_of(config.fixed, stories.layers, "fixed")
    known = read_emotions(config.emotions)
    there = set(column(stories, EMOTION).astype(str).tolist())
    if unmarked := sorted(there - set(known)):
        raise ConfigError(
            f"stories of {unmarked[0]!r}, which has no marks; give emotions = FILE with its line"
        )
    _refuse_signs(config.composite, {*known, *SIGNS})
    return Stories.of(stories, [name for name in known if name in there]), neutral, known


def _refuse_signs(signs: Mapping[str, int], known: Collection[str]) -> None:
    from workbench.emotions.vectors import refuse_weights

    for name in signs:
        if name not in known:
            raise unknown("emotion", name, known, "Its sign stands in composite.")
    refuse_weights(signs)


def _body(config: EmotionsConfig, work: Work) -> Mapping[str, Any]:
    from workbench.directions import save_directions
    from workbench.emotions.curves import held_out_curves
    from workbench.emotions.vectors import label_of
    from workbench.pipelines.report_emotion import FIXED, REPORT, vectors_page

    stories, neutral, known = _open(config)
    curves = held_out_curves(
        stories, neutral, explained=config.explained, folds=config.folds, width=config.window,
        fixed=config.fixed, draws=config.draws, seed=config.seed, progress=work.progress,
    )  # fmt: skip
    told = plain(curves.summary(), nonfinite=no_value)
    made = _variants(config, stories, neutral, curves.window, told["auc"])
    signs = {name: sign for name, sign in config.composite.items() if name in stories.emotions}
    sums, unit = _sums(made["denoised"], signs, curves.window)
    tables = _tables(config, curves.table, made, curves.window, known, stories)
    folder = work.run.path
    for file, one in {**{FILES[name]: one for name, one in made.items()}, **sums}.items():
        save_directions(one, folder / file)
    for name, table in tables.items():
        save_frame(table, folder / f"{name}.parquet")
    summary = {
        "model": stories.acts.model.key,
        "emotions": len(stories.emotions),
        "topics": len(stories.topics),
        **told,
        "window": label_of(curves.window),
        "chosen": "chosen on held-out stories" if config.fixed is None else FIXED,
        "composite": signs,
        "left_out": sorted(set(config.composite) - set(signs)),
        **({"raw_unit": unit} if signs else {}),
    }
    write_bytes(folder / REPORT, vectors_page(folder, summary).encode())
    return summary


def _variants(
    config: EmotionsConfig,
    stories: Stories,
    neutral: Activations,
    window: Sequence[int],
    auc: float | None,
) -> dict[str, Directions]:
    """Make the vectors, and tell in each where and how well they read."""
    from workbench.emotions.vectors import emotion_vectors, variants_of

    told = {
        "layer": window[len(window) // 2],
        "window": list(window),
        "window_auc": auc,
        "window_fixed": config.fixed is not None,
        "extracted_at": stories.acts.position,
    }
    raw = emotion_vectors(stories)
    made = variants_of(raw, neutral, explained=config.explained, control=config.seed)
    return {
        name: replace(one, position=config.read_at, info={**one.info, **told})
        for name, one in made.items()
    }


def _sums(
    vectors: Directions, signs: dict[str, int], window: Sequence[int]
) -> tuple[dict[str, Directions], float]:
    """Return by file the composite and its single emotions at one length, and that length."""
    from workbench.emotions.vectors import common_length, composite

    if not signs:
        return {}, 0.0
    told = {key: vectors.info[key] for key in TOLD}
    summed = composite(vectors, signs)
    singles, unit = common_length(vectors[tuple(signs)], window)
    return {COMPOSITE: replace(summed, info={**summed.info, **told}), SINGLES: singles}, unit


def _tables(
    config: EmotionsConfig,
    curves: pd.DataFrame,
    made: Mapping[str, Directions],
    window: Sequence[int],
    known: Mapping[str, Emotion],
    stories: Stories,
) -> dict[str, pd.DataFrame]:
    import pandas as pd

    from workbench.emotions.geometry import (
        FEWEST,
        coordinates_table,
        reference_table,
        similarity_table,
        valence_table,
    )

    vectors = made["denoised"]
    found = {
        "counts": _counts(stories),
        "curves": curves,
        "similarity": similarity_table(vectors),
        "reference": reference_table(vectors, stories),
    }
    if len(vectors) >= FEWEST:
        how = {"draws": config.permutations, "seed": config.seed}
        layers = [[layer] for layer in vectors.layers]
        found["valence"] = valence_table(vectors, known, layers, **how)
        found["geometry"] = pd.concat(
            [
                valence_table(one, known, [window], **how).assign(variant=name)
                for name, one in made.items()
            ],
            ignore_index=True,
        )
        found["coordinates"] = coordinates_table(vectors, known, window)
    return found


def _counts(stories: Stories) -> pd.DataFrame:
    import pandas as pd

    counts = stories.counts()
    return pd.DataFrame(
        {"emotion": emotion, "topic": topic, "stories": int(counts[k, t])}
        for k, emotion in enumerate(stories.emotions)
        for t, topic in enumerate(stories.topics)
    )


def _preview(config: EmotionsConfig) -> Mapping[str, Any]:
    stories, neutral, _ = _open(config)
    counts = stories.counts()
    return {
        "stories": len(stories),
        "emotions": len(stories.emotions),
        "topics": len(stories.topics),
        "fewest": int(counts.sum(axis=1).min()),
        "neutral": len(neutral),
        "layers": len(stories.acts.layers),
    }
