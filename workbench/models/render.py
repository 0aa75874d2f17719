"""Statements and chats -> token ids with named spans; the ids are always the tokenizer's own."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
import torch
from jaxtyping import Bool
from torch import Tensor

from workbench.errors import ConfigError, MismatchError, NoTemplateError, meant
from workbench.models.skeleton import Chat, Layout, Range, Skeleton, Turn, lay_out, read_skeleton
from workbench.models.spans import remember_spans
from workbench.types import Batch, Rendered

RESERVED = ("content", "header", "template")
"""Span names that no role may take."""


OPTIONS = (
    *("render", "system", "add_generation_prompt", "max_new_tokens", "temperature", "seed"),
    *("batch_size", "num_beams", "enable_thinking"),
)
"""What may have been meant by a keyword that nothing reads."""
_HALF = re.compile("[\ud800-\udfff]")


class ChatRenderer:
    """Renders for one tokenizer.

    Spans of a bare text: ``content``, all of it (a BOS that the tokenizer adds is outside).
    Spans of a chat: one for each role, over the tokens of its contents alone; ``content``, the
    last message's; ``header``, what the generation prompt adds (with the empty think block of a
    template that can think); ``template``, every other token, among them a system text that the
    template puts in by itself.

    A template without a system role gets the system text before the first user message's, after
    which a blank line follows; ``system_role`` says so ("native" or "in_user").

    Args:
        tokenizer: a fast tokenizer.
        device: where batches go; asked each time, since a model may move.
        vocabulary: rows of the model's embedding; ids beyond them are refused.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        device: Callable[[], torch.device] = lambda: torch.device("cpu"),
        vocabulary: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.device = device
        self.vocabulary = vocabulary
        self._skeletons: dict[str, dict[object, Skeleton]] = {}

    @functools.cached_property
    def system_role(self) -> str:
        """Either "native", or "in_user" where the template refuses or drops system messages."""
        turns = [Turn("system", (("system", "s"),)), Turn("user", (("user", "u"),))]
        self._template()
        try:
            found = read_skeleton(self._writer({}), turns, False)
        except ConfigError:
            found = None
        return "in_user" if found is None else "native"

    @functools.cached_property
    def thinks(self) -> bool:
        """Whether the template has a think block that can be switched off."""
        return "enable_thinking" in self._template()

    def render(
        self,
        item: Any,
        render: str = "auto",
        system: str | None = None,
        add_generation_prompt: bool | None = None,
        **template_kwargs: Any,
    ) -> Rendered:
        """Return token ids and spans of one text or chat.

        Args:
            item: a text, or a chat: a sequence of ``{"role": ..., "content": ...}``.
            render: "bare" or "chat"; "auto" renders a text bare and a chat as a chat. A text
                under "chat" is one user message.
            system: a system text put in front ("" for an empty system message, which keeps a
                template from putting in its own).
            add_generation_prompt: end with the header of an answer; by default where the last
                message is not the assistant's.
            **template_kwargs: passed to the template; ``enable_thinking`` is off by default.

        Raises:
            ValueError: an item or keyword of a wrong kind.
            ConfigError: an empty text, a chat under "bare", a reserved role, a template that
                refuses the chat, a content that cannot be found again as whole tokens.
        """
        if render not in ("auto", "bare", "chat"):
            raise ValueError(f"render = {render!r}; give auto, bare or chat")
        if isinstance(item, str) and render != "chat":
            if system is not None or add_generation_prompt or template_kwargs:
                found = [f"; found {name}.{meant(name, OPTIONS)}" for name in template_kwargs]
                raise ConfigError(
                    "a bare text takes no system=, header or template keywords" + "".join(found[:1])
                )
            return self._texts([item])[0]
        if render == "bare":
            raise ConfigError(
                f"render='bare' takes a text, got {type(item).__name__}: {item!r:.80}"
            )
        chat = _checked(item)
        if system is not None:
            chat = _with_system(chat, system)
        return self._chats([chat], [_ends(chat, add_generation_prompt)], template_kwargs)[0]

    def render_many(
        self,
        items: Sequence[Any],
        render: str = "auto",
        add_generation_prompt: bool | None = None,
    ) -> list[Rendered]:
        """Render each item as ``render`` does, in one call of the tokenizer where all are alike.

        A fast tokenizer spreads that call over the processor's cores.

        Raises:
            ValueError, ConfigError: as ``render``; which item it was is not said.
        """
        texts = {isinstance(item, str) for item in items}
        if render == "auto" and texts == {True} and not add_generation_prompt:
            return self._texts(items)
        if render == "chat" or (render == "auto" and texts == {False}):
            chats = [_checked(item) for item in items]
            return self._chats(chats, [_ends(chat, add_generation_prompt) for chat in chats], {})
        return [self.render(item, render, None, add_generation_prompt) for item in items]

    def collate(self, rendered: Sequence[Rendered], side: str = "left") -> Batch:
        """Pad into one batch; position ids count real tokens, so the side changes no number."""
        if side not in ("left", "right"):
            raise ValueError(f"side = {side!r}; give left or right")
        if not rendered:
            raise ValueError("nothing to collate; give at least one rendered prompt")
        length = max(len(row.ids) for row in rendered)
        starts = [length - len(row.ids) if side == "left" else 0 for row in rendered]
        ids = torch.full((len(rendered), length), self._pad_id(), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, (row, start) in enumerate(zip(rendered, starts, strict=True)):
            ids[number, start : start + len(row.ids)] = torch.tensor(row.ids)
            mask[number, start : start + len(row.ids)] = 1
        positions = (mask.cumsum(-1) - 1).clamp(min=0) * mask
        device = self.device()
        spans = {name: flags.to(device) for name, flags in _flags(rendered, starts, length).items()}
        batch = Batch(ids.to(device), mask.to(device), positions.to(device), spans)
        remember_spans(batch.input_ids, spans)
        return batch

    def _texts(self, texts: Sequence[str]) -> list[Rendered]:
        for text in texts:
            if not text.strip():
                raise ConfigError(f"the text {text!r} is empty; give it words or drop the item")
        rendered = []
        for coded in self._coded(texts, return_special_tokens_mask=True):
            ids, added = coded["input_ids"], coded["special_tokens_mask"]
            ids = self._known(ids)
            if not getattr(self.tokenizer, "is_fast", False):  # there it marks ids, not origin
                added = [0] * len(ids)
            rendered.append(Rendered(ids, {"content": _runs([not flag for flag in added])}))
        return rendered

    def _chats(
        self, chats: Sequence[Chat], headers: Sequence[bool], template_kwargs: Mapping[str, Any]
    ) -> list[Rendered]:
        kwargs = dict(template_kwargs)
        self._refuse_unread(kwargs)
        if self.thinks:
            kwargs.setdefault("enable_thinking", False)
        if not getattr(self.tokenizer, "is_fast", False):
            raise ConfigError(
                f"{type(self.tokenizer).__name__} gives no character offsets, which the spans of "
                "a chat need; load a checkpoint with a tokenizer.json"
            )
        kept = self._skeletons.setdefault(repr(sorted(kwargs.items())), {})
        write = self._writer(kwargs)
        layouts = [
            lay_out(write, self._turns(chat), header, kept)
            for chat, header in zip(chats, headers, strict=True)
        ]
        texts = [layout.text for layout in layouts]
        rendered = []
        options = {"add_special_tokens": False, "return_offsets_mapping": True}
        for layout, coded in zip(layouts, self._coded(texts, **options), strict=True):
            ids = self._known(coded["input_ids"])
            rendered.append(Rendered(ids, self._spans(layout, ids, coded["offset_mapping"])))
        return rendered

    def _coded(self, texts: Sequence[str], **options: bool) -> list[Mapping[str, Any]]:
        """Return what the tokenizer makes of each text, in one call for several.

        Raises:
            ConfigError: half a surrogate pair, which is no character.
        """
        for text in texts:
            if not text.isascii() and (half := _HALF.search(text)):
                raise ConfigError(
                    f"the text {text[:60]!r} has half a character at {half.start()} "
                    f"({half[0]!r}, a lone surrogate); it was cut or read with a wrong encoding: "
                    "mend it or drop the item"
                )
        if len(texts) == 1:
            return [self.tokenizer(texts[0], **options)]
        coded = self.tokenizer(list(texts), **options)
        return [{name: coded[name][row] for name in coded} for row in range(len(texts))]

    def _turns(self, chat: Chat) -> list[Turn]:
        """One turn a message; a system text joins the next one where it has no role of its own."""
        turns = [Turn(m["role"], ((m["role"], m["content"]),)) for m in chat]
        if chat[0]["role"] != "system" or self.system_role == "native":
            return turns
        system, *rest = turns
        if not rest or rest[0].role != "user":
            raise ConfigError(
                "the chat template has no system role, so the system text goes in front of the "
                "first user message, but no user message follows it; add one"
            )
        if not system.texts[0][1]:
            return rest
        return [Turn("user", (*system.texts, *rest[0].texts)), *rest[1:]]

    def _writer(self, kwargs: Mapping[str, Any]) -> Callable[[Chat, bool], str]:
        def write(chat: Chat, header: bool) -> str:
            self._template()
            try:
                return str(
                    self.tokenizer.apply_chat_template(
                        chat, tokenize=False, add_generation_prompt=header, **kwargs
                    )
                )
            except jinja2.TemplateError as error:
                roles = ", ".join(message["role"] for message in chat)
                raise ConfigError(
                    f"the chat template refuses this chat (roles: {roles}): {error}; change the "
                    "roles or their order, or render a text bare"
                ) from error

        return write

    def _refuse_unread(self, kwargs: Mapping[str, Any]) -> None:
        """Refuse keywords that the template never reads, which would change nothing."""
        for name in kwargs:
            if name != "enable_thinking" and not re.search(rf"\b{name}\b", self._template()):
                raise ConfigError(
                    f"{name} is no keyword here, nor of the chat template, which never reads it; "
                    f"leave it out.{meant(name, OPTIONS)}"
                )

    def _template(self) -> str:
        try:
            return str(self.tokenizer.get_chat_template())
        except ValueError:
            raise NoTemplateError(
                "this tokenizer has no chat template, as base models have none; give plain texts "
                'and render them bare (--render bare, in files and Python render = "bare"), or put '
                "a chat_template.jinja beside its tokenizer.json"
            ) from None

    def _spans(
        self, layout: Layout, ids: tuple[int, ...], offsets: Sequence[Range]
    ) -> dict[str, tuple[Range, ...]]:
        spans: dict[str, tuple[Range, ...]] = {}
        free = [True] * len(ids)
        headers = [("header", layout.header)] if layout.header else []
        for role, (first, last) in [*layout.parts, *headers]:
            tokens = self._find(layout.text[first:last], ids, _overlap(offsets, first, last), role)
            free[slice(*tokens)] = [False] * (tokens[1] - tokens[0])
            spans[role] = (*spans.get(role, ()), tokens)
            if role != "header":
                spans["content"] = (tokens,)
        rest = _runs(free)
        return {**spans, "template": rest} if rest else spans

    def _find(self, text: str, ids: tuple[int, ...], tokens: Range, role: str) -> Range:
        """Return the tokens that read ``text``.

        Two differences are no fault: a space that the tokenizer glues to the word after it, and
        NFC. White-space tokens at the end have empty offsets in some tokenizers: those count too.
        """
        first, last = tokens
        if self._reads(ids[first:last]) == text:
            return tokens
        for end in range(last + 1, min(last + 9, len(ids) + 1)):
            if not text[-1].isspace():
                break
            if self._reads(ids[first:end]) == text:
                return first, end
        found = unicodedata.normalize("NFC", self._reads(ids[first:last]))
        wanted = unicodedata.normalize("NFC", text)
        if found and found.lstrip(" ") == wanted.lstrip(" "):
            return tokens
        raise ConfigError(
            f"the {role} text {text!r:.80} is not whole tokens inside the chat template (the "
            f"tokens there read {found!r:.80}); strip the white space at its ends"
        )

    def _reads(self, ids: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def _known(self, ids: Sequence[int]) -> tuple[int, ...]:
        if not ids:
            raise ConfigError("the tokenizer makes no token of this text; give it words")
        if self.vocabulary is not None and max(ids) >= self.vocabulary:
            raise MismatchError(
                f"token id {max(ids)} lies beyond the model's {self.vocabulary} embeddings: the "
                "tokenizer belongs to another model; load both from one checkpoint"
            )
        return tuple(ids)

    def _pad_id(self) -> int:
        """Any known id will do, since pads are masked."""
        for token in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0


def _checked(item: Any) -> Chat:
    """A chat as fresh dictionaries; a text is one user message."""
    if isinstance(item, str):
        item = [{"role": "user", "content": item}]
    if not isinstance(item, Sequence) or isinstance(item, bytes):
        raise ValueError(
            f"{item!r:.80} ({type(item).__name__}) is neither a text nor a chat, which is a list "
            'of {"role": ..., "content": ...}'
        )
    if not item:
        raise ConfigError("the chat is empty; give it at least one message")
    return [_message(message, number) for number, message in enumerate(item)]


def _ends(chat: Chat, add_generation_prompt: bool | None) -> bool:
    """Whether the header of an answer follows; by default after anybody but the assistant."""
    if add_generation_prompt is None:
        return chat[-1]["role"] != "assistant"
    return add_generation_prompt


def _message(message: Any, number: int) -> dict[str, str]:
    if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
        raise ValueError(
            f'message {number} is {message!r:.80}; {{"role": ..., "content": ...}} is expected'
        )
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or not role or role in RESERVED:
        raise ConfigError(
            f"message {number} has the role {role!r}; a word other than {', '.join(RESERVED)} is "
            "expected"
        )
    if content is None or (isinstance(content, str) and not content.strip()):
        raise ConfigError(
            f"message {number} ({role}) has the content {content!r}; give it words or leave the "
            "message out (an empty system message is written as system='')"
        )
    if not isinstance(content, str):
        raise ValueError(
            f"message {number} ({role}) has a {type(content).__name__} as content; a text is "
            "expected"
        )
    return {"role": role, "content": content}


def _with_system(chat: Chat, system: str) -> Chat:
    if chat[0]["role"] == "system":
        raise ValueError(
            f"system={system!r:.40} was given, but the chat begins with a system message of its "
            "own; keep one of them"
        )
    return [{"role": "system", "content": system}, *chat]


def _overlap(offsets: Sequence[Range], first: int, last: int) -> Range:
    """Tokens that touch the characters [first, last); (0, 0) where there are none."""
    touched = [row for row, (start, end) in enumerate(offsets) if start < last and end > first]
    return (touched[0], touched[-1] + 1) if touched else (0, 0)


def _runs(flags: Sequence[bool]) -> tuple[Range, ...]:
    """Half-open ranges over which ``flags`` is true."""
    edges = [
        row
        for row, pair in enumerate(itertools.pairwise([False, *flags, False]))
        if pair[0] != pair[1]
    ]
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def _flags(
    rendered: Sequence[Rendered], starts: Sequence[int], length: int
) -> dict[str, Bool[Tensor, "b t"]]:
    spans: dict[str, Bool[Tensor, "b t"]] = {}
    for number, (row, start) in enumerate(zip(rendered, starts, strict=True)):
        for name, ranges in row.spans.items():
            if name not in spans:
                spans[name] = torch.zeros(len(rendered), length, dtype=torch.bool)
            for first, last in ranges:
                spans[name][number, start + first : start + last] = True
    return spans
