"""The verb judge: scores for rollouts, from a server, a loaded model, or nobody."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from workbench.chat import ChatServer, ServerConfig
from workbench.errors import ConfigError
from workbench.judges import COHERENCE, COHERENCE_RUBRIC, ROLE, TRAIT, Judge, Scale, rate
from workbench.personas import read_roles, read_traits
from workbench.personas.reading import DEFAULT
from workbench.personas.released import missing_slots
from workbench.pipelines.parts import model_inputs, paths_of
from workbench.pipelines.settings import ModelConfig
from workbench.pipelines.verb import Verb, Work
from workbench.runs import Units
from workbench.transcripts import FILE, Scores, Transcripts, read_transcripts, write_transcripts

Measure = Literal["role", "trait", "coherence"]
SCALES: dict[Measure, Scale] = {"role": ROLE, "trait": TRAIT, "coherence": COHERENCE}
SCORE = "score"
"""The name of the scores of roles and traits."""


class JudgeConfig(ModelConfig):
    """Score rollouts; an answer without a score keeps the reason why."""

    transcripts: str
    """A rollout's run or file."""
    judge: Literal["none", "likelihood", "local", "server"] = "none"
    """Nobody; the likelihood that ``model`` gives to each number; what ``model`` writes; what
    ``server`` writes."""
    model: str = ""
    """For likelihood and local."""
    server: ServerConfig | None = None
    measures: list[Measure] = Field(default=["role"], min_length=1)
    """role, 0 to 3, by the column role (a likelihood's mean is rounded, for roles are counted);
    trait, 0 to 100, by the column trait; coherence, 0 to 100. The first two are called ``score``,
    the third ``coherence``."""
    folder: str | None = None
    """Where the rubrics of roles and traits are read; by default what ships."""
    rubric: str | None = None
    """One for all roles or traits instead, with the slots {question} and {answer}."""
    fenced: bool = True
    """Mark off the answer and say that it gives no orders; off, rubrics are as published."""
    least_mass: float = Field(default=0.5, ge=0, le=1)
    """Probability on the scale below which a likelihood is no score."""
    unit: int = Field(default=64, ge=1)
    """Answers that are judged and kept together."""
    budget: int = Field(default=32_768, ge=1)
    """Tokens of a batch of a loaded model."""

    @model_validator(mode="after")
    def _who(self) -> JudgeConfig:
        if bool(self.model) != (self.judge in ("likelihood", "local")):
            raise ValueError(f'model = {self.model!r} with judge = {self.judge!r}; a model goes '
                             "with likelihood and local, and only there")  # fmt: skip
        if (self.server is not None) != (self.judge == "server"):
            raise ValueError(f'server goes with judge = "server", not with {self.judge!r}')
        if len(set(self.measures)) < len(self.measures) or {"role", "trait"} <= set(self.measures):
            raise ValueError(
                f"measures = {self.measures}: each once, and one of role and trait, for both are "
                "called score; judge the rollouts of roles and of traits one after the other"
            )
        return self


def verb() -> Verb:
    """Judge rollouts."""
    return Verb(JudgeConfig, _inputs, _body, _preview, artefact=FILE)


def _inputs(config: JudgeConfig) -> list[Path]:
    return [*paths_of([config.transcripts, config.folder]), *model_inputs(config)]


def _preview(config: JudgeConfig) -> Mapping[str, Any]:
    """Read the transcripts and the rubrics, and ask nobody."""
    transcripts = read_transcripts(config.transcripts)
    for measure in config.measures:
        _rubric(config, measure, transcripts)
    return {"answers": int(transcripts.written.sum()), "of": len(transcripts)}


def _body(config: JudgeConfig, work: Work) -> Mapping[str, Any]:
    transcripts = read_transcripts(config.transcripts)
    rubrics = {one: _rubric(config, one, transcripts) for one in config.measures}
    judges, told = _judges(config)
    names = {measure: judge.name for measure, judge in judges.items()}
    number = -(-len(transcripts) // config.unit)
    units = Units(work.run, number, _digest(config, transcripts, rubrics, names))
    for unit in units.lacking():
        part = transcripts.take(_rows(transcripts, unit, config.unit))
        units.keep(unit, {one: _scored(judges[one], one, part, rubrics[one]) for one in judges})
        if work.progress is not None:
            work.progress(len(units.own()) - len(units.lacking()), len(units.own()))
    with units.joining() as complete:
        if not complete:
            return {"complete": False}
        found = [units.load(unit) for unit in range(number)]
    counts: dict[str, Any] = {}
    for measure in config.measures:
        scores = _joined([one[measure] for one in found], names[measure])
        transcripts = transcripts.with_scores(_name(measure), scores)
        counts[measure] = dict(Counter(reason or "scored" for reason in scores.reasons))
    write_transcripts(transcripts, work.run.path / FILE)
    return {"judge": ", ".join(dict.fromkeys(names.values())), "n": len(transcripts), **counts,
            **told}  # fmt: skip


def _judges(config: JudgeConfig) -> tuple[dict[Measure, Judge], dict[str, Any]]:
    """Return a judge for each measure, and what the run says of the model that judges."""
    if config.judge == "none":
        return {one: Judge(None, SCALES[one]) for one in config.measures}, {}
    if config.server is not None:
        return _written(config, ChatServer(config.server)), {}
    from workbench import api
    from workbench.chat.local import LocalChat
    from workbench.readouts.likelihood_judge import LikelihoodJudge

    subject = api.load_for_readouts(config.model, **config.options())
    told = {"models": [subject.ref.key]}
    if config.judge == "local":
        return _written(config, LocalChat(subject, budget=config.budget)), told
    judges: dict[Measure, Judge] = {
        one: LikelihoodJudge(
            subject, SCALES[one],
            fenced=config.fenced, least_mass=config.least_mass, budget=config.budget,
        )
        for one in config.measures
    }  # fmt: skip
    for judge in judges.values():
        judge.name = f"{judge.name}, likelihood"
    return judges, told


def _written(config: JudgeConfig, chat: Any) -> dict[Measure, Judge]:
    """Return judges that write; for scales to 100 their probabilities count where told."""
    return {
        one: Judge(
            chat, SCALES[one],
            top=0 if one == "role" else 20, fenced=config.fenced, least_mass=config.least_mass,
        )
        for one in config.measures
    }  # fmt: skip


def _rubric(
    config: JudgeConfig, measure: Measure, transcripts: Transcripts
) -> str | Mapping[str, str]:
    """Return what is asked, for all or by role or trait; refuse what lacks its column or rubric.

    Raises:
        ConfigError: the transcripts are not of roles or traits, or a rubric lacks a slot.
        UnknownNameError: a role or trait without a rubric.
    """
    if measure == "coherence":
        return COHERENCE_RUBRIC
    if measure not in transcripts.columns:
        known = ", ".join(transcripts.columns) or "none"
        raise ConfigError(
            f"{config.transcripts} has no column {measure!r}, so it holds no rollouts of "
            f"{measure}s; columns: {known}"
        )
    if config.rubric is not None:
        if missing := missing_slots(config.rubric):
            raise ConfigError(f"rubric {config.rubric[:60]!r} lacks {' and '.join(missing)}")
        return config.rubric
    read: Any = read_roles if measure == "role" else read_traits
    return {name: one.rubric for name, one in read(config.folder).items()}


def _scored(
    judge: Judge,
    measure: Measure,
    part: Transcripts,
    rubric: str | Mapping[str, str],
) -> dict[str, Any]:
    by = None if measure == "coherence" else str(measure)
    skip = DEFAULT if measure == "role" else None  # all of its rollouts count
    scores = rate(part, judge, rubric, by=by, skip=skip).scores[SCORE]
    values = np.rint(scores.values) if measure == "role" else scores.values
    return {"values": values, "reasons": scores.reasons, "said": scores.said}


def _joined(found: Sequence[Mapping[str, Any]], judge: str) -> Scores:
    values = np.concatenate([one["values"] for one in found])
    reasons, said = (tuple(x for one in found for x in one[key]) for key in ("reasons", "said"))
    return Scores(judge, values, reasons, said)


def _name(measure: Measure) -> str:
    return measure if measure == "coherence" else SCORE


def _rows(transcripts: Transcripts, unit: int, size: int) -> list[int]:
    return list(range(unit * size, min((unit + 1) * size, len(transcripts))))


def _digest(
    config: JudgeConfig, transcripts: Transcripts, rubrics: Mapping[Any, Any], names: Any
) -> str:
    asked = [config.model_dump(mode="json"), rubrics, names, transcripts.ids, transcripts.answers]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
