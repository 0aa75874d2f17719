"""Files of the assistant-axis project (Lu et al. 2026) and of persona vectors (Chen et al. 2025).

A role or trait is one JSON file named after it: ``instruction`` is a list of ``{"pos": text}``, for
traits with ``"neg": text`` as well, and ``eval_prompt`` is what the judge is asked. Questions are
JSON lines with the key ``question``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, FormatError
from workbench.personas.items import Role, Trait
from workbench.prompts import PromptSet, read_prompts

QUESTIONS = "extraction_questions.jsonl"
FORMS = {
    "instruction": 'a list of {"pos": text}, for traits {"pos": text, "neg": text}',
    "eval_prompt": "a text with the slots {question} and {answer}",
    "questions": "a list of texts",
}


def role_files(folder: Path) -> list[Path]:
    """Return the JSON files of a released folder's roles; none where it is laid out otherwise."""
    return _files(folder, "roles")


def trait_files(folder: Path) -> list[Path]:
    """Return the JSON files of a released folder's traits; none where it is laid out otherwise."""
    return _files(folder, "traits")


def named(files: Sequence[Path], name: str) -> Path:
    """Return the file of one name.

    Raises:
        FormatError: there is none.
    """
    found = [path for path in files if path.stem == name]
    if not found:
        raise FormatError(f"{files[0].parent} has no {name}.json; add it or use what ships")
    return found[0]


def questions_file(folder: Path) -> Path:
    """Return the questions of a released folder.

    Raises:
        ConfigError: there is no such file in it.
    """
    for path in (folder / QUESTIONS, folder / "data" / QUESTIONS):
        if path.is_file():
            return path
    raise ConfigError(f"{folder} has no {QUESTIONS}, nor has its data folder; give the file itself")


def read_role(path: Path, *, judged: bool = True) -> Role:
    """Read one role; the judge's prompt is left out where it is not ``judged``.

    Raises:
        FormatError: a key is missing or holds something else.
    """
    content = _content(path)
    prompts = tuple(_text(path, pair, "pos") for pair in _pairs(path, content))
    rubric = _rubric(path, content) if judged else ""
    return Role(path.stem, str(content.get("description", "")), prompts, rubric)


def read_trait(path: Path) -> Trait:
    """Read one trait, with the questions of its own file where there are any.

    Raises:
        FormatError: a key is missing or holds something else.
    """
    content = _content(path)
    pairs = _pairs(path, content)
    positive, negative = (tuple(_text(path, pair, key) for pair in pairs) for key in ("pos", "neg"))
    questions = content.get("questions", [])
    if not isinstance(questions, list) or not all(isinstance(q, str) for q in questions):
        raise _wrong(path, "questions", questions)
    rubric = _rubric(path, content)
    return Trait(path.stem, "", positive, negative, rubric, questions=tuple(questions))


def read_question_file(path: Path) -> PromptSet:
    """Read questions: JSON lines with the key ``question``, or any other prompt file.

    Raises:
        ConfigError: no such file, or a row without a text.
    """
    return read_prompts(path, "question" if _asks(path) else None)


def missing_slots(rubric: str) -> list[str]:
    """Return which of the two slots that a judge needs are absent."""
    return [slot for slot in ("{question}", "{answer}") if slot not in rubric]


def _files(folder: Path, kind: str) -> list[Path]:
    places = (folder / "data" / kind, folder / kind, folder)
    for place in (place / tail for place in places for tail in ("instructions", "")):
        found = sorted(place.glob("*.json")) if place.is_dir() else []
        if found:
            return found
    return []


def _asks(path: Path) -> bool:
    """Whether the first row of a JSONL file has the key ``question`` and no ``text``."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8") as file:
            row = json.loads(file.readline())
    except (UnicodeDecodeError, json.JSONDecodeError):
        return False  # the reader of prompt files says what is wrong
    return isinstance(row, dict) and "question" in row and "text" not in row


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path} is no JSON file ({error}); download it again") from None
    if not isinstance(content, dict):
        raise FormatError(f"{path}: {type(content).__name__} found, a JSON object is expected")
    return content


def _pairs(path: Path, content: dict[str, Any]) -> list[dict[str, Any]]:
    pairs = content.get("instruction")
    if not isinstance(pairs, list) or not pairs or not all(isinstance(p, dict) for p in pairs):
        raise _wrong(path, "instruction", pairs)
    return pairs


def _text(path: Path, pair: dict[str, Any], key: str) -> str:
    text = pair.get(key)
    if not isinstance(text, str):
        raise _wrong(path, "instruction", pair)
    return text


def _rubric(path: Path, content: dict[str, Any]) -> str:
    rubric = content.get("eval_prompt")
    if not isinstance(rubric, str) or missing_slots(rubric):
        raise _wrong(path, "eval_prompt", rubric)
    return rubric


def _wrong(path: Path, key: str, value: Any) -> FormatError:
    shown = "is missing" if value is None else f"= {value!r:.200}"
    return FormatError(f"{path}: key {key!r} {shown}; {FORMS[key]} is expected")
