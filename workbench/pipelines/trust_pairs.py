"""The verb corpus where it writes trust pairs: settings in, pairs, card and tables out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.pipelines.parts import paths_of
from workbench.pipelines.verb import Verb, Work

if TYPE_CHECKING:
    from workbench_training.trust.settings import TrustPairsConfig


def trust_pairs_verb() -> Verb:
    """Write pairs of replies, one that builds on what a user says of themselves, one that need not.

    ``"@id.pairs"`` in a study is the file of pairs; ``answered`` and ``instructed`` are the others.
    """
    from workbench_training.trust.settings import TrustPairsConfig

    return Verb(
        TrustPairsConfig,
        inputs_of,
        _body,
        preview,
        shards=False,
        parts=lambda _: ("pairs", "answered", "instructed"),
    )


def inputs_of(config: TrustPairsConfig) -> list[Path]:
    """Return what decides what the pairs say: shipped files, and a folder of the writer's."""
    from workbench_training.trust.scenarios import data_files

    own = config.options.get("model") if config.writer == "local" else None
    return [*data_files(), *paths_of([own])]


def _body(config: TrustPairsConfig, work: Work) -> Mapping[str, Any]:
    from workbench_training.trust.card import write_reports
    from workbench_training.trust.job import write_files, write_pairs

    written = write_pairs(config, progress=work.progress)
    files = write_files(written, work.run.path)
    card = write_reports(config, written, files, work.run.path)
    told = {"kind": config.kind, "writer": card["writer"], "parts": list(files)}
    shown = ("documents", "words", "tokens_estimated")
    files_told = {name: {key: file[key] for key in shown} for name, file in files.items()}
    return {**told, **card["counts"], "probe": card["probe"], "files": files_told}


def preview(config: TrustPairsConfig) -> Mapping[str, Any]:
    """Count what would be written, without writing it."""
    from collections import Counter

    from workbench_training.trust.job import neutral_rows
    from workbench_training.trust.plan import plan_pairs

    plans = plan_pairs(config)
    splits = {split: [plan for plan in plans if plan.split == split] for split in ("train", "test")}
    return {
        "pairs": len(plans),
        "neutral": len(neutral_rows(config)),
        "splits": {split: len(own) for split, own in splits.items()},
        "scenarios": {s: len({p.scenario.id for p in own}) for s, own in splits.items()},
        "facets": dict(sorted(Counter(plan.scenario.facet for plan in plans).items())),
        "styles": dict(sorted(Counter(plan.style for plan in plans).items())),
        "turns": dict(sorted(Counter(plan.turns for plan in plans).items())),
    }
