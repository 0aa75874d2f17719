"""The exceptions that a caller may catch, each for something that a user can fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorkbenchError(Exception):
    """A user can fix this: the message has the value found, what was expected, the next step."""


class ConfigError(WorkbenchError):
    """A setting, prompt set or file content does not make sense."""


class NoTemplateError(ConfigError):
    """A chat is asked of a model whose tokenizer has no chat template."""


class UnknownNameError(WorkbenchError):
    """A name that no registry, folder or hub knows."""


class FormatError(WorkbenchError):
    """A file is damaged, incomplete or of another format or version."""


class MismatchError(WorkbenchError):
    """Two things that must belong together do not: a direction and another model, say."""


class DoctorError(WorkbenchError):
    """A model failed a check, so its numbers cannot be trusted."""


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownNameError:
    """Return the error for a name that is not among ``known``, with the nearest ones named."""
    names = sorted(known)
    listed = ", ".join(names) if names else "none"
    return UnknownNameError(
        f"unknown {kind} {name!r}; known: {listed}.{meant(name, names)}{' ' + hint if hint else ''}"
    )


def meant(name: str, known: Iterable[str]) -> str:
    """Return the question after the nearest names, with a space before it, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
