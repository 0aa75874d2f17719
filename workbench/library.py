"""Prompt sets by name: what ships, the user's own files, rollouts, and joins of all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data import item_sets
from workbench.errors import ConfigError, unknown
from workbench.prompts import PromptSet, read_prompts
from workbench.transcripts import FILE, is_transcripts, read_transcripts

_OTHERWISE = (
    "Or give the path of an existing file. A text of your own is no name: write texts into a .csv "
    'or .jsonl file, or in Python give wb.PromptSet.from_records([{"text": "..."}, ...]).'
)
Source = str | Path | PromptSet | Mapping[str, Any] | Sequence[Any]


def locate(name: str | Path) -> Path:
    """Return the file behind an item set's name or a path; ``$NAME`` in a path is expanded.

    The folder of rollouts stands for the transcripts in it.

    Raises:
        UnknownNameError: neither an item set nor a file.
    """
    sets = item_sets()
    if str(name) in sets:
        return sets[str(name)]
    path = Path(os.path.expandvars(str(name))).expanduser()
    path = path / FILE if (path / FILE).is_file() else path
    if not path.is_file():
        raise unknown("prompt set", str(name), sets, _OTHERWISE)
    return path


def open_prompts(source: Source) -> PromptSet:
    """Open one prompt set, or join several.

    Args:
        source: an item set's name, a path, a prompt set; a list of these; or a table
            ``{path, text, where, first, columns, extract, answered}``: ``where`` keeps rows, and
            ``first`` as many of these from the top; ``columns`` adds constant columns (a topic that
            the file does not name), ``extract`` adds what the first group of a regular expression
            finds in each text (the fact that a statement is about). A file of transcripts gives
            chats with their answers, or with ``answered = false`` what was answered.

    Raises:
        UnknownNameError: a name that is neither an item set nor a file.
        ConfigError: a table with an unknown key, a text in which a pattern finds nothing, or
            ``answered`` of what is no file of transcripts.
        FormatError: transcripts that are damaged.
    """
    if isinstance(source, PromptSet):
        return source
    if isinstance(source, (str, Path)):
        return _read(locate(source))
    if isinstance(source, Mapping):
        return _table(source)
    if not isinstance(source, Sequence):
        raise ConfigError(f"prompts = {source!r:.80}; give a prompt set, its name or its file")
    return _join([open_prompts(part) for part in _listed(source)])


def sources(source: Source) -> list[Path]:
    """Return the files behind a source, for provenance.

    Raises:
        UnknownNameError: a name that is neither an item set nor a file.
        ConfigError: a source of another kind.
    """
    if isinstance(source, PromptSet):
        return []
    if isinstance(source, (str, Path)):
        return [locate(source)]
    if isinstance(source, Mapping):
        return [locate(_checked(source)["path"])]
    return [path for part in _listed(source) for path in sources(part)]


def _listed(parts: Sequence[Any]) -> Sequence[Any]:
    wrong = [p for p in parts if not isinstance(p, (str, Path, PromptSet, Mapping, Sequence))]
    if wrong:
        raise ConfigError(
            f"prompts: {wrong[0]!r} stands in a list; give names of sets, files or tables with path"
        )
    return parts


def _checked(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse a table with unknown keys or values of another kind."""
    kinds: dict[str, Any] = {
        **{"path": (str, Path), "text": str, "first": int, "answered": bool},
        **dict.fromkeys(("where", "columns", "extract"), Mapping),
    }
    if not set(source) <= set(kinds) or "path" not in source:
        raise ConfigError(
            f"prompts {dict(source)!r}: keys are path (required), text, where, first, columns, "
            "extract, answered"
        )
    for key, value in source.items():
        if not isinstance(value, kinds[key]):
            wanted = {Mapping: "a table", int: "a number", bool: "true or false"}.get(
                kinds[key], "a text"
            )
            raise ConfigError(f"prompts: {key} = {value!r}; {wanted} is expected")
    if source.get("first", 1) < 1:
        raise ConfigError(f"prompts: first = {source['first']!r}; 1 or more is expected")
    return source


def _table(source: Mapping[str, Any]) -> PromptSet:
    source = _checked(source)
    found = _read(locate(source["path"]), source.get("text"), source.get("answered"))
    found = found.where(**source.get("where", {}))
    found = found.take(range(len(found))[: source.get("first")])
    added = {k: np.full(len(found), v) for k, v in source.get("columns", {}).items()}
    added |= {k: _extracted(found, pattern) for k, pattern in source.get("extract", {}).items()}
    return PromptSet(found.ids, found.items, {**found.columns, **added}, found.source)


def _read(path: Path, text: str | None = None, answered: bool | None = None) -> PromptSet:
    if not is_transcripts(path):
        if answered is not None:
            raise ConfigError(
                f"prompts: answered = {answered} is for transcripts, and {path} holds none; leave "
                "it out"
            )
        return read_prompts(path, text)
    if text is not None:
        raise ConfigError(f"prompts: text = {text!r}, but {path} holds chats; leave it out")
    found = read_transcripts(path).prompts(answered=answered is not False)
    source = path.parent if path.name == FILE else path
    return PromptSet(found.ids, found.items, found.columns, str(source))


def _extracted(prompts: PromptSet, pattern: Any) -> np.ndarray:
    try:
        found = [re.search(pattern, str(item)) for item in prompts.items]
        parts = [match and match[1] for match in found]
    except (re.error, IndexError, TypeError) as error:
        raise ConfigError(
            f"extract pattern {pattern!r}: {error}; write a regular expression with one group"
        ) from None
    if None in parts:
        item = prompts.items[parts.index(None)]
        raise ConfigError(f"{prompts.source}: pattern {pattern!r} finds nothing in {item!r}")
    return np.array(parts)


def _join(parts: Sequence[PromptSet]) -> PromptSet:
    """Stack sets over their common columns; ids get the file's name where they would collide."""
    if not parts:
        raise ConfigError("prompts is an empty list; name at least one prompt set")
    names = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    ids = [name for part in parts for name in part.ids]
    if len(set(ids)) < len(ids):
        ids = [f"{Path(part.source).stem}:{name}" for part in parts for name in part.ids]
    return PromptSet(
        tuple(ids),
        tuple(item for part in parts for item in part.items),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in names},
        " + ".join(part.source for part in parts),
    )
