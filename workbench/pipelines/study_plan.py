"""A study before it runs: every mistake, what each unit reads, and which runs are there already."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, WorkbenchError
from workbench.pipelines.lookups import absent_columns, unknown_names
from workbench.pipelines.study import AHEAD, Outputs, StudyConfig, Unit, expand, texts_of
from workbench.pipelines.verb import Done
from workbench.pipelines.verbs import RUNS, foresee_run, outline, place_of, read_settings, verb_of


@dataclass(frozen=True)
class Planned:
    """One run of a study that is not run yet."""

    unit: Unit
    done: Done
    """Its status is reused, resumed or planned."""
    reads: tuple[str, ...]
    """Titles of the runs of earlier stages that it reads."""
    cost: Mapping[str, Any]
    """What a preview tells; empty of a run that is there, or that reads what is not there yet."""


def plan_study(study: StudyConfig, *, root: Path = RUNS, force: bool = False) -> list[Planned]:
    """Check all of a study, and say what each of its runs would do; nothing is run or written.

    What a run reads of an earlier one that is not there yet cannot be looked at: then its settings
    and the names in them are checked. No model is loaded.

    Args:
        study: the settings.
        root: where run folders lie.
        force: folders of other runs may be moved aside.

    Raises:
        ConfigError: whatever is wrong anywhere, each with the id of its stage.
    """
    outputs, mistakes = _Foreseen(later=[stage["id"] for stage in study.stage]), _Mistakes()
    found: list[Planned] = []
    for stage in study.stage:
        outputs.begin(stage["id"])
        units = expand(stage, outputs, study.seed)
        titles = [unit.title for unit in units]
        for unit in units:
            planned, wrong = _examine(unit, outputs, root, force)
            mistakes.add(stage["id"], titles, unit.title, wrong)
            found.append(planned)
        mistakes.add(stage["id"], [stage["id"]], stage["id"], outputs.wrong)
        outputs.units += [(one.unit, one.done) for one in found[len(found) - len(units) :]]
    mistakes.refuse(study.name)
    return found


def _examine(
    unit: Unit, outputs: _Foreseen, root: Path, force: bool
) -> tuple[Planned, Sequence[str]]:
    """Look at one run as closely as can be, without a model and without running anything."""
    done = Done(unit.verb, "", "planned", Path(f"@{'.'.join([unit.stage, *unit.branch])}"))
    reads, ahead = outputs.read_by(unit), outputs.ahead(unit.settings)
    try:
        config = read_settings(unit.verb, unit.settings)
    except WorkbenchError as error:
        return Planned(unit, done, reads, {}), [str(error)]
    wrong = unknown_names(config, outputs.ahead, outputs.asked)
    wrong += _absent(unit, config, outputs)
    wrong += [] if wrong else absent_columns(config, outputs.columns)
    cost: Mapping[str, Any] = {}
    try:
        if not wrong and not ahead:
            done = foresee_run(unit.verb, unit.settings, root=root, force=force)
            cost = {} if done.status == "reused" else outline(unit.verb, unit.settings)
        elif not wrong and _counts_without_inputs(unit, config, outputs):
            cost = {
                key: value
                for key, value in outline(unit.verb, unit.settings).items()
                if key != "missing"
            }
    except WorkbenchError as error:
        wrong = [str(error)]
    done = done if done.status == "reused" else _to_come(unit, config, done, root)
    if unit.verb == "cache" and "columns" in cost:
        outputs.columns[str(done.path)] = ["id", "text", *cost["columns"]]
    return Planned(unit, done, reads, cost), wrong


def _absent(unit: Unit, config: Any, outputs: _Foreseen) -> list[str]:
    """Say which files and folders a run names that neither are there nor will be."""
    if not outputs.ahead(unit.settings):
        return []  # all are looked into
    try:
        inputs = verb_of(unit.verb, unit.settings).inputs(config)
    except WorkbenchError:
        return []  # which it opens itself, and cannot yet
    gone = [path for path in inputs if not path.exists() and not outputs.ahead(str(path))]
    return [f"no input {str(path)!r}; give an existing path, or @ID of a stage" for path in gone]


def _counts_without_inputs(unit: Unit, config: Any, outputs: _Foreseen) -> bool:
    """Whether a preview tells the cost from the settings: of a training on documents to come."""
    planned = verb_of(unit.verb, unit.settings).planned
    return planned is not None and not outputs.ahead(config.model)


def _to_come(unit: Unit, config: Any, done: Done, root: Path) -> Done:
    """Return what later stages may refer to: an organism's folder, else a stand-in."""
    parts = verb_of(unit.verb, unit.settings).parts
    result = {"parts": list(parts(config))} if parts is not None else {}
    stand_in = Path(f"@{'.'.join([unit.stage, *unit.branch])}")
    place = place_of(unit.verb, config, root) or stand_in
    return Done(unit.verb, done.id, done.status, place, result)


@dataclass
class _Foreseen(Outputs):
    """What stages will leave behind; wrong references are noted, and stand for themselves."""

    later: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """About the references of the stage that is looked at."""
    asked: dict[str, str] = field(default_factory=dict)
    """Models that were looked up."""
    columns: dict[str, list[str]] = field(default_factory=dict)
    """What prompts have, by the place of the store that is to come."""

    def begin(self, stage: str) -> None:
        """Turn to a stage."""
        self.later.remove(stage)
        self.wrong = []

    def find(self, reference: str) -> list[str]:
        try:
            return super().find(reference)
        except ConfigError as error:
            stage = re.split(r"[./]", reference[1:])[0]
            late = f"{reference!r} stands later in the study; move stage {stage!r} up"
            self.wrong.append(late if stage in self.later else str(error))
            return [reference]

    def one(self, reference: str) -> str:
        try:
            return super().one(reference)
        except ConfigError as error:
            self.wrong.append(str(error))
            return reference

    def ahead(self, value: Any) -> bool:
        """Whether settings refer to what is not there yet, an organism by its name included."""
        coming = [done for _, done in self.units if done.status in AHEAD and done.verb == "train"]
        names = {done.path.name for done in coming}
        texts = list(texts_of(value))
        return any(text.startswith("@") or Path(text).name in names for text in texts)

    def read_by(self, unit: Unit) -> tuple[str, ...]:
        """Name the runs that a unit reads; of a corpus, its file."""
        texts, found = list(texts_of(unit.settings)), []
        for earlier, done in self.units:
            folder, organism = str(done.path), done.path.name if done.verb == "train" else None
            own = [text for text in texts if text in (folder, organism) or _lies_in(text, folder)]
            if done.verb == "corpus":
                found += [f"{earlier.title}.{Path(text).stem}" for text in own]
            elif own:
                found.append(earlier.title)
        return tuple(dict.fromkeys(found))


def _lies_in(text: str, folder: str) -> bool:
    return text.startswith(f"{folder}/")


@dataclass
class _Mistakes:
    """What is wrong, each once: with the stage's id where all its runs have it, else the run's."""

    told: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    titles: dict[str, list[str]] = field(default_factory=dict)

    def add(self, stage: str, titles: Sequence[str], title: str, texts: Sequence[str]) -> None:
        """Note what is wrong with one run of a stage."""
        self.titles.setdefault(stage, list(titles))
        for text in texts:
            where = self.told.setdefault((stage, text), [])
            where += [title] if title not in where else []

    def refuse(self, study: str) -> None:
        """Name all of them.

        Raises:
            ConfigError: there are some.
        """
        lines = [
            f"  {stage if where == self.titles[stage] else ', '.join(where)}: {text}"
            for (stage, text), where in self.told.items()
        ]
        if lines:
            count = f"{len(lines)} mistake{'s' * (len(lines) > 1)}"
            raise ConfigError("\n".join([f"study {study}: {count}, nothing was run", *lines]))
