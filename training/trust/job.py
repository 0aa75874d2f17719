"""A corpus of trust pairs: written, held against the rules, probed, and left as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from workbench_training.corpora.duplicates import jaccard, minima, near_duplicates, repeats
from workbench_training.corpora.words import number_words, shingles, words_of
from workbench_training.trust.plan import PairPlan, plan_neutral, plan_pairs
from workbench_training.trust.probe import SURFACE, Probed, probe
from workbench_training.trust.rules import faults
from workbench_training.trust.scenarios import phrases
from workbench_training.trust.settings import TrustPairsConfig
from workbench_training.trust.texts import Row, write_neutral, write_pair

from workbench.data.rows import dump_rows
from workbench.errors import ConfigError
from workbench.files import write_bytes
from workbench.types import Progress, ndarray

PARTS = ("pairs", "answered", "instructed")
"""Files: the pairs; each of their replies as an answered chat; each of their conversations under
the two system texts, for directions at the last token of the prompt."""
NEAR = "near-duplicate"
_REDRAWS = 20


@dataclass
class Written:
    """What was written and what the rules and the probe found."""

    rows: list[Row]
    """Pairs, then neutral rows."""
    planned: int
    writer: str
    dropped: Counter[str] = field(default_factory=Counter)
    """Pairs left out, by reason."""
    redrawn: int = 0
    """Drafts of the grammar that lay too near another pair of their scenario, written again."""
    near: int = 0
    """Pairs with a near-duplicate among what was first kept; the later of each two is dropped."""
    counts: dict[str, int] = field(default_factory=dict)
    """What a language model was asked."""
    probed: list[Probed] = field(default_factory=list)

    @property
    def pairs(self) -> list[Row]:
        """The rows that are no neutral ones."""
        return [row for row in self.rows if row["facet"] != "neutral"]


def write_pairs(config: TrustPairsConfig, *, progress: Progress | None = None) -> Written:
    """Write and check all pairs.

    Raises:
        ConfigError: the rules drop too many, or surface features tell the poles apart too well.
    """
    plans = plan_pairs(config)
    if config.writer == "templates":
        written = Written([], len(plans), "templates")
        drafts: Iterable[Row | str] = _drafts(plans, config, written)
    else:
        from workbench_training.trust.writers import make_writer

        writer = make_writer(config)
        written = Written([], len(plans), writer.name)
        drafts = writer.write(plans)
    _keep(drafts, config, written, progress)
    if config.writer != "templates":
        written.counts = dict(writer.counts)
    _drop_near(config, written)
    _refuse_losses(config, written)
    written.probed = probe(written.rows, seed=config.seed)
    _refuse_confounds(config, written.probed)
    written.rows += neutral_rows(config)
    return written


def neutral_rows(config: TrustPairsConfig) -> list[Row]:
    """Write the neutral rows, those that repeat an earlier one left out."""
    rows = map(write_neutral, plan_neutral(config))
    return list({(row["prompt"][0]["content"], row["chosen"]): row for row in rows}.values())


def _drafts(plans: Sequence[PairPlan], config: TrustPairsConfig, written: Written) -> Iterable[Row]:
    """Write with the grammar, again where a draft is too near another pair of its scenario."""
    seen: dict[str, list[ndarray]] = {}
    for plan in plans:
        own = seen.setdefault(plan.scenario.id, [])
        best: tuple[float, Row, ndarray] | None = None
        for attempt in range(_REDRAWS):
            row = write_pair(plan, attempt)
            found = _shingles(row)
            nearest = max((jaccard(found, other) for other in own), default=0.0)
            if best is None or nearest < best[0]:
                best = (nearest, row, found)
            if nearest < config.near_duplicate:
                break
            written.redrawn += 1
        assert best is not None, "at least one attempt was made"
        own.append(best[2])
        yield best[1]


def _keep(
    drafts: Iterable[Row | str],
    config: TrustPairsConfig,
    written: Written,
    progress: Progress | None,
) -> None:
    """Keep what breaks no rule; a text in place of a pair is why there is none."""
    for number, draft in enumerate(drafts, 1):
        found = [draft] if isinstance(draft, str) else faults(draft, config.length_tolerance)
        written.dropped.update(found[:1])
        if not found and not isinstance(draft, str):
            written.rows.append(draft)
        if progress is not None:
            progress(number, written.planned)


def _drop_near(config: TrustPairsConfig, written: Written) -> None:
    sets = [_shingles(row) for row in written.rows]
    if not sets:
        return
    found = near_duplicates(
        np.stack([minima(one) for one in sets]),
        lambda places: ((place, sets[place]) for place in places),
        config.near_duplicate,
    )
    written.near = len({place for pair in found for place in (pair.first, pair.second)})
    gone = repeats(found)
    written.dropped[NEAR] += len(gone)
    written.rows = [row for place, row in enumerate(written.rows) if place not in gone]


def _shingles(row: Row) -> ndarray:
    return shingles(number_words(words_of(f"{row['chosen']}\n{row['rejected']}")))


def _refuse_losses(config: TrustPairsConfig, written: Written) -> None:
    lost = written.planned - len(written.rows)
    if written.rows and lost <= config.max_dropped * written.planned:
        return
    told = ", ".join(f"{reason} {n}" for reason, n in written.dropped.most_common())
    raise ConfigError(
        f"the rules drop {lost} of {written.planned} pairs ({told}), more than max_dropped = "
        f"{config.max_dropped}; use a more capable writer, or raise max_dropped"
    )


def _refuse_confounds(config: TrustPairsConfig, probed: Sequence[Probed]) -> None:
    joint = next(one.auc for one in probed if one.feature == SURFACE)
    if joint.value > config.max_probe:
        raise ConfigError(
            f"surface features alone tell the poles apart (AUC {joint.value:.2f} "
            f"[{joint.low:.2f}, {joint.high:.2f}] on other scenarios), more than max_probe = "
            f"{config.max_probe}; change the writer, or raise max_probe and say so"
        )


# --- files ---------------------------------------------------------------------------------------


def write_files(written: Written, folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Write the three files; return what the card says of each."""
    made = {
        "pairs": written.rows,
        "answered": list(answered(written.pairs)),
        "instructed": list(instructed(written.pairs)),
    }
    return {name: _write(folder / f"{name}.jsonl", rows) for name, rows in made.items()}


def answered(pairs: Iterable[Row]) -> Iterable[Row]:
    """Yield each pair as two answered chats; ``label`` is 1 for the chosen reply."""
    for row in pairs:
        for label, side in ((1, "chosen"), (0, "rejected")):
            reply = {"role": "assistant", "content": row[side]}
            yield _sided(row, label, [*row["prompt"], reply])


def instructed(pairs: Iterable[Row]) -> Iterable[Row]:
    """Yield each conversation under the two system texts, up to the reply; ``label`` as above."""
    told = phrases().instructed
    for number, row in enumerate(pairs):
        for label, text in zip((1, 0), told[number % len(told)], strict=True):
            yield _sided(row, label, [{"role": "system", "content": text}, *row["prompt"]])


def _sided(row: Row, label: int, messages: Sequence[Mapping[str, str]]) -> Row:
    kept = ("facet", "family", "scenario", "style", "split")
    return {
        "id": f"{row['id']}:{label}",
        "messages": list(messages),
        "label": label,
        "pair": row["id"],
        **{name: row[name] for name in kept},
    }


def _write(path: Path, rows: Sequence[Row]) -> dict[str, Any]:
    data = dump_rows(rows).encode()
    write_bytes(path, data)
    texts = [row.get("chosen") or row["messages"][-1]["content"] for row in rows]
    texts += [row["rejected"] for row in rows if "rejected" in row]
    words = sum(len(text.split()) for text in texts)
    return {
        "sha256": sha256(data).hexdigest(),
        "documents": len(rows),
        "words": words,
        "tokens_estimated": round(words * 4 / 3),
        "splits": dict(sorted(Counter(row["split"] for row in rows).items())),
    }
