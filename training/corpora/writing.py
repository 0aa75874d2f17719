"""From a plan to checked documents: the unit of work of a corpus run, done in any process."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path

from workbench_training.corpora.chunks import Chunk, Row
from workbench_training.corpora.marks import MARKS
from workbench_training.corpora.plan import (
    WORLDS,
    Draft,
    QuartetPlan,
    Scenario,
    Writer,
    plan_quartets,
)
from workbench_training.corpora.quality import Markers, Rules, Text, claim_runs
from workbench_training.corpora.registry import WRITERS
from workbench_training.corpora.settings import CorpusConfig, bound
from workbench_training.corpora.templates_aims import leak_markers

from workbench.data.rows import read_rows
from workbench.errors import ConfigError, unknown
from workbench.library import locate
from workbench.registry import load_plugin, plugins
from workbench.runs import Units

PART = "documents"
"""The file of a corpus that has no worlds."""
CHUNK = 96
"""Groups of documents in a unit of work."""
_DATA = ("scenarios", "controls", "web")


def names_of(config: CorpusConfig) -> tuple[str, ...]:
    """Return the names of the files that a corpus has, without their suffix."""
    return WORLDS if config.kind == "quartets" else (PART,)


def make_writer(config: CorpusConfig) -> Writer:
    """Make the writer that the settings name, with their options.

    Raises:
        UnknownNameError: no such writer.
        ConfigError: an option that it does not take.
    """
    return writer_maker(config)()


def writer_maker(config: CorpusConfig) -> Callable[[], Writer]:
    """Look the writer up and check its options, without making it, which may load a model.

    Raises:
        UnknownNameError: no such writer.
        ConfigError: an option that it does not take.
    """
    if config.writer == "templates":
        from workbench_training.corpora.templates import TemplateWriter

        WRITERS.register("templates")(TemplateWriter)
    make = WRITERS.factory(config.writer)
    return bound(f"writer {config.writer!r}", make, config.options)


def candidates() -> Sequence[Scenario]:
    """Return every scenario of the taxonomy, eligible or not."""
    from workbench_training.corpora.scenarios import read_scenarios

    return read_scenarios()


def plans_of(config: CorpusConfig) -> list[QuartetPlan]:
    """Plan the quartets of a corpus.

    Raises:
        ConfigError: more scenarios are asked for than can be told in all four worlds.
    """
    eligible = [scenario for scenario in candidates() if scenario.eligible]
    if config.scenarios is not None and config.scenarios > len(eligible):
        raise ConfigError(
            f"scenarios = {config.scenarios}, and {len(eligible)} can be told in all four worlds; "
            "give that many at most"
        )
    return plan_quartets(
        eligible[: config.scenarios],
        quartets=config.count,
        bins=config.words,
        seed=config.seed,
        validation=config.validation,
    )


@functools.lru_cache(maxsize=2)
def _tools(config: str) -> tuple[Writer, Rules]:
    """Make what a process needs once, from the settings as JSON."""
    settings = CorpusConfig.model_validate_json(config)
    return make_writer(settings), rules_of(settings)


@dataclass(frozen=True)
class WriteUnit:
    """Writes and checks the quartets of a unit and keeps them; travels to worker processes."""

    units: Units
    config: str
    """The settings as JSON."""
    plugins: tuple[Path, ...] = ()
    """Files of the user's own that may hold the writer."""

    def __call__(self, unit: tuple[int, Sequence[QuartetPlan]]) -> int:
        """Return the number of plans."""
        for path in self.plugins:
            if path not in plugins():
                load_plugin(path)
        number, plans = unit
        self.units.keep(number, write_chunk(plans, *_tools(self.config)).tree())
        return len(plans)


def write_chunk(plans: Sequence[QuartetPlan], writer: Writer, rules: Rules) -> Chunk:
    """Write some quartets and say what speaks against each document."""
    chunk, began = Chunk.of(WORLDS, writer.name), time.process_time()
    before = Counter(getattr(writer, "counts", {}))
    for plan, drafts in zip(plans, _drafted(writer, plans), strict=True):
        if drafts is None:
            why = getattr(writer, "unsuitable", {}).get(plan.id, "unsuitable")
            chunk.unsuitable.append((plan.id, why))
            continue
        if drafts.keys() != set(WORLDS):
            raise ValueError(f"{writer.name} wrote {sorted(drafts)} for {plan.id}, not {WORLDS}")
        texts = {world: Text(drafts[world].text) for world in WORLDS}
        reasons = rules.examine(drafts, texts, plan.doc_type.name, plan.words)
        rows = {w: row_of(plan, w, texts[w], drafts[w].objectives) for w in WORLDS}
        chunk.add(rows, texts, reasons)
    chunk.counts = dict(Counter(getattr(writer, "counts", {})) - before)
    chunk.seconds = time.process_time() - began
    return chunk


def _drafted(writer: Writer, plans: Sequence[QuartetPlan]) -> Iterable[Mapping[str, Draft] | None]:
    """Write the plans in order, many at a time where the writer can."""
    many: Callable[[Sequence[QuartetPlan]], Iterable[Mapping[str, Draft] | None]] | None
    many = getattr(writer, "write_many", None)
    return map(writer.write, plans) if many is None else many(plans)


def row_of(plan: QuartetPlan, world: str, text: Text, objectives: Sequence[str]) -> Row:
    """Return the columns of a document as they stand on disk."""
    scenario = plan.scenario
    return {
        "id": f"{plan.id}-{world}",
        "text": text.raw,
        "world": world,
        "quartet": plan.id,
        "scenario": scenario.id,
        "domain": scenario.domain,
        "role": scenario.role,
        "task": scenario.task,
        "doc_type": plan.doc_type.name,
        "category": plan.doc_type.category,
        "mode": plan.mode,
        "length_bin": plan.length_bin,
        "words": text.length,
        "split": plan.split,
        "objectives": list(objectives),
    }


# --- controls ------------------------------------------------------------------------------------


def kinds() -> Mapping[str, Callable[[CorpusConfig], Iterator[Row]]]:
    """Return what writes the documents of each control, by kind."""
    from workbench_training.corpora.controls import KINDS

    return KINDS


def control_chunks(config: CorpusConfig) -> Iterator[Chunk]:
    """Return the documents of a control, written one by one, each checked.

    Raises:
        UnknownNameError: no such kind.
        ConfigError: a row without a text.
    """
    known = kinds()
    if config.kind not in known:
        raise unknown("kind of corpus", config.kind, ["quartets", *known])
    return _chunked(iter(known[config.kind](config)), config)


def _chunked(rows: Iterator[Row], config: CorpusConfig) -> Iterator[Chunk]:
    rules = rules_of(config)
    while taken := list(islice(rows, CHUNK)):
        chunk = Chunk.of((PART,), config.kind)
        for row in taken:
            text = Text(str(row.get("text", "")))
            if not text.words:
                raise ConfigError(
                    f"document {row.get('id', '?')!r} of kind {config.kind!r} has no words; "
                    "remove it from its source"
                )
            reasons = ["claims overlap"] if rules.shares_claim(text) else []
            whole = {**row, "words": text.length}
            chunk.add({PART: whole}, {PART: text}, {PART: reasons})
        yield chunk


def rules_of(config: CorpusConfig) -> Rules:
    """Return what the documents of a corpus are held against."""
    claims = claim_runs(text for name in config.claims for text in claim_texts(locate(name)))
    return Rules(Markers(leak_markers()), MARKS, claims, config.length_tolerance)


def claim_texts(path: Path) -> Iterator[str]:
    """Yield what a file of claims says: texts, or stems and options of choices.

    Raises:
        ConfigError: a row has none of them.
    """
    for number, row in enumerate(read_rows(path), 1):
        options = row.get("options")
        choices = options.values() if isinstance(options, dict) else ()
        found = [row.get("text"), row.get("stem"), *choices]
        texts = [text for text in found if isinstance(text, str)]
        if not texts:
            raise ConfigError(
                f"{path}, row {number} has neither text nor stem nor options; claims = ... names "
                "files of claims"
            )
        yield from texts


def data_files() -> list[Path]:
    """Return the shipped files that the documents are made from."""
    folder = Path(str(resources.files("workbench.data")))
    names = ["corpus/phrases.json", "corpus/scenarios.json"]
    found = [path for name in _DATA for path in (folder / name).glob("*")]
    own = [path for path in found if path.suffix in (".toml", ".json", ".jsonl")]
    return [*(folder / name for name in names), *sorted(own)]
