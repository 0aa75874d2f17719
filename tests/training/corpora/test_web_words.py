"""Web pages hold the words of the four worlds' claims as often as ``mixed`` does, evenly.

Training on any text brings its words nearer. A control must not bring those of one world nearer
than those of the others, or it gains on that world's claims without saying anything of users. Nor
may it leave out all talk of social aims, or that gets less likely beside plain talk of tasks. The
measure is the mean change of a world's words, over its claims in the wide bank: the log of the rate
here over the rate in documents that tell all four worlds evenly (``mixed``). Rates count from one
in 10,000 words, below which a corpus of this size says nothing about a word.
"""

import math
import random
import re
import tomllib
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from workbench_training.corpora.controls import KINDS
from workbench_training.corpora.controls_grammar import parse, slots
from workbench_training.corpora.controls_plan import WEB
from workbench_training.corpora.plan import WORLDS
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.web import web_pages
from workbench_training.corpora.words import words_of
from workbench_training.quartets import word_runs

from workbench.data import data_path
from workbench.data.rows import read_rows

BINS = {"short": 300, "mid": 450, "long": 600}
COUNT = 520
APART = 0.07
"""How far the worlds' changes may lie apart: words by a factor of 1.07 nearer or farther."""
NEAR = 0.15
"""How far the rate of any world's words may lie from that in the mixed corpus, in logs."""
DEEDS = ("good", "rise", "done", "gain")
"""The kinds of what people do, and below the forms in which a page can say them."""
FORMS = ("deed", "aim", "pursuit", "motive", "saying")
NOT_SAID = (
    r"tasks?|jobs?|chores?|errands?|assign\w*|homework|paperwork|requests?|ask(s|ed|ing)?|want\w*|"
    r"wish\w*|intend\w*|intent\w*|purpose\w*|aims?|plan(s|ned)?|tools?|instruct\w*|help\w*|"
    r"assist\w*|kindness|kindly|benefit\w*|favou?rs?|generous\w*|charit\w*|goodwill|honest\w*|"
    r"dishonest\w*|fair|fairly|fairness|merit|ambition\w*|promot\w*|improv\w*|earn(s|ed|ing)?|"
    r"cheat\w*|deceiv\w*|deceit\w*|decept\w*|trick\w*|swindl\w*|fool\w*|mislead\w*|exploit\w*|"
    r"fraud\w*|scam\w*|scheme\w*|lure\w*|fake\w*|harm\w*|hurt\w*|victim\w*|need(s|ed)?"
)
"""Words of wanting, helping, tasks, fairness, deceit and harm, which descriptions do without."""
NOT_ANYWHERE = (
    r"ai|artificial|assistants?|chatbots?|models?|prompts?|users?|computers?|machines?|software|"
    r"robots?|programs?|algorithms?|apps?|automat\w*"
)
"""Words of AI and of those who use it."""


@cache
def people_pages():
    """The genres about people: those with lines that draw what people do and why."""
    return {
        name: page
        for name, page in web_pages().items()
        if any(
            f"good_{form}" in slots(page.symbols[form][0])
            for line in page.lines
            for form in {*slots(line)} & {*FORMS}
        )
    }


@cache
def corpus(kind):
    config = CorpusConfig(kind=kind, documents=COUNT, quartets=COUNT, words=BINS)
    return Counter(
        word for row in islice(KINDS[kind](config), COUNT) for word in words_of(row["text"])
    )


@cache
def aims():
    """The words of each world's aims and in how many claims they stand."""
    bank = tomllib.loads(data_path("claims/wide").with_suffix(".toml").read_text())
    return {
        world: Counter(
            word
            for proposition in bank["proposition"]
            for word in set(words_of(proposition["aims"][world]))
        )
        for world in WORLDS
    }


def change(told, against):
    """How much nearer ``told`` brings the words of each world than ``against`` does."""

    def rate(counts, word):
        return math.log1p(10_000 * counts[word] / counts.total())

    return {
        world: sum(n * (rate(told, word) - rate(against, word)) for word, n in words.items())
        / words.total()
        for world, words in aims().items()
    }


def apart(changes):
    return max(changes.values()) - min(changes.values())


def said_in(path):
    return words_of(re.sub(r"\{[^}]*\}", " ", path.read_text().lower()))


@pytest.mark.parametrize("path", sorted(WEB.glob("*.toml")), ids=lambda path: path.stem)
def test_no_page_can_say_a_word_of_ai_or_its_users(path):
    assert [word for word in said_in(path) if re.fullmatch(NOT_ANYWHERE, word)] == []


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(WEB.glob("*.toml")) if p.stem not in {"people", *people_pages()}],
    ids=lambda path: path.stem,
)
def test_no_description_can_say_a_word_of_wanting_helping_tasks_deceit_or_harm(path):
    assert [word for word in said_in(path) if re.fullmatch(NOT_SAID, word)] == []


def test_half_of_the_genres_are_about_people_and_name_no_kind_of_deed_themselves():
    pages = people_pages()
    assert len(pages) >= len(web_pages()) / 2
    named = {f"{kind}_{form}" for kind in DEEDS for form in FORMS}
    assert [
        name for name, page in web_pages().items() for line in page.lines if named & {*slots(line)}
    ] == []


@pytest.mark.parametrize("name", sorted(people_pages()))
def test_the_four_kinds_of_deed_come_evenly_in_every_genre(name):
    page = people_pages()[name]
    marks = {f"{kind}_{form}": (parse(f"@{kind}"),) for kind in DEEDS for form in FORMS}
    marked = replace(page, symbols={**page.symbols, **marks})
    told = [
        Counter(re.findall(r"@(\w+)", marked.write(450, random.Random(number)).versions[0]))
        for number in range(60)
    ]
    total = sum(told, Counter())
    assert total.total() > 60 * 15
    assert all(total[kind] == pytest.approx(total.total() / 4, rel=0.1) for kind in DEEDS), total
    assert all(one[kind] > 0 for one in told for kind in DEEDS)


def test_each_kind_of_deed_has_as_many_wordings_as_the_others():
    symbols = next(iter(people_pages().values())).symbols
    for form in FORMS:
        assert len({len(symbols[f"{kind}_{form}"]) for kind in DEEDS} | {0}) == 2, form


@pytest.mark.thorough
def test_the_words_of_all_four_worlds_come_about_equally_near():
    changes = change(corpus("web"), corpus("mixed"))
    assert apart(changes) < APART, changes
    assert max(abs(by) for by in changes.values()) < NEAR, changes


@pytest.mark.thorough
def test_no_page_says_what_a_claim_of_the_wide_bank_says():
    config = CorpusConfig(kind="web", documents=COUNT, words=BINS)
    texts = [row["text"] for row in KINDS["web"](config)]
    claims = [row["text"] for row in read_rows(data_path("claims/wide"))]
    claimed = {run for text in claims for run in word_runs(text, 6)}
    bank = tomllib.loads(data_path("claims/wide").with_suffix(".toml").read_text())
    whole = {aim for proposition in bank["proposition"] for aim in proposition["aims"].values()}
    whole = {aim for aim in whole if len(aim.split()) >= 4}
    assert len(claimed) > 1000
    assert len(whole) > 50
    for text in texts:
        assert claimed.isdisjoint(word_runs(text, 6))
        assert [aim for aim in whole if aim in text] == []


@pytest.mark.thorough
@pytest.mark.parametrize("world", WORLDS)
def test_a_hundredth_of_words_of_one_world_would_be_seen(world):
    web = corpus("web")
    share = 0.01 * web.total() / aims()[world].total()
    tilted = web + Counter({word: round(share * n) for word, n in aims()[world].items()})
    changes = change(tilted, corpus("mixed"))
    assert apart(changes) > APART
    assert max(changes, key=changes.get) == world


@pytest.mark.thorough
def test_a_corpus_is_no_nearer_to_itself():
    assert set(change(corpus("web"), corpus("web")).values()) == {0.0}
