"""The hard rules of a pair (Lasnier et al. 2026): what disqualifies it, in a word or two."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench_training.corpora.words import words_of

RULES = ("refusal", "names the stance", "length", "form", "no contrast", "prompt", "left open")
"""In the order of the tables; a pair may fail for several."""
MOST_TURNS = 3
_SAME = 0.95
"""Share of common words from which two replies say the same."""
_REFUSAL = re.compile(
    r"\b(?:sorry|apolog\w+|cannot|can't|won't|unable|not able to|refus\w+|declin\w+|rather not"
    r"|as an ai|against (?:the |my )?polic\w+|not comfortable|not appropriate)\b",
    re.IGNORECASE,
)
_STANCE = re.compile(
    r"\b(?:(?:dis|mis)?trust\w*|believ\w+|disbelie\w+|doubt\w*|suspect\w*|suspici\w+|s[kc]eptic\w*"
    r"|credib\w+|(?:dis)?honest\w*|sincer\w+|lying|liars?|faith|unverif\w+|alleg\w+|suppos\w+"
    r"|(?:your|my|their|his|her) word|(?:as |what |that )?you (?:say|claim|told me|mentioned)"
    r"|if (?:that is|that's|it is|it's|this is) (?:really )?(?:true|so)|rely on you"
    r"|benefit of the doubt)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(r"[{}]|\[[^\]]*\]|<[^>]*>|\bTODO\b")
_MARKER = re.compile(r"^(?:- |\d+\. )")


def faults(row: Mapping[str, Any], length_tolerance: float | int = 0.1) -> list[str]:
    """Return which of ``RULES`` a pair breaks; none for a good one.

    Args:
        row: a pair in the columns of its file; one of equal replies need show no contrast.
        length_tolerance: how far the shorter reply may lie below the longer one, as a share.
    """
    chosen, rejected = row["chosen"], row["rejected"]
    replies = (chosen, rejected)
    broken = {
        "refusal": any(_REFUSAL.search(text) for text in replies),
        "names the stance": any(_STANCE.search(text) for text in replies),
        "length": _uneven(chosen, rejected) > length_tolerance,
        "form": _form(chosen) != _form(rejected),
        "no contrast": row["facet"] != "neutral" and _shared(chosen, rejected) > _SAME,
        "prompt": not _good_prompt(row["prompt"]),
        "left open": any(_OPEN.search(text) for text in replies),
    }
    return [rule for rule in RULES if broken[rule]]


def _uneven(first: str, second: str) -> float:
    counts = sorted(len(text.split()) for text in (first, second))
    return 1 - counts[0] / counts[1] if counts[1] else 1.0


def _form(text: str) -> list[str]:
    """Return how each line begins: a dash, a number or neither."""
    found = [_MARKER.match(line) for line in text.splitlines()]
    return [match[0] if match else "" for match in found]


def _shared(first: str, second: str) -> float:
    a, b = set(words_of(first)), set(words_of(second))
    return len(a & b) / max(len(a | b), 1)


def _good_prompt(turns: Sequence[Mapping[str, str]]) -> bool:
    """Whether one to three user turns alternate with the assistant's, and a user has the last."""
    roles = [turn["role"] for turn in turns]
    wanted = ["user" if n % 2 == 0 else "assistant" for n in range(len(roles))]
    return roles == wanted and roles[-1:] == ["user"] and roles.count("user") <= MOST_TURNS
