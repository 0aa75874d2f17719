"""The verb personas: trait vectors out of judged rollouts, in three variants (Chen et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from workbench.config import Config
from workbench.errors import ConfigError
from workbench.pipelines.labelled import Labelled, judge_of, labelled
from workbench.pipelines.verb import Verb, Work, save_frame

if TYPE_CHECKING:
    import pandas as pd

    from workbench.directions import Directions
    from workbench.directions.trait_pairs import PairRule

ReadName = Literal["response-mean", "prompt-mean", "prompt-last"]
MAIN = "directions.safetensors"


class PersonasConfig(Config):
    """Make trait vectors of rollouts under instructions for and against each trait."""

    transcripts: str
    """Their columns trait, pole, pair and question, and their scores, are read here."""
    acts: dict[ReadName, str] = Field(min_length=1)
    """A store of the transcripts for each variant, such as {"response-mean" = "@means"}."""
    rule: Literal["effective", "apart"] = "effective"
    """Which pairs count. Where nobody judged, all do, whatever stands here."""
    least: int | None = Field(default=None, ge=1)
    """Pairs that a vector needs; by default the rule's own number."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of the questions that no vector is made from, left for ``monitor``."""
    layers: list[int] | None = None
    draws: int = Field(default=1000, ge=100)
    """Of swapped poles, and of halves."""
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class Personas:
    """Trait vectors by read, and the tables that tell how they came about."""

    vectors: dict[str, Directions]
    counts: pd.DataFrame
    checks: pd.DataFrame
    similarity: pd.DataFrame


def verb() -> Verb:
    """Make trait vectors."""
    return Verb(PersonasConfig, _inputs, _body, _preview, shards=False, artefact=MAIN)


def file_of(read: str, reads: Sequence[str]) -> str:
    """Return the file of a variant; the response mean's, or else the first's, is the artefact."""
    main = "response-mean" if "response-mean" in reads else reads[0]
    return MAIN if read == main else f"{read}.safetensors"


def personas(config: PersonasConfig) -> Personas:
    """Make the vectors and their checks.

    Raises:
        ConfigError: a store of another position than its variant's, a column that is missing, or
            no trait with pairs enough.
        MismatchError: a store of other rollouts.
    """
    import pandas as pd

    from workbench.directions.trait_checks import check_traits, read_similarity
    from workbench.directions.trait_pairs import good_pairs, trait_vectors
    from workbench.transcripts import read_transcripts

    transcripts = read_transcripts(config.transcripts)
    judge, rule = judge_of(transcripts), _rule(config)
    vectors: dict[str, Directions] = {}
    counts, checks = [], []
    for read, path in config.acts.items():
        every = labelled(_store(read, path), transcripts)
        acts, held_out = split_questions(every, config.held_out, config.seed)
        made = trait_vectors(acts, judge=judge, rule=rule, layers=config.layers)
        used = sorted(set(acts.column("question").astype(str).tolist()))
        info = {**made.vectors.info, "read": read, "questions": used, "held_out": held_out}
        vectors[read] = replace(made.vectors, info=info)
        found = good_pairs(acts, judge=judge, rule=rule)
        told = {"read": read, "judge": judge, "rule": str(made.vectors.info["rule"])}
        counts.append(_with_words(found.counts, acts, found).assign(**told))
        how = {"draws": config.draws, "seed": config.seed}
        checked = check_traits(acts, found, layers=config.layers, **how)
        checks.append(checked.assign(read=read, judge=judge))
    return Personas(
        vectors,
        pd.concat(counts, ignore_index=True),
        pd.concat(checks, ignore_index=True),
        read_similarity(vectors),
    )


def split_questions(acts: Labelled, share: float, seed: int) -> tuple[Labelled, list[str]]:
    """Leave a share of each trait's questions out, the same ones whatever the store.

    Returns:
        The items of the other questions, and the questions that were left out.

    Raises:
        ConfigError: a trait has no question to leave, or none would be left.
    """
    traits, asked = (acts.column(name).astype(str) for name in ("trait", "question"))
    out: set[str] = set()
    for trait in np.unique(traits[traits != ""]) if share else ():
        names = np.unique(asked[traits == trait])
        count = round(share * len(names))
        out |= set(np.random.default_rng(seed).permutation(names)[:count].tolist())
        if not count or out.issuperset(names.tolist()):
            raise ConfigError(
                f"held_out = {share} of {len(names)} questions of {str(trait)!r} is {count}; ask "
                "more questions, or hold out another share"
            )
    return acts.take(~np.isin(asked, sorted(out))), sorted(out)


def _with_words(counts: pd.DataFrame, acts: Labelled, found: Any) -> pd.DataFrame:
    """Add how long the answers of each pole are, since a vector may carry length (words)."""
    words = acts.column("words")[found.rows].astype(float)
    means = [
        words[found.trait == number].mean(axis=0) if kept else np.full(2, np.nan)
        for number, kept in enumerate(counts["kept"])
    ]
    positive, negative = np.array(means).T
    return counts.assign(words_positive=positive, words_negative=negative)


def _rule(config: PersonasConfig) -> PairRule:
    from workbench.directions.trait_pairs import APART, EFFECTIVE

    rule = {"effective": EFFECTIVE, "apart": APART}[config.rule]
    return rule if config.least is None else replace(rule, least=config.least)


def _store(read: str, path: str) -> Any:
    from workbench.activations import open_activations
    from workbench.directions.trait_pairs import READS

    acts = open_activations(path)
    if acts.position != READS[read]:
        raise ConfigError(
            f"{path} was captured at position {acts.position!r}, {read} is {READS[read]!r}"
            f"{'' if read == 'response-mean' else ' of the chat without its answer'}; cache it so"
        )
    return acts


def _inputs(config: PersonasConfig) -> list[Path]:
    return [Path(config.transcripts), *map(Path, config.acts.values())]


def _body(config: PersonasConfig, work: Work) -> Mapping[str, Any]:
    from workbench.directions import save_directions

    found, folder = personas(config), work.run.path
    for read, directions in found.vectors.items():
        save_directions(directions, folder / file_of(read, list(found.vectors)))
    for name in ("counts", "checks", "similarity"):
        table = getattr(found, name)
        if len(table):
            save_frame(table, folder / f"{name}.parquet")
    first = next(iter(found.vectors.values()))
    kept = {read: len(directions) for read, directions in found.vectors.items()}
    return {"model": first.model.key, "judge": first.info["judge"], "rule": first.info["rule"],
            "traits": kept, "held_out": first.info["held_out"]}  # fmt: skip


def _preview(config: PersonasConfig) -> Mapping[str, Any]:
    from workbench.transcripts import read_transcripts

    transcripts = read_transcripts(config.transcripts)
    stores = {read: labelled(_store(read, path), transcripts) for read, path in config.acts.items()}
    return {
        "judge": judge_of(transcripts),
        "items": {read: len(acts) for read, acts in stores.items()},
        "layers": {read: len(acts.layers) for read, acts in stores.items()},
    }
