"""Reply margin: how much likelier a model finds one reply than the other to one conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.data.reply_pairs import TEST, ReplyPair, read_pairs, spread
from workbench.data.splits import TRAIN
from workbench.errors import ConfigError, unknown
from workbench.given import several
from workbench.readouts.candidates import continuation
from workbench.registry import READOUTS
from workbench.types import CandidatesRead, Measurement, Request, Subject

MEASURES = ("margin", "chosen", "rejected")
KEPT = ("scenario", "family", "style", "split")
"""Columns of a pair that stand with its measurements."""


@READOUTS.register("reply_margin")
class ReplyMargin:
    """Per-token log-odds of the chosen against the rejected reply, one condition for each facet.

    ``margin`` is lp(chosen) / |chosen| - lp(rejected) / |rejected| in nats per token, each the sum
    over the reply's own tokens given the conversation (Lasnier et al. 2026, evaluation on held-out
    rows). ``chosen`` and ``rejected`` are its two halves: where both fall as the margin grows, an
    edit pushes both replies down (likelihood displacement). A pair of equal replies has no margin;
    its likelihood stands as ``chosen`` under its facet ``neutral``.

    Where an edit acts: ``content`` is the last user turn, ``user`` all of them, ``generated`` the
    reply itself (whose first token comes from an unedited state), ``all`` everything but the first
    token.

    Args:
        pairs: a file as ``workbench corpus trust_pairs`` writes it.
        measures: of margin, chosen and rejected; margin alone by default.
        split: ``test`` or ``train`` rows, or those of another split that the file has; None for
            all. Rows that name none are of ``train``.
        facets: which facets; all by default.
        each: at most so many pairs of every facet, from its scenarios in turn.
    """

    name = "reply_margin"

    def __init__(
        self,
        pairs: str | Path,
        measures: Sequence[str] = ("margin",),
        split: str | None = "test",
        facets: Sequence[str] | None = None,
        each: int | None = None,
    ) -> None:
        self.measures = (measures,) if isinstance(measures, str) else tuple(measures)
        for measure in self.measures:
            if measure not in MEASURES:
                raise unknown("measure of reply_margin", str(measure), MEASURES)
        if each is not None and each < 1:
            raise ConfigError(f"each = {each}; one pair or more of every facet is expected")
        named = None if facets is None else several(facets)
        self.pairs = _chosen(read_pairs(pairs), str(pairs), split, named)
        if "chosen" not in self.measures:
            self.pairs = [pair for pair in self.pairs if not pair.neutral]
        if each is not None:
            self.pairs = spread(self.pairs, each)
        if not self.pairs:
            raise ConfigError(f"{pairs}: its rows have equal replies, and no margin; add others")

    def requests(self, subject: Subject) -> list[Request]:
        return [_request(subject, pair) for pair in self.pairs]

    def score(
        self, requests: Sequence[Request], answers: Sequence[Sequence[Any]]
    ) -> list[Measurement]:
        return [
            measurement
            for request, (sums,) in zip(requests, answers, strict=True)
            for measurement in self._measured(request, [float(one) for one in sums])
        ]

    def _measured(self, request: Request, sums: Sequence[float]) -> Iterator[Measurement]:
        tokens = request.extra["tokens"]
        halves = [total / count for total, count in zip(sums, tokens, strict=True)]
        values = dict(zip(("chosen", "rejected"), halves, strict=False))
        if len(halves) == 2:
            values["margin"] = halves[0] - halves[1]
        extra = {**request.extra, "sums": sums}
        for measure in self.measures:
            if measure in values:
                yield Measurement(
                    self.name, measure, request.item, request.condition, values[measure],
                    extra=extra,
                )  # fmt: skip


def _chosen(
    pairs: list[ReplyPair], source: str, split: str | None, facets: Sequence[str] | None
) -> list[ReplyPair]:
    splits = sorted({pair.split for pair in pairs})
    if split is not None and split not in {TRAIN, TEST, *splits}:
        raise unknown("split", str(split), sorted({TRAIN, TEST, *splits}))
    known = sorted({pair.facet for pair in pairs})
    for facet in facets or ():
        if facet not in known:
            raise unknown("facet", str(facet), known)
    kept = [pair for pair in pairs if split in (None, pair.split)]
    kept = [pair for pair in kept if facets is None or pair.facet in facets]
    if not kept:
        raise ConfigError(
            f"{source} has no such pair of split {split!r} (its splits: {', '.join(splits)}; a row "
            f"that names none is of {TRAIN!r}); give split or other facets, and write split = "
            f"{TEST!r} into the rows of held-out pairs"
        )
    return kept


def _request(subject: Subject, pair: ReplyPair) -> Request:
    rendered = subject.renderer.render(list(pair.prompt), render="chat", add_generation_prompt=True)
    replies = (pair.chosen,) if pair.neutral else (pair.chosen, pair.rejected)
    candidates = tuple(continuation(subject.tokenizer, reply, rendered.ids) for reply in replies)
    return Request(
        item=pair.id,
        condition=pair.facet,
        ids=rendered.ids,
        reads=(CandidatesRead(candidates),),
        spans=rendered.spans,
        extra={
            "tokens": [len(ids) for ids in candidates],
            **{name: pair.row[name] for name in KEPT if name in pair.row},
        },
    )
