"""Token-share dilution: a dose of documents in other text, and what of them a run then reads.

A dose works as in the paper's Table 14: a share of 10% takes the documents that make up 10% of the
corpus and shows each as often as the undiluted run does, so that updates, tokens and presentations
of a document stay the same and only the number of different documents, and of tokens, falls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from jaxtyping import Bool, Int

from workbench.errors import ConfigError
from workbench.types import ndarray

SHARES = (0.0, 0.001, 0.01, 0.1, 1.0)
"""The paper's doses."""
_DOCUMENTS, _FILLER = 0, 2
"""Which stream of shuffles a part draws from; 1 belongs to chats (see ``packing.lay_out``)."""


@dataclass(frozen=True)
class Exposure:
    """What of the dosed documents stands in the first ``tokens`` tokens of a stream.

    ``presentations`` counts documents begun, ``distinct`` the different ones among them.
    """

    asked: float
    share: float
    distinct: int
    presentations: int
    tokens: int


@dataclass(frozen=True)
class Mixture:
    """Texts in reading order: numbers below ``n_documents`` are documents, the rest filler."""

    order: Int[ndarray, " n"]
    lengths: Int[ndarray, " m"]
    n_documents: int
    tokens: int
    asked: float

    def exposure(self) -> Exposure:
        """Return the realised dose."""
        return exposure_of(
            self.order,
            self.lengths,
            np.arange(len(self.lengths)) < self.n_documents,
            tokens=self.tokens,
            asked=self.asked,
        )


def mix(
    documents: Int[ndarray, " n"],
    filler: Int[ndarray, " f"],
    *,
    tokens: int,
    share: float,
    seed: int,
) -> Mixture:
    """Order documents and filler until they fill ``tokens``, documents strewn evenly.

    The order follows from the seed, the row numbers and the lengths alone. At a share of 1 it is
    the order of the undiluted run, and the documents of a smaller dose are among those of a larger.

    Args:
        documents: tokens of each document, its separator included.
        filler: the same of each other text, usually web text.
        tokens: the budget of the run.
        share: part of the tokens that should be documents; met to within one text.
        seed: of the choice and the shuffles.

    Raises:
        ConfigError: a share outside 0 to 1, or a part that is needed and has no text.
    """
    _check(len(documents), len(filler), share)
    chosen = choose(documents, share, seed)
    lengths = np.concatenate([documents, filler]).astype(np.int64)
    next_document = _passes(chosen, seed, _DOCUMENTS)
    next_filler = _passes(np.arange(len(documents), len(lengths)), seed, _FILLER)
    order: list[int] = []
    done = dosed = 0
    while done < tokens:
        takes = share == 1 or dosed < share * done
        number = next(next_document if takes else next_filler)
        order.append(number)
        done += int(lengths[number])
        dosed += int(lengths[number]) if takes else 0
    return Mixture(np.array(order, np.int64), lengths, len(documents), tokens, share)


def choose(documents: Int[ndarray, " n"], share: float, seed: int) -> Int[ndarray, " k"]:
    """Return the numbers, ascending, of the documents that make up ``share`` of the corpus.

    At least one for a share above 0; as near to the share as whole documents come.
    """
    shuffled = np.random.default_rng([seed, 3]).permutation(len(documents))
    held = np.cumsum(documents[shuffled])
    wanted = share * held[-1] if len(held) else 0
    count = int(np.argmin(np.abs(np.concatenate([[0], held]) - wanted)))
    return np.sort(shuffled[: max(count, 1) if share > 0 else 0])


def exposure_of(
    order: Int[ndarray, " n"],
    lengths: Int[ndarray, " m"],
    dosed: Bool[ndarray, " m"],
    *,
    tokens: int,
    asked: float,
) -> Exposure:
    """Measure any reading order: ``dosed`` marks the texts whose share is asked for."""
    sizes = lengths[order]
    ends = np.minimum(np.cumsum(sizes), tokens)
    read = np.diff(ends, prepend=0)
    begun = order[(read > 0) & dosed[order]]
    share = float(read[dosed[order]].sum() / tokens)
    return Exposure(asked, share, len(np.unique(begun)), len(begun), tokens)


def exposure_rows(found: Sequence[Exposure]) -> list[dict[str, object]]:
    """Return a row for each asked share in the form of the paper's Table 14.

    Exposures of one share are its seeds: ranges span them.
    """
    rows = []
    for asked in sorted({one.asked for one in found}):
        runs = [one for one in found if one.asked == asked]
        rows.append(
            {
                "token share": f"{asked:.4g}",
                "realized share": f"{mean(run.share for run in runs):.4g}",
                "unique documents": _range([run.distinct for run in runs]),
                "presentations": _range([run.presentations for run in runs]),
                "tokens": _range([run.tokens for run in runs]),
                "seeds": len(runs),
            }
        )
    return rows


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def _passes(numbers: Int[ndarray, " k"], seed: int, stream: int) -> Iterator[int]:
    """Yield the numbers in passes, every pass shuffled anew."""
    for turn in itertools.count():
        shuffled = np.random.default_rng([seed, stream, turn]).permutation(len(numbers))
        yield from (int(numbers[row]) for row in shuffled)


def _check(documents: int, filler: int, share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"share = {share}; a part of the tokens between 0 and 1 is expected")
    if share > 0 and documents == 0:
        raise ConfigError(f"share = {share} of no document; give documents or share = 0")
    if share < 1 and filler == 0:
        raise ConfigError(
            f"share = {share} leaves {1 - share:.1%} of the tokens to other text and there is "
            "none; name it in dilute, or set share = 1"
        )
