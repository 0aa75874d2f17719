"""A prompting baseline: the same model, told or shown what to do before every prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from workbench.errors import ConfigError
from workbench.types import Batch, Rendered, Renderer, Subject

JOIN = "\n\n"


@dataclass(frozen=True)
class Prompted:
    """A renderer that puts a system text and example turns before every prompt.

    A chat gets ``system`` as its system message (in front of its own, where it has one) and
    ``shots`` as turns before its first user message; a bare text gets ``system`` and the shots'
    contents as plain text in front, outside its ``content``. Where the tokenizer adds no BOS, a
    text's first token stays outside too: alone nothing predicts it, and likelihoods are compared.
    """

    renderer: Renderer
    system: str = ""
    shots: tuple[Mapping[str, str], ...] = ()

    def render(self, item: Any, **options: Any) -> Rendered:
        """Render as the inner renderer does, with what comes first."""
        if isinstance(item, str) and options.get("render", "auto") != "chat":
            return self._bare(item, options)
        chat = [{"role": "user", "content": item}] if isinstance(item, str) else list(item)
        given = options.pop("system", None)
        own = chat.pop(0)["content"] if chat and chat[0]["role"] == "system" else given
        told = JOIN.join(part for part in (self.system, own) if part)
        head = [] if not told and own is None else [{"role": "system", "content": told}]
        return self.renderer.render([*head, *self.shots, *chat], **options)

    def collate(self, rendered: Sequence[Rendered], side: str = "left") -> Batch:
        """Pad as the inner renderer does."""
        return self.renderer.collate(rendered, side)

    def _bare(self, text: str, options: Mapping[str, Any]) -> Rendered:
        parts = [self.system, *(shot["content"] for shot in self.shots)]
        before = JOIN.join(part for part in parts if part) + JOIN
        alone = self.renderer.render(text, **options)
        first, own = self.renderer.render(before, **options), _content(alone)
        start = _content(first)
        ids = (*first.ids[: start[1]], *alone.ids[own[0] : own[1]])
        unpredicted = int(own[0] == 0)
        return Rendered(ids, {"content": ((start[1] + unpredicted, len(ids)),)})


def prompted(
    subject: Subject, *, system: str = "", shots: Sequence[Mapping[str, str]] = ()
) -> Subject:
    """Return the same model with a system text and example turns before every prompt.

    Args:
        subject: shares its weights with the answer.
        system: what the model is told.
        shots: ``{role, content}``, user and assistant in turn, the user first.

    Raises:
        ConfigError: neither is given, or the turns do not alternate.
    """
    if not system.strip() and not shots:
        raise ConfigError("a prompting baseline needs a system text or example turns; give one")
    roles = [shot["role"] for shot in shots]
    turns = all(first != second for first, second in pairwise(roles))
    if roles and not (roles[0] == "user" and roles[-1] == "assistant" and turns):
        raise ConfigError(
            f"example turns have the roles {', '.join(roles)}; give user and assistant in turn, "
            "beginning with the user and ending with the assistant"
        )
    return replace(subject, renderer=Prompted(subject.renderer, system, tuple(shots)))


def _content(rendered: Rendered) -> tuple[int, int]:
    spans = rendered.spans["content"]
    return spans[0][0], spans[-1][1]
