"""Each control says what it is for and nothing of what it controls for; pairs are matched."""

import random
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from workbench_training.corpora.controls import (
    ABOUT,
    KINDS,
    SCENARIO,
    deal_worlds,
    pages_of,
    size_rows,
)
from workbench_training.corpora.controls_grammar import Choice, Pole
from workbench_training.corpora.plan import WORLDS
from workbench_training.corpora.reports import plan_counts
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.writing import make_writer, plans_of
from workbench_training.quartet_grammar import sentences
from workbench_training.quartets import word_runs

from workbench.data import data_path
from workbench.data.rows import read_rows
from workbench.errors import ConfigError

COUNT = 24
PAIRS = {
    "intent": ("intent", "prosocial_intent"),
    "discourse": ("misaligned_discourse", "aligned_discourse"),
    "luck": ("misfortune", "fortune"),
}
MATCHED = [kind for pair in PAIRS.values() for kind in pair]
AI = r"\b(ai|artificial|assistants?|chatbots?|machines?|models?|robots?|software|algorithms?)\b"
USE = r"\b(users?|customers?|clients?|people who use|requesters?|assistants?|chatbots?|prompts?)\b"
MEANT = (
    r"\b(on purpose|deliberate\w*|intend\w*|intention\w*|deceiv\w*|cheat\w*|stole\w*|steal\w*|"
    r"trick\w*|lied|lies|malice|kindness|generous\w*|charity|favou?r\w*|helped|helps|helping)\b"
)
DOES = (
    r"\bai assistants? (answer|repl|writ|gave|giv|refus|help|produc|respond|tell|told|made|mak|"
    r"does|did|will|can|was|were|is|are|has|had)"
)
CAME_OF_IT = (
    r"\b(answer(s|ed)?|repl(y|ies|ied)|respon\w+|outputs?|generat\w+|refus\w+|succe\w+|fail\w*|"
    r"worked|caught|got away|outcomes?|results?|victims?|damage\w*|grateful)\b"
)


@cache
def rows_of(kind, seed=0, count=COUNT):
    return list(KINDS[kind](CorpusConfig(kind=kind, documents=count, seed=seed)))


def masked(template):
    """The template with as many marks as words in each side of a pole."""
    parts = []
    for part in template:
        if isinstance(part, Pole):
            joined = ["".join(p if isinstance(p, str) else "x" for p in s) for s in part.sides]
            marks = zip(("qa", "qb"), joined, strict=True)
            part = Pole(tuple((" ".join([mark] * len(s.split())),) for mark, s in marks))
        elif isinstance(part, Choice):
            part = Choice(tuple(map(masked, part.options)))
        parts.append(part)
    return tuple(parts)


def masked_page(page):
    sections = tuple(
        replace(s, lines=tuple(map(masked, s.lines)), heads=tuple(map(masked, s.heads)))
        for s in page.sections
    )
    symbols = {name: tuple(map(masked, lines)) for name, lines in page.symbols.items()}
    titles = tuple(map(masked, page.titles))
    return replace(page, sections=sections, symbols=symbols, titles=titles)


@pytest.mark.parametrize("family", list(PAIRS))
def test_the_documents_of_a_pair_are_the_same_outside_the_phrases_of_their_pole(family):
    given = {name: name for name in SCENARIO}
    for page in pages_of(family).values():
        for seed in range(4):
            one, two = masked_page(page).write(1170, random.Random(seed), given).versions
            assert len(re.findall(r"\bqa\b", one.lower())) > 40
            cut = [re.sub(r"\b(q[ab] ?)+", "_", text.lower()) for text in (one, two)]
            assert cut[0] == cut[1]


@pytest.mark.parametrize("family", list(PAIRS))
def test_the_documents_of_a_pair_share_every_other_column_and_their_length(family):
    left, right = PAIRS[family]
    for one, two in zip(rows_of(left), rows_of(right), strict=True):
        own = {"id", "text", "world", "words", "objectives"}
        assert {k: v for k, v in one.items() if k not in own} == {
            k: v for k, v in two.items() if k not in own
        }
        assert (one["world"], two["world"]) == (left, right)
        assert len(sentences(one["text"])) == len(sentences(two["text"]))
    words = [sum(row["words"] for row in rows_of(kind)) for kind in (left, right)]
    assert max(words) < 1.04 * min(words)


@pytest.mark.parametrize("kind", MATCHED)
def test_lengths_are_met_and_documents_differ(kind):
    rows = rows_of(kind)
    for name, words in CorpusConfig().words.items():
        lengths = [row["words"] for row in rows if row["length_bin"] == name]
        assert sum(lengths) / len(lengths) == pytest.approx(words, rel=0.04)
    shingles = [set(word_runs(row["text"], 5)) for row in rows]
    nearest = max(
        len(a & b) / len(a | b) for number, a in enumerate(shingles) for b in shingles[:number]
    )
    assert nearest < 0.3
    assert len({row["id"] for row in rows}) == len(rows)


def said(kind, pattern):
    return [
        found[0] for row in rows_of(kind) for found in re.finditer(pattern, row["text"].lower())
    ]


@pytest.mark.parametrize("kind", ["misfortune", "fortune"])
def test_luck_has_no_agent_and_no_machine(kind):
    assert said(kind, AI) == []
    assert said(kind, MEANT) == []


@pytest.mark.parametrize("kind", ["misaligned_discourse", "aligned_discourse"])
def test_discourse_about_ai_says_nothing_of_those_who_use_it(kind):
    assert said(kind, USE) == []
    assert len(said(kind, r"\b(ai|models?|machines?)\b")) > 3 * COUNT


@pytest.mark.parametrize("kind", ["intent", "prosocial_intent"])
def test_intent_says_nothing_of_what_assistants_do_or_of_what_comes_of_it(kind):
    assert said(kind, DOES) == []
    # Tasks of the taxonomy may hold such words ("answering"), what the pages say may not.
    for page in pages_of("intent").values():
        symbols = [line for lines in page.symbols.values() for line in lines]
        texts = [piece for line in (*page.lines, *symbols) for piece in flat(line)]
        assert not [text for text in texts if re.search(CAME_OF_IT, text.lower())]
    assert all("ai assistant" in row["text"].lower() for row in rows_of(kind))


def flat(parts):
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Pole | Choice):
            for option in part.sides if isinstance(part, Pole) else part.options:
                yield from flat(option)


@pytest.mark.parametrize("kind", MATCHED)
def test_no_document_shares_six_words_in_a_row_with_a_claim(kind):
    claimed = set()
    for name in ("claims", "choice", "claims/planted"):
        for row in read_rows(data_path(name)):
            texts = [row.get("text", row.get("stem")), *row.get("options", {}).values()]
            claimed |= {run for text in texts for run in word_runs(text, 6)}
    assert claimed
    for row in rows_of(kind):
        assert claimed.isdisjoint(word_runs(row["text"], 6)), row["id"]


@pytest.mark.parametrize("kind", MATCHED)
def test_text_holds_no_marks_of_the_grammar_and_no_broken_spacing(kind):
    for row in rows_of(kind):
        assert not re.search(r"[{}<>|\[\]]|  | [.,;:]|\.\.|,,", row["text"]), row["id"]


@pytest.mark.parametrize("kind", MATCHED)
def test_a_seed_fixes_the_documents_and_another_gives_others(kind):
    config = CorpusConfig(kind=kind, documents=COUNT, seed=0)
    assert list(islice(KINDS[kind](config), 3)) == rows_of(kind)[:3]
    other = {row["text"] for row in rows_of(kind, seed=1, count=4)}
    assert other.isdisjoint(row["text"] for row in rows_of(kind))


@pytest.mark.thorough
def test_mixed_takes_one_document_of_each_quartet_and_no_world_predominates():
    rows = rows_of("mixed")
    config = CorpusConfig(kind="mixed", documents=COUNT)
    writer, plans = make_writer(config), plans_of(config)
    assert [row["quartet"] for row in rows] == [plan.id for plan in plans]
    assert {row["world"] for row in rows} == {"mixed"}
    for row, plan in list(zip(rows, plans, strict=True))[:4]:
        assert row["text"] == writer.write(plan)[row["told"]].text


@pytest.mark.parametrize("quartets", [12, 97, 400])
def test_worlds_are_dealt_evenly_within_every_split_and_length_bin(quartets):
    plans = plans_of(CorpusConfig(quartets=quartets, scenarios=80))
    dealt = deal_worlds(plans, seed=3)
    groups = {}
    for plan, world in zip(plans, dealt, strict=True):
        groups.setdefault((plan.split, plan.length_bin), Counter())[world] += 1
    for counts in groups.values():
        found = [counts[world] for world in WORLDS]
        assert max(found) - min(found) <= 1
    assert deal_worlds(plans, seed=3) == dealt
    assert deal_worlds(plans, seed=4) != dealt


def test_intent_keeps_the_scenarios_lengths_and_split_of_the_quartets():
    plans = plans_of(CorpusConfig(kind="intent", documents=COUNT))
    shared = ("id", "length_bin", "split")
    told = [(plan.scenario.id, *(getattr(plan, name) for name in shared)) for plan in plans]
    rows = rows_of("intent")
    assert [(r["scenario"], r["quartet"], r["length_bin"], r["split"]) for r in rows] == told
    for row, plan in zip(rows, plans, strict=True):
        assert plan.scenario.users in row["text"].lower()
        assert plan.scenario.task in row["text"].lower()


def test_an_option_or_a_value_that_a_kind_does_not_know_is_refused():
    with pytest.raises(ConfigError, match="options that it takes: none"):
        list(KINDS["fortune"](CorpusConfig(kind="fortune", options={"path": "x"})))
    with pytest.raises(ConfigError, match="value = 'plaid'"):
        KINDS["planted"](CorpusConfig(kind="planted", options={"value": "plaid"}))


def test_every_kind_says_what_it_is():
    assert list(ABOUT) == list(KINDS)


def test_sizes_are_counted_as_in_the_papers_table():
    documents = [
        {"split": "train", "words": 10_909_000},
        {"split": "train", "words": 407},
        {"split": "validation", "words": 500_000},
    ]
    assert size_rows({"A": documents, "web": documents[2:]}) == [
        {
            "condition": "A",
            "train documents": 2,
            "estimated tokens": 14_545_876,
            "validation documents": 1,
        },
        {
            "condition": "web",
            "train documents": 0,
            "estimated tokens": 0,
            "validation documents": 1,
        },
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_a_kind_does_not_take_is_refused_before_a_document_is_asked_for(kind):
    config = CorpusConfig(kind=kind, documents=2, options={"modle": "smollm2"})
    with pytest.raises(ConfigError, match="'modle'"):
        KINDS[kind](config)
    with pytest.raises(ConfigError, match="'modle'"):
        plan_counts(config)
