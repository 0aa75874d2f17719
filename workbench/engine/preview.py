"""Which tokens would be edited: the first prompts with marks, before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.engine.prompts import scope_over
from workbench.interventions import Intervention, SavedIntervention, refuse_absent
from workbench.interventions.scope import ScopeLike, Tokens, scope_of
from workbench.library import Source, open_prompts
from workbench.prompts import PromptSet
from workbench.types import LayerEdit, Rendered, Request, Subject

OPEN, CLOSE = "\u27e6", "\u27e7"
"""What edited tokens stand between: white square brackets."""
One = Intervention | SavedIntervention | LayerEdit
What = ScopeLike | One | Sequence[One]


@dataclass(frozen=True)
class Previewed:
    """One prompt under one scope."""

    prompt: str
    scope: str
    edited: tuple[bool, ...]
    """For each of its tokens."""
    decoded: bool
    """Whether tokens that come after the prompt are edited."""
    text: str
    """The prompt with its edited tokens between marks."""

    def __str__(self) -> str:
        after = "edited" if self.decoded else "not edited"
        return (
            f"{self.prompt}, scope {self.scope}: {sum(self.edited)} of {len(self.edited)} tokens "
            f"edited, decoded ones {after}\n{self.text}"
        )


@dataclass(frozen=True)
class Preview:
    """Some prompts under one or more scopes; ``print`` shows them."""

    rows: tuple[Previewed, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.rows))


def preview(
    subject: Subject,
    what: What,
    prompts: Source | Sequence[str | Sequence[Any] | Request],
    *,
    n: int = 3,
    **render: Any,
) -> Preview:
    """Show which tokens of the first prompts an intervention edits; runs no forward.

    Args:
        subject: whose tokenizer and chat template count.
        what: a scope, or one or more interventions or raw edits.
        prompts: a prompt set, its name or file; or a list of texts, chats or readouts' requests.
        n: how many of them.
        render: as in ``subject.encode``; requests are rendered already.

    Raises:
        UnknownNameError: there is no such scope.
        ConfigError: one of these prompts has none of the spans that the scope names.
    """
    named, scopes = _rendered(subject, prompts, n, render), scopes_of(what)
    return Preview(
        tuple(_previewed(subject, scope, name, row) for name, row in named for scope in scopes)
    )


def scopes_of(what: What) -> list[str]:
    """Return the different scopes of interventions, in their order."""
    if isinstance(what, Intervention):
        return [what.scope]
    if isinstance(what, SavedIntervention):
        return list(dict.fromkeys(edit.scope for edit in what.edits))
    if isinstance(what, LayerEdit):
        return [what.scope]
    kinds = (LayerEdit, Intervention, SavedIntervention)
    if isinstance(what, (list, tuple)) and what and isinstance(what[0], kinds):
        return list(dict.fromkeys(scope for one in what for scope in scopes_of(one)))
    return [scope_of(what)]  # type: ignore[arg-type]


def _rendered(
    subject: Subject, prompts: Any, n: int, render: dict[str, Any]
) -> list[tuple[str, Rendered]]:
    if isinstance(prompts, (str, Path, PromptSet)) or not isinstance(prompts, Sequence):
        found = open_prompts(prompts)
        pairs: list[tuple[str, Any]] = list(zip(found.ids[:n], found.items[:n], strict=True))
    else:
        pairs = [(f"prompt {number}", item) for number, item in enumerate(prompts[:n])]
    return [_one(subject, name, item, render) for name, item in pairs]


def _one(subject: Subject, name: str, item: Any, render: dict[str, Any]) -> tuple[str, Rendered]:
    if isinstance(item, Request):
        return f"{item.item} ({item.condition})", Rendered(tuple(item.ids), item.spans)
    return name, subject.renderer.render(item, **render)


def _previewed(subject: Subject, scope: str, name: str, row: Rendered) -> Previewed:
    refuse_absent(scope, [span for span, ranges in row.spans.items() if ranges], name)
    t = len(row.ids)
    mask = torch.ones(1, t, dtype=torch.long)
    edited = scope_over([row.spans], mask, t)(scope)[0].tolist()
    one = torch.ones(1, 1, dtype=torch.bool)
    after = Tokens(real=one, place=torch.full((1, 1), t), decoded=one, final=~one, spans={})
    return Previewed(
        name, scope, tuple(edited), bool(after.within(scope)), _marked(subject, row.ids, edited)
    )


def _marked(subject: Subject, ids: Sequence[int], edited: Sequence[bool]) -> str:
    """Write tokens as text, runs of edited ones between marks."""
    parts, start, done = [], 0, ""
    for flag, run in itertools.groupby(edited):
        start += len(list(run))
        text = subject.tokenizer.decode(
            list(ids[:start]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        new = text[len(done) :]  # so that a word keeps the space before it
        parts.append(f"{OPEN}{new}{CLOSE}" if flag else new)
        done = text
    return "".join(parts)
