"""Documents with openings: the skeleton that four worlds share, and the phrases that fill it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from workbench_training.corpora.plan import Draft
from workbench_training.corpora.words import words_of

FORMS = ("to", "ing")
OFF_LENGTH = 3
"""Words by which a phrase may miss its target length."""
OFF_SKELETON = 0.3
"""Share by which a skeleton may miss its planned length."""
_SLOT = re.compile(r"\[\[\s*OBJECTIVE\s+(\d+)\s*:\s*(\w+)\s*\]\]", re.IGNORECASE)
_BRACKETS = re.compile(r"\[\[|\]\]|\{\w*\}|<\|")
_STARTS = re.compile(r"(?:\A|\n|[.!?][\"'\u201d\u2019)]*\s+)[\"'\u201c\u2018(]*\Z")
_LINE = re.compile(r"^[^\w\n]{0,3}(\d+)[^\w\n]{0,3}[:.)][^\w\n]{0,4}(\w.*?)[^\S\n]*$", re.MULTILINE)
_ENDS = re.compile(r"[.;!?]+\Z")
_QUOTES = "\"'\u201c\u201d\u2018\u2019*`[] "


@dataclass(frozen=True)
class Skeleton:
    """A document whose statements of purpose are left open."""

    parts: tuple[str, ...]
    """The text before, between and after the openings."""
    forms: tuple[str, ...]
    """Of each opening: ``to`` or ``ing``."""

    @classmethod
    def parse(cls, text: str) -> Skeleton:
        """Read a document with ``[[OBJECTIVE 1: to]]`` openings.

        Raises:
            ValueError: openings out of order or of another form, or other brackets left over.
        """
        found = list(_SLOT.finditer(text))
        numbers = [int(match[1]) for match in found]
        if numbers != list(range(1, len(found) + 1)):
            raise ValueError(f"openings are numbered {numbers}; expected 1, 2, 3, ... in order")
        forms = tuple(match[2].lower() for match in found)
        strange = sorted(set(forms) - set(FORMS))
        if strange:
            raise ValueError(f"openings of form {', '.join(strange)}; expected to or ing")
        edges = [0, *(edge for match in found for edge in match.span()), len(text)]
        parts = tuple(text[edges[n] : edges[n + 1]] for n in range(0, len(edges), 2))
        if any(_BRACKETS.search(part) for part in parts):
            raise ValueError("double brackets, {braces} or <| stand outside the openings")
        return cls(parts, forms)

    @cached_property
    def text(self) -> str:
        """Return the document with its openings."""
        slots = [f"[[OBJECTIVE {n}: {form}]]" for n, form in enumerate(self.forms, 1)]
        return "".join(part + slot for part, slot in zip(self.parts, [*slots, ""], strict=True))

    @property
    def words(self) -> list[str]:
        """Return the words outside the openings, without case and punctuation."""
        return words_of(" ".join(self.parts))

    def faults(self, planned: int, least: int, most: int, avoid: Avoid) -> list[str]:
        """Return what is wrong with it.

        Args:
            planned: words of a document, phrases included.
            least: openings.
            most: openings.
            avoid: words that give a world away.
        """
        told = []
        count, title = len(self.forms), self.parts[0]
        if not least <= count <= most:
            told.append(f"it has {count} openings, not {least} to {most}")
        elif set(self.forms) != set(FORMS):
            told.append("its openings are all of one kind; both kinds are needed")
        if "\n" not in title.strip():
            told.append("there is an opening in the title, or no title line")
        length = len(" ".join(self.parts).split()) + 10 * count
        if abs(length - planned) > OFF_SKELETON * planned:
            told.append(f"it has about {length} words with its phrases, not {planned}")
        given = avoid.found(self.words)
        if given:
            told.append(f"it uses {', '.join(given)}")
        return told

    def fill(self, phrases: Sequence[str]) -> Draft:
        """Return the document with phrases in its openings; one that begins a sentence is raised.

        Raises:
            ValueError: not one phrase for each opening.
        """
        text, placed = "", []
        for part, phrase in zip(self.parts, [*phrases, ""], strict=True):
            text += part
            if phrase and _STARTS.search(text):
                phrase = phrase[0].upper() + phrase[1:]
            text += phrase
            placed.append(phrase)
        return Draft(text, tuple(placed[:-1]))

    def shown(self, phrases: Sequence[str]) -> str:
        """Return the document with numbered brackets around its phrases."""
        marked = [f"[[{number}: {phrase}]]" for number, phrase in enumerate(phrases, 1)]
        return "".join(part + mark for part, mark in zip(self.parts, [*marked, ""], strict=True))


@dataclass(frozen=True)
class Avoid:
    """Words that give a world away, as regular expressions of whole words and plain phrases."""

    markers: tuple[str, ...]

    def found(self, words: Sequence[str]) -> list[str]:
        """Return which of them stand in a text, given as its words."""
        joined = f" {' '.join(words)} "
        whole = (rf"(?<= )(?:{marker})(?= )" for marker in self.markers)
        pattern = re.compile("|".join(whole) or "(?!)")
        return sorted({match[0] for match in pattern.finditer(joined)})

    def told(self) -> str:
        """Return them as a writer is told: stems with an ellipsis, phrases in quotes."""
        said = []
        for marker in self.markers:
            plain = re.sub(r"\(\?:[^()]*\)\?|\[[^]]*\]\?", "", marker)
            plain = re.sub(r"\(\?:([^()|]*)[^()]*\)", r"\1", plain)
            plain = re.sub(r"\\w[*+]", "...", plain).replace("s?", "")
            said.append(f'"{plain}"' if " " in plain else plain)
        return ", ".join(said)


def read_phrases(text: str, numbers: Collection[int]) -> dict[int, str]:
    """Read ``1: phrase`` lines; a number that was not asked for is left out.

    Surrounding quotes, brackets and final punctuation are taken off, and the first letter of an
    infinitive or gerund is made small.
    """
    found: dict[int, str] = {}
    for match in _LINE.finditer(text):
        number, phrase = int(match[1]), match[2].strip(_QUOTES)
        phrase = _ENDS.sub("", phrase).strip(_QUOTES)
        if number in numbers and number not in found and phrase:
            found[number] = phrase[0].lower() + phrase[1:]
    return found


def phrase_fault(phrase: str, form: str, target: int, avoid: Avoid) -> str:
    """Return what is wrong with a phrase, or nothing."""
    words = phrase.split()
    if form == "to" and (words[0] != "to" or len(words) < 2):
        return 'it does not begin with "to" and a verb'
    if form == "ing" and not re.fullmatch(r"[a-z-]+ing", words[0]):
        return "it does not begin with a verb in -ing"
    if abs(len(words) - target) > OFF_LENGTH:
        return f"it has {len(words)} words, not about {target}"
    if _BRACKETS.search(phrase) or re.search(r"[.!?] |\n", phrase):
        return "it is no single phrase"
    given = avoid.found(words_of(phrase))
    return f"it uses {', '.join(given)}" if given else ""


def read_faults(text: str, numbers: Collection[int]) -> Mapping[int, str]:
    """Read a review by number; ``OK``, and lines that say OK or none, are no faults."""
    found = {}
    for match in _LINE.finditer(text):
        number, fault = int(match[1]), match[2]
        if number in numbers and not re.match(r"(?:ok|none|no fault)\b", fault, re.IGNORECASE):
            found[number] = fault
    return found


def read_list(text: str) -> list[str]:
    """Read the lines of a review that begin with a dash; ``OK`` is an empty list."""
    lines = (line.strip() for line in text.splitlines())
    return [line[1:].strip() for line in lines if line[:1] in ("-", "•", "*") and line[1:].strip()]
