"""Reading roles, traits and questions: what ships, a folder laid out alike, or released files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from workbench.config import Config, parse, read_toml
from workbench.data import data_path
from workbench.errors import ConfigError
from workbench.personas import released
from workbench.personas.items import Role, Trait, fill, spoken
from workbench.prompts import PromptSet, read_prompts

ROLES = data_path("role_questions").parent
TRAITS = data_path("trait_questions").parent
DEFAULT = "default"
ANY = "any"
PARTS = ("extraction", "evaluation")


class RoleTable(Config):
    """One role of a TOML file."""

    description: str = Field(alias="is", min_length=1)
    prompts: str = Field(min_length=1)
    """A system prompt a line."""


class TraitTable(Config):
    """One trait of a TOML file."""

    description: str = Field(alias="is", min_length=1)
    antonym: str = Field(min_length=1)
    pairs: str = Field(min_length=1)
    """A pair a line: ``positive | negative``."""


class DefaultFile(Config):
    """``default.toml``: the default prompts, and the rubric that every role shares."""

    prompts: tuple[str, ...] = Field(min_length=1)
    rubric: str


class RubricFile(Config):
    """``rubric.toml``: the rubric that every trait shares."""

    rubric: str


def read_roles(folder: str | Path | None = None) -> dict[str, Role]:
    """Read the roles by name, without the default.

    Args:
        folder: what ships where it is left out; else a folder laid out alike, or one of the
            assistant-axis project (its checkout, ``data``, ``roles`` or ``instructions``).

    Raises:
        ConfigError: no such folder, or a TOML file that is not as README.md explains.
        FormatError: a released file that lacks a key or holds something else there.
    """
    if folder is not None and (files := released.role_files(Path(folder))):
        return {path.stem: released.read_role(path) for path in files if path.stem != DEFAULT}
    home = _home(folder, ROLES, "roles")
    rubric = _default_file(home).rubric
    roles: dict[str, Role] = {}
    for path in _tables(home, DEFAULT):
        for name, table in read_toml(path).items():
            _refuse_twice(name, roles, path)
            roles[name] = _role(name, table, rubric, path)
    return roles


def read_default(folder: str | Path | None = None) -> Role:
    """Read what the default Assistant is told, as a role of the name "default".

    It has no rubric: the default vector takes all rollouts, whatever they say.

    Raises:
        ConfigError: no such folder or no ``default.toml`` in it.
        FormatError: a released folder without ``default.json``, or a bad one.
    """
    if folder is not None and (files := released.role_files(Path(folder))):
        return released.read_role(released.named(files, DEFAULT), judged=False)
    told = _default_file(_home(folder, ROLES, "roles"))
    about = "The assistant as it is when nobody tells it to be someone else."
    return Role(DEFAULT, about, told.prompts, "")


def read_traits(folder: str | Path | None = None) -> dict[str, Trait]:
    """Read the traits by name.

    Args:
        folder: as for ``read_roles``; files of persona vectors (one JSON a trait, in a folder
            of their own) are read as well.

    Raises:
        ConfigError: no such folder, or a TOML file that is not as README.md explains.
        FormatError: a released file that lacks a key or holds something else there.
    """
    if folder is not None and (files := released.trait_files(Path(folder))):
        return {path.stem: released.read_trait(path) for path in files}
    home = _home(folder, TRAITS, "traits")
    path = home / "rubric.toml"
    rubric = _slotted(parse(RubricFile, read_toml(path), str(path)).rubric, path)
    traits: dict[str, Trait] = {}
    for path in _tables(home, "rubric"):
        for name, table in read_toml(path).items():
            _refuse_twice(name, traits, path)
            traits[name] = _trait(name, table, rubric, path)
    return traits


def read_questions(path: str | Path | None = None) -> PromptSet:
    """Read the questions that every role is asked.

    Args:
        path: what ships where it is left out; else a prompt file, a released
            ``extraction_questions.jsonl`` (key ``question``), or a folder that holds one.

    Raises:
        ConfigError: no such file, no questions in it, or one that is not a text.
    """
    if path is None:
        return read_prompts(data_path("role_questions"))
    found = Path(path)
    if found.is_dir():
        found = released.questions_file(found)
    return released.read_question_file(found)


def read_trait_questions(trait: str = ANY, part: str = "extraction") -> PromptSet:
    """Return 20 shipped questions for persona vectors.

    Args:
        trait: a trait with questions of its own; every other name gets the general ones.
        part: "extraction" to make a vector, "evaluation" to measure it on other questions.
    """
    if part not in PARTS:
        raise ValueError(f"part = {part!r}; give one of {', '.join(PARTS)}")
    questions = read_prompts(data_path("trait_questions"))
    own = trait if trait in questions.column("trait") else ANY
    return questions.where(trait=own, part=part)


def _home(folder: str | Path | None, shipped: Path, kind: str) -> Path:
    """Return the folder to read."""
    if folder is None:
        return shipped
    if not Path(folder).is_dir():
        raise ConfigError(
            f"no folder {str(folder)!r}; give one with {kind} as TOML tables, or one of the "
            f"assistant-axis project with {kind}/instructions/*.json"
        )
    return Path(folder)


def _tables(home: Path, apart: str) -> list[Path]:
    paths = [path for path in sorted(home.glob("*.toml")) if path.stem != apart]
    if not paths:
        raise ConfigError(f"{home} has no TOML tables beside {apart}.toml; write at least one")
    return paths


def _default_file(home: Path) -> DefaultFile:
    path = home / f"{DEFAULT}.toml"
    told = parse(DefaultFile, read_toml(path), str(path))
    _slotted(told.rubric, path)
    return told


def _role(name: str, table: Any, rubric: str, path: Path) -> Role:
    where = f"{path}, [{name}]"
    settings = parse(RoleTable, _table(name, table, path), where)
    filled = fill(rubric, {"role": spoken(name), "description": settings.description})
    prompts = _lines(settings.prompts, f"{where}, prompts")
    return Role(name, settings.description, prompts, filled)


def _trait(name: str, table: Any, rubric: str, path: Path) -> Trait:
    where = f"{path}, [{name}], pairs"
    settings = parse(TraitTable, _table(name, table, path), f"{path}, [{name}]")
    pairs = [
        _pair(line, f"{where}, line {number}")
        for number, line in enumerate(_lines(settings.pairs, where), 1)
    ]
    named = {"trait": spoken(name), "antonym": spoken(settings.antonym)}
    filled = fill(rubric, {**named, "description": settings.description})
    positive, negative = zip(*pairs, strict=True)
    return Trait(name, settings.antonym, positive, negative, filled, settings.description)


def _pair(line: str, source: str) -> tuple[str, str]:
    poles = [pole.strip() for pole in line.split("|")]
    if len(poles) != 2 or not all(poles):
        raise ConfigError(f"{source}: {line!r}; write 'positive | negative'")
    return poles[0], poles[1]


def _table(name: str, table: Any, path: Path) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name} = {table!r}; a table [{name}] is expected")
    return table


def _lines(text: str, source: str) -> tuple[str, ...]:
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise ConfigError(f"{source} has no line of text; write one a line")
    return lines


def _slotted(rubric: str, path: Path) -> str:
    """Refuse a rubric that does not show the judge the question and the answer."""
    missing = released.missing_slots(rubric)
    if missing:
        raise ConfigError(f"{path}: key 'rubric' lacks {' and '.join(missing)}; add the slot")
    return rubric


def _refuse_twice(name: str, known: dict[str, Any], path: Path) -> None:
    if name in known:
        raise ConfigError(f"{path}: [{name}] stands in another file too; keep one of the two")
