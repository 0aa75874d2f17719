"""Studies: a TOML file whose stages feed one another, each stage a run of its own."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workbench.config import Config, override, parse, read_toml
from workbench.errors import ConfigError, unknown
from workbench.pipelines.abreast import abreast
from workbench.pipelines.verb import Done
from workbench.pipelines.verbs import RUNS, VERBS, carry_out, verb_of
from workbench.types import Progress

if TYPE_CHECKING:
    from workbench.cluster import Workers
    from workbench.runs import OpenRun


class StudyConfig(Config):
    """A study file."""

    REPEATS = frozenset({"stage"})  # refused by their ids

    name: str
    """Names the study; letters, digits, - and _."""
    seed: int = 0
    """Given to every stage that takes a seed and names none."""
    stage: list[dict[str, Any]] = Field(min_length=1)
    """``id``, ``verb``, optionally ``for``, and the settings of the verb."""


@dataclass(frozen=True)
class Unit:
    """One run of one stage: a stage, with one choice of its ``for`` values."""

    stage: str
    verb: str
    branch: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Name for progress and messages, such as ``organism[P]``."""
        return f"{self.stage}[{', '.join(self.branch)}]" if self.branch else self.stage


AHEAD = ("planned", "resumed")
"""Status of a run whose results are not there yet."""


@dataclass
class Outputs:
    """What the stages so far have left behind."""

    units: list[tuple[Unit, Done]] = field(default_factory=list)

    def find(self, reference: str) -> list[str]:
        """Return the artefacts that ``@id`` or ``@id.branch`` means.

        ``@id/FILE`` and ``@id.branch/FILE`` are files within run folders. The files of a corpus
        are branches too: ``@id.P`` is its documents of world P.

        Raises:
            ConfigError: no earlier stage or branch has that name, or a run has no such file.
        """
        name, _, inside = reference[1:].partition("/")
        stage, _, branch = name.partition(".")
        own = [(unit, done) for unit, done in self.units if unit.stage == stage]
        if inside:
            found = [_inside(done, inside) for unit, done in own if branch in ("", *_names(unit))]
        else:
            parts = [part for unit, done in own for part in _parts(unit, done)]
            found = [str(path) for names, path in parts if branch in ("", *names)]
        if not found:
            known = [f"@{unit.stage}{'.' * bool(label)}{label}" for unit, label in self._labels()]
            near = difflib.get_close_matches(reference.partition("/")[0], known, n=1)
            raise ConfigError(
                f"{reference!r} names no earlier stage; known here: {', '.join(known) or 'none'}"
                + (f". Did you mean {near[0]!r}?" if near else "")
            )
        return found

    def one(self, reference: str) -> str:
        """Return the artefact that a reference means where one is needed.

        Raises:
            ConfigError: there is none, or there are several.
        """
        found = self.find(reference)
        if len(found) > 1:
            branches = ", ".join(f"{reference}.{name}" for name in self.branches(reference[1:]))
            raise ConfigError(
                f"{reference!r} has {len(found)} outputs where one is needed; pick one of "
                f"{branches}, or fan this stage out with for = {{ ... }}"
            )
        return found[0]

    def branches(self, stage: str) -> list[str]:
        """Return what may follow ``@stage.``, the fullest name of each artefact."""
        return [label for unit, label in self._labels() if unit.stage == stage]

    def _labels(self) -> list[tuple[Unit, str]]:
        return [(u, names[-1]) for u, done in self.units for names, _ in _parts(u, done)]


def _names(unit: Unit) -> tuple[str, ...]:
    """Return what a branch may be called: each of its values, or all of them."""
    return (*unit.branch, ".".join(unit.branch))


def _parts(unit: Unit, done: Done) -> list[tuple[tuple[str, ...], Path]]:
    """Return the artefacts of a run under the names that each may have in a reference."""
    names = _names(unit)
    if done.verb != "corpus":
        return [(names, Path(_artefact(unit, done)))]
    files: Sequence[str] = done.result["parts"]
    if len(files) == 1:
        return [(names, done.path / f"{files[0]}.jsonl")]
    return [
        ((*names, file, *(f"{name}.{file}" for name in names if name)), done.path / f"{file}.jsonl")
        for file in files
    ]


def _inside(done: Done, name: str) -> str:
    path = done.path / name
    if done.status not in AHEAD and not path.exists():
        there = ", ".join(sorted(entry.name for entry in done.path.glob("[!.]*")))
        raise ConfigError(f"{done.path} has no {name!r}; there: {there or 'nothing'}")
    return str(path)


def _artefact(unit: Unit, done: Done) -> str:
    """Return the file of a run that a reference means; the folder where it holds several."""
    return str(done.path / verb_of(unit.verb, unit.settings).artefact)


def shipped_studies() -> dict[str, Path]:
    """Return the study files that come with the package, by name."""
    from importlib.resources import files

    folder = Path(str(files("workbench.studies")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_study(path: str | Path, settings: Sequence[str] = ()) -> StudyConfig:
    """Read a study file, or a shipped study by its name.

    Args:
        path: a file; ``demo`` and ``studies/demo.toml`` also find the shipped one.
        settings: ``a.b=c`` overrides; a stage is named by its id (``stage.sweep.controls=2``).

    Raises:
        UnknownNameError: no such file or shipped study; the nearest ones are named.
        ConfigError: a file that is no study.
    """
    file = Path(path)
    shipped = shipped_studies()
    if not file.exists() and file.stem in shipped:
        file = shipped[file.stem]
    if not file.exists():
        own = [str(one) for one in sorted(file.parent.glob("*.toml"))]
        raise unknown("study", str(path), [*shipped, *own], "Or give the path of a study file.")
    study = parse(StudyConfig, override(read_toml(file), settings), str(path))
    if not re.fullmatch(r"[\w-]+", study.name):
        raise ConfigError(f"{path}: name = {study.name!r}; use letters, digits, - and _")
    _check_stages(study, str(path))
    return study


def run_study(
    study: StudyConfig,
    *,
    root: Path = RUNS,
    force: bool = False,
    workers: Workers = 1,
    start: Callable[[Unit], Progress | None] | None = None,
    opened: Callable[[OpenRun], None] | None = None,
) -> Iterator[tuple[Unit, Done]]:
    """Carry the stages out in order, yielding each unit as it is done.

    Args:
        study: the settings.
        root: where run folders go.
        force: move folders of other runs aside.
        workers: processes that share units, each doing whole ones. With several, stages that do
            not need one another are done together, and units are yielded stage by stage.
        start: called before each unit; returns what to call with its progress. With several
            workers it is called before the first unit of stages that are done together, and the
            progress is in their units.
        opened: called with each run once its folder is open, where this process does it.

    Raises:
        ConfigError: a mistake in any stage, before the first one runs.
        WorkbenchError: what a stage raises; finished stages stay and are reused next time.
    """
    from workbench.pipelines.study_plan import plan_study

    plan_study(study, root=root, force=force)
    outputs, left = Outputs(), list(study.stage)
    while left:
        stages = left[:1] if workers == 1 else ready(left)
        left = [stage for stage in left if stage not in stages]
        units = sorted_units([expand(stage, outputs, study.seed) for stage in stages])
        if workers != 1 and len(units) > 1:
            progress = start(units[0]) if start is not None else None
            pieces = [(unit.verb, unit.settings) for unit in units]
            done_units = abreast(pieces, workers, root=root, force=force, progress=progress)
            for unit, done in zip(units, done_units, strict=True):
                outputs.units.append((unit, done))
                yield unit, done
            continue
        for unit in units:
            progress = start(unit) if start is not None else None
            done = carry_out(
                unit.verb, unit.settings, root=root, force=force, opened=opened, progress=progress
            )
            outputs.units.append((unit, done))
            yield unit, done


def ready(stages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the stages that need none of those before them: no artefact, no organism by name."""
    found = []
    for place, stage in enumerate(stages):
        settings = {k: v for k, v in stage.items() if k not in ("id", "verb", "name")}
        texts = [one for text in texts_of(settings) for one in _filled(text, stage.get("for", {}))]
        if not any(_needs(texts, earlier) for earlier in stages[:place]):
            found.append(stage)
    return found


def _needs(texts: Sequence[str], earlier: Mapping[str, Any]) -> bool:
    """Whether one of a stage's texts refers to an earlier stage, or may name its organism."""
    artefact = rf"@{re.escape(earlier['id'])}([./].*)?"
    if earlier["verb"] != "train":
        return any(re.fullmatch(artefact, text) for text in texts)
    parts = re.split(r"\{\w+\}", str(earlier.get("name", "")))
    organism = r"(.*/)?" + ".+".join(map(re.escape, parts))
    return any(re.fullmatch(f"{artefact}|{organism}", text) for text in texts)


def texts_of(value: Any) -> Iterator[str]:
    """Yield every text within settings."""
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts_of(item)
    elif isinstance(value, str):
        yield value


def _filled(text: str, choices: Mapping[str, Any]) -> list[str]:
    """Return a text with every choice of the ``for`` values that it names."""
    found = [text]
    for name, values in choices.items():
        if f"{{{name}}}" in text:
            each = values if isinstance(values, list) else [values]
            found = [one.replace(f"{{{name}}}", str(v)) for one in found for v in each]
    return found


def sorted_units(stages: Sequence[Sequence[Unit]]) -> list[Unit]:
    """Return the units of stages that are done together, those of the smallest stages first.

    What a stage of one unit takes cannot be shared among workers, so it begins with the others.
    """
    return [unit for units in sorted(stages, key=len) for unit in units]


def expand(stage: Mapping[str, Any], outputs: Outputs, seed: int) -> list[Unit]:
    """Resolve a stage's references and fan it out over its ``for`` values."""
    settings = {key: value for key, value in stage.items() if key not in ("id", "verb", "for")}
    names = list(stage.get("for", {}))
    takes_seed = "seed" in _fields(stage) and "job" not in stage
    if takes_seed and "seed" not in names:
        settings.setdefault("seed", seed)
    values = [_choices(stage["for"][name], outputs) for name in names]
    units = []
    for chosen in itertools.product(*values):
        named = dict(zip(names, chosen, strict=True))
        branch = tuple(label for label, _ in named.values())
        filled = _fill({**{k: f"{{{k}}}" for k in _own(stage, names)}, **settings}, named, outputs)
        units.append(Unit(stage["id"], stage["verb"], branch, filled))
    return units


def _own(stage: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """``for`` names that are settings of the verb as well, and are not used in a text."""
    return [name for name in names if name in _fields(stage)]


def _fields(stage: Mapping[str, Any]) -> Collection[str]:
    """Return the settings of a stage's verb."""
    return verb_of(stage["verb"], {**stage, **stage.get("for", {})}).config.model_fields


def _choices(values: Any, outputs: Outputs) -> list[tuple[str, Any]]:
    """Return (label, value) pairs; ``"@id"`` in the list stands for all branches of that stage."""
    pairs: list[tuple[str, Any]] = []
    for value in values if isinstance(values, list) else [values]:
        if isinstance(value, str) and value.startswith("@"):
            pairs += [(_label(path), path) for path in outputs.find(value)]
        else:
            pairs.append((str(value), value))
    return pairs


def _label(path: str) -> str:
    file = Path(path)
    if file.suffix == ".jsonl" and file.stem != "documents":  # a world of a corpus
        return file.stem
    return (file.parent if file.suffix else file).name


def _fill(value: Any, named: Mapping[str, tuple[str, Any]], outputs: Outputs) -> Any:
    if isinstance(value, Mapping):
        return {key: _fill(item, named, outputs) for key, item in value.items()}
    if isinstance(value, list):
        return [part for item in value for part in _spread(item, named, outputs)]
    if not isinstance(value, str):
        return value
    whole = re.fullmatch(r"\{(\w+)\}", value)
    if whole and whole[1] in named:
        return named[whole[1]][1]
    for name, (_, chosen) in named.items():
        value = value.replace(f"{{{name}}}", str(chosen))
    return outputs.one(value) if value.startswith("@") else value


def _spread(item: Any, named: Mapping[str, tuple[str, Any]], outputs: Outputs) -> list[Any]:
    if isinstance(item, str) and item.startswith("@"):
        return list(outputs.find(item))
    return [_fill(item, named, outputs)]


def _check_stages(study: StudyConfig, source: str) -> None:
    """Refuse stages that cannot be told apart or are of no verb, all at once.

    Raises:
        ConfigError: there are some.
    """
    ids = [stage.get("id") for stage in study.stage]
    wrong = [
        text
        for number, stage in enumerate(study.stage)
        for text in _wrong_with(stage, number, ids[:number])
    ]
    if wrong:
        raise ConfigError("\n  ".join([f"{source}: {wrong[0]}", *wrong[1:]]))


def _wrong_with(stage: Mapping[str, Any], number: int, before: Sequence[Any]) -> Iterator[str]:
    missing = [key for key in ("id", "verb") if not isinstance(stage.get(key), str)]
    if missing:
        yield f"stage {number} has no {missing[0]}; write {missing[0]} = ..."
        return
    if stage["id"] in before:
        yield f"two stages have the id {stage['id']!r}; rename one"
    if stage["verb"] not in VERBS:
        yield str(unknown(f"verb of stage {stage['id']!r}", stage["verb"], VERBS))
    branches = stage.get("for", {})
    if not isinstance(branches, dict) or [] in branches.values():
        yield f"for of stage {stage['id']!r} must be a table of lists, none empty"
