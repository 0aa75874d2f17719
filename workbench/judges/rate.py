"""Judging transcripts: each with the rubric of its role or trait, the verdicts kept beside it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.errors import ConfigError, unknown
from workbench.judges.judge import Case, Judge
from workbench.judges.verdict import Verdict
from workbench.transcripts import Scores, Transcripts
from workbench.types import Progress


def rate(
    transcripts: Transcripts,
    judge: Judge,
    rubric: str | Mapping[str, str],
    *,
    measure: str = "score",
    by: str | None = None,
    skip: str | None = None,
    progress: Progress | None = None,
) -> Transcripts:
    """Return the transcripts with a judge's scores; what has no score has a reason.

    Args:
        transcripts: the last user turn of each is the question, the generator's the answer; one
            without an answer counts as such and is not asked about.
        judge: who is asked.
        rubric: for all, or by the value of the column ``by``.
        measure: the name of the scores.
        by: column that chooses the rubric, such as ``role``.
        skip: a value of that column that needs no score, such as ``default``: not judged.
        progress: called with (judged, in all).

    Raises:
        ConfigError: no such column, or a chat without a user turn.
        UnknownNameError: no rubric for a value.
        WorkbenchError: the judge's server is not there.
    """
    keys = _keys(transcripts, by)
    rows = [row for row, key in enumerate(keys) if skip is None or key != skip]
    cases = [_case(transcripts, row, keys[row], rubric) for row in rows]
    verdicts = [Verdict(None, "not judged")] * len(keys)
    for row, found in zip(rows, judge.score(cases, progress=progress), strict=True):
        verdicts[row] = found
    values = [np.nan if one.score is None else one.score for one in verdicts]
    reasons, said = (tuple(getattr(one, part) for one in verdicts) for part in ("reason", "said"))
    scores = Scores(judge.name, np.array(values, np.float64), reasons, said)
    return transcripts.with_scores(measure, scores)


def _keys(transcripts: Transcripts, by: str | None) -> list[str]:
    if by is None:
        return [""] * len(transcripts)
    if by not in transcripts.columns:
        known = ", ".join(transcripts.columns) or "none"
        raise ConfigError(f"no column {by!r} to choose rubrics by; transcripts have {known}")
    return [str(value) for value in transcripts.columns[by]]


def _case(transcripts: Transcripts, row: int, key: str, rubric: str | Mapping[str, str]) -> Case:
    if not isinstance(rubric, str):
        if key not in rubric:
            raise unknown("rubric", key, rubric)
        rubric = rubric[key]
    asked = [message["content"] for message in transcripts.chats[row] if message["role"] == "user"]
    if not asked:
        raise ConfigError(f"transcript {transcripts.ids[row]!r} has no user turn to be judged by")
    return Case(rubric, asked[-1], transcripts.answer(row))
