"""Documents or answers beside what the model itself would have written, and tables of both.

The projection difference of one item is what its answer has more of, along a direction, than the
model's own answer to the same prompt (Chen et al. 2025). A document without a prompt is compared
with the model's own document from the same title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import ConfigError
from workbench.types import GenerateRead, Read, Request, Subject

if TYPE_CHECKING:
    import pandas as pd

    from workbench.directions import Directions
    from workbench.prompts import PromptSet

EMPTY = "the model wrote nothing"
LONGEST_TITLE = 20
"""Words of a first line that still counts as a title."""
BREAK = "\n\n"
BEGINNING = 80
"""Characters of a text that tables show."""


@dataclass(frozen=True)
class Item:
    """One prompt with the answer that a data set gives to it."""

    corpus: str
    id: str
    group: str
    """What it is resampled with."""
    prompt: Any
    """A chat that waits for an answer, or the text that a document begins with."""
    answer: str

    def written(self, answer: str) -> Any:
        """Return the prompt with an answer, as it is read."""
        if isinstance(self.prompt, str):
            return self.prompt + answer
        return (*self.prompt, {"role": "assistant", "content": answer})


@dataclass(frozen=True)
class How:
    """How items are answered and read."""

    layers: tuple[int, ...]
    tokens: int
    """Most tokens of an answer that are written, and read, on either side."""
    temperature: float
    seed: int


def items_of(
    corpus: str, prompts: PromptSet, *, title: str | None, words: int, groups: str | None
) -> list[Item]:
    """Cut each document or chat into a prompt and an answer.

    Args:
        corpus: its name.
        prompts: chats that end with an answer, or documents.
        title: column with the titles of documents. Without one, a first line of up to 20 words
            counts as the title, else the first ``words`` words do.
        words: see ``title``.
        groups: column that counts as one unit; by default each item.

    Raises:
        ConfigError: no such column, a chat without an answer, or a document that is all title.
    """
    group = prompts.ids if groups is None else prompts.column(groups).astype(str)
    titles = None if title is None else prompts.column(title).astype(str)
    found = []
    for row, (name, content) in enumerate(zip(prompts.ids, prompts.items, strict=True)):
        where = f"{corpus}, {name!r}"
        if prompts.is_chat:
            prompt, answer = _chat(content, where)
        else:
            prompt, answer = _document(content, None if titles is None else titles[row], words)
        if not answer.strip():
            raise ConfigError(f"{where} has no text behind its title; leave it out, or give title")
        found.append(Item(corpus, name, str(group[row]), prompt, answer))
    return found


def _chat(messages: Sequence[Mapping[str, str]], where: str) -> tuple[Any, str]:
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        roles = ", ".join(message["role"] for message in messages)
        raise ConfigError(f"{where} has the roles {roles}; an answer of the assistant must be last")
    return tuple(messages[:-1]), messages[-1]["content"].strip()


def _document(text: str, title: str | None, words: int) -> tuple[str, str]:
    """Return what the document begins with, white space behind it included, and the rest."""
    if title is not None:
        return f"{title.strip()}{BREAK}", text.removeprefix(title).strip()
    text = text.strip()
    line = re.match(r"[^\n]+\n\s*", text)
    if line and len(line[0].split()) <= LONGEST_TITLE:
        return line[0], text[line.end() :]
    opening = re.match(rf"(?:\S+\s+){{{words - 1}}}\S+", text)
    return (opening[0], text[opening.end() :]) if opening else (text, "")


def screen_items(
    subject: Subject, items: Sequence[Item], directions: Directions, how: How
) -> dict[str, Any]:
    """Answer each prompt, read both answers, and project their means.

    Equal prompts get equal own answers, whatever corpus they are of.

    Returns:
        ``data`` and ``own`` (n, l, k), residual units, NaN where the model wrote nothing;
        ``moved`` (n, l, d), the difference of the means; ``tokens`` and ``own_tokens`` (n);
        ``texts`` and ``reasons``, one an item.
    """
    answers = _own_answers(subject, items, how)
    reasons = ["" if text else EMPTY for text in answers]
    kept = [row for row, reason in enumerate(reasons) if not reason]
    shape = (len(items), len(how.layers), subject.width)
    means = {side: np.full(shape, np.nan, np.float32) for side in ("data", "own")}
    counts = {side: np.zeros(len(items), np.int64) for side in means}
    for side, texts in (("data", [item.answer for item in items]), ("own", answers)):
        asked = [_read(subject, items[row], texts[row], directions.site, how) for row in kept]
        for row, request, found in zip(kept, asked, _answered(subject, asked), strict=True):
            means[side][row] = found[0]
            counts[side][row] = request.extra["tokens"]
    lines = directions.select(how.layers).unit_vectors()
    along = {side: np.einsum("nld,lkd->nlk", mean, lines) for side, mean in means.items()}
    moved = means["data"] - means["own"]
    told = {"tokens": counts["data"], "own_tokens": counts["own"]}
    return {**along, "moved": moved, **told, "texts": answers, "reasons": reasons}


def _own_answers(subject: Subject, items: Sequence[Item], how: How) -> list[str]:
    asked = []
    for item in items:
        rendered = subject.renderer.render(item.prompt)
        key = sha256(repr(rendered.ids).encode()).hexdigest()  # draws differ by the request's name
        read = GenerateRead(1, how.tokens, how.temperature, how.seed)
        asked.append(Request(key, "own", rendered.ids, (read,), rendered.spans))
    written = [found[0][0] for found in _answered(subject, asked)]
    return [_joining(item.prompt, text) for item, text in zip(items, written, strict=True)]


def _joining(prompt: Any, text: str) -> str:
    """Strip an answer, but for the space between a text's last word and what follows it."""
    whole = not isinstance(prompt, str) or prompt[-1:].isspace()
    return text.strip() if whole else text.rstrip()


def _read(subject: Subject, item: Item, answer: str, site: str, how: How) -> Request:
    """Ask for the mean over the first tokens of the answer, behind the prompt."""
    rendered = subject.renderer.render(item.written(answer))
    if isinstance(item.prompt, str):
        begun = subject.renderer.render(item.prompt).ids
        pairs = zip(begun, rendered.ids, strict=False)
        first = next((n for n, (a, b) in enumerate(pairs) if a != b), len(begun))
        stop = len(rendered.ids)
    else:
        first, stop = rendered.spans["assistant"][-1]
    stop = min(stop, first + how.tokens)
    read = Read(site, how.layers, "mean:response")
    span = {"response": ((first, stop),)}
    extra = {"tokens": stop - first}
    return Request(item.id, item.corpus, rendered.ids[:stop], (read,), span, extra)


def _answered(subject: Subject, asked: Sequence[Request]) -> list[list[Any]]:
    if not asked:
        return []
    assert subject.runner is not None, "a subject gets its runner in wb.load"
    return subject.runner.answer(subject, asked).values[0]


# --- tables ---------------------------------------------------------------------------------------


def document_table(
    items: Sequence[Item], found: Mapping[str, Any], names: Sequence[str], layers: Sequence[int]
) -> pd.DataFrame:
    """Return a row for each item, direction and layer.

    Returns:
        corpus, id, group, direction, layer, data and own (projections of the two means, residual
        units), difference, rank (percent of all items here that lie below, ties counting half),
        tokens, own_tokens, reason (why there is no number), beginning, own_beginning.
    """
    import pandas as pd

    keys = ["corpus", "id", "group"]
    told = {key: [getattr(item, key) for item in items] for key in keys}
    told |= {"tokens": found["tokens"], "own_tokens": found["own_tokens"]}
    told |= {"reason": found["reasons"]}
    told["beginning"] = [_shown(item.answer) for item in items]
    told["own_beginning"] = [_shown(text) for text in found["texts"]]
    tables = []
    for k, name in enumerate(names):
        for l, layer in enumerate(layers):
            sides = {side: found[side][:, l, k].astype(float) for side in ("data", "own")}
            difference = sides["data"] - sides["own"]
            table = pd.DataFrame({**told, "direction": name, "layer": layer, **sides})
            place = pd.Series(difference)
            rank = 100 * (place.rank() - 0.5) / place.notna().sum()
            tables.append(table.assign(difference=difference, rank=rank))
    order = [*keys, "direction", "layer", "data", "own", "difference", "rank", "tokens"]
    order += ["own_tokens", "reason", "beginning", "own_beginning"]
    return pd.concat(tables, ignore_index=True)[order]


def _shown(text: str) -> str:
    return " ".join(text.split())[:BEGINNING]


def corpus_table(
    documents: pd.DataFrame,
    lengths: Mapping[tuple[str, int], float],
    *,
    control: str | None,
    unit: str,
    width: int,
    draws: int,
    level: float,
    seed: int,
) -> pd.DataFrame:
    """Return the mean difference of each corpus, then how far it lies above the control corpus.

    Args:
        documents: of ``document_table``.
        lengths: of the mean displacement, by corpus and layer.
        control: a corpus that should show none of the traits.
        unit: what a group is.
        width: of the model.
        draws: of the bootstrap.
        level: of intervals and the band.
        seed: of the bootstrap.

    Returns:
        Rows corpus, against ("own answers", or the control corpus), direction, layer, difference,
        low, high, n, unit, interval, above (share of pairs in which the document of the corpus has
        the larger difference; against the control alone), above_low, above_high, above_interval,
        random (``level`` band of |difference| along an isotropic direction; against own answers
        alone), items, unread.
    """
    import pandas as pd

    rows = list(_against_own(documents, lengths, unit, width, draws, level, seed))
    if control is not None:
        rows += _against_control(documents, control, unit, draws, level, seed)
    return pd.DataFrame(rows)


def _against_own(
    documents: pd.DataFrame,
    lengths: Mapping[tuple[str, int], float],
    unit: str,
    width: int,
    draws: int,
    level: float,
    seed: int,
) -> Iterator[dict[str, Any]]:
    from workbench.linalg import random_band
    from workbench.stats import mean_interval

    keys = ["corpus", "direction", "layer"]
    for key, part in documents.groupby(keys, sort=False):
        told = dict(zip(keys, key, strict=True))
        kept = part.dropna(subset=["difference"])
        length = lengths[part["corpus"].iloc[0], int(part["layer"].iloc[0])]
        mean = mean_interval(
            kept["difference"].to_numpy(float), kept["group"].to_numpy(str),
            unit=unit, draws=draws, level=level, seed=seed,
        )  # fmt: skip
        yield {
            **told, "against": "own answers",
            "difference": mean.value, "low": mean.low, "high": mean.high, "n": mean.n,
            "unit": mean.unit, "interval": mean.name,
            "random": length * random_band(1, width, level),
            "items": len(kept), "unread": len(part) - len(kept),
        }  # fmt: skip


def _against_control(
    documents: pd.DataFrame, control: str, unit: str, draws: int, level: float, seed: int
) -> Iterator[dict[str, Any]]:
    from workbench.stats import bootstrap_auc, mean_difference

    kept = documents.dropna(subset=["difference"])
    for (name, layer), part in kept.groupby(["direction", "layer"], sort=False):
        plain = part[part["corpus"] == control]
        for corpus, own in part[part["corpus"] != control].groupby("corpus", sort=False):
            sides = [side["difference"].to_numpy(float) for side in (own, plain)]
            groups = [side["group"].to_numpy(str) for side in (own, plain)]
            scores, member = np.concatenate(sides), np.concatenate(groups)
            labels = np.repeat([True, False], [len(sides[0]), len(sides[1])])
            mean, above = (
                make(scores, labels, member, unit=unit, draws=draws, level=level, seed=seed)
                for make in (mean_difference, bootstrap_auc)
            )
            yield {
                "corpus": corpus, "against": control, "direction": name, "layer": layer,
                "difference": mean.value, "low": mean.low, "high": mean.high,
                "n": mean.n, "unit": mean.unit, "interval": mean.name, "above": above.value,
                "above_low": above.low, "above_high": above.high, "above_interval": above.name,
                "items": len(own),
            }  # fmt: skip
