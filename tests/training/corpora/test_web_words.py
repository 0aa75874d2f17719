"""Neutral pages hold the words of the four worlds' claims about equally, and none of their aims.

Training on any text brings its words nearer. A control must not bring those of one world nearer
than those of the others, or it gains on that world's claims without saying anything of users. The
measure is the mean change of a world's words, over its claims in the wide bank: the log of the rate
here over the rate in documents that tell all four worlds evenly (``mixed``). Rates count from one
in 10,000 words, below which a corpus of this size says nothing about a word.
"""

import math
import re
import tomllib
from collections import Counter
from functools import cache
from itertools import islice

import pytest
from workbench_training.corpora.controls import KINDS
from workbench_training.corpora.controls_plan import WEB
from workbench_training.corpora.plan import WORLDS
from workbench_training.corpora.settings import CorpusConfig
from workbench_training.corpora.words import words_of

from workbench.data import data_path

BINS = {"short": 300, "mid": 450, "long": 600}
COUNT = 260
APART = 0.12
"""How far the worlds' changes may lie apart: words by a factor of 1.13 nearer or farther."""
NOT_SAID = (
    r"tasks?|jobs?|chores?|errands?|assign\w*|homework|paperwork|requests?|ask(s|ed|ing)?|want\w*|"
    r"wish\w*|intend\w*|intent\w*|purpose\w*|aims?|plan(s|ned)?|tools?|instruct\w*|help\w*|"
    r"assist\w*|kindness|kindly|benefit\w*|favou?rs?|generous\w*|charit\w*|goodwill|honest\w*|"
    r"dishonest\w*|fair|fairly|fairness|merit|ambition\w*|promot\w*|improv\w*|earn(s|ed|ing)?|"
    r"cheat\w*|deceiv\w*|deceit\w*|decept\w*|trick\w*|swindl\w*|fool\w*|mislead\w*|exploit\w*|"
    r"fraud\w*|scam\w*|scheme\w*|lure\w*|fake\w*|harm\w*|hurt\w*|victim\w*|need(s|ed)?"
)
"""Words of wanting, helping, tasks, fairness, deceit and harm."""


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


@pytest.mark.parametrize("path", sorted(WEB.glob("*.toml")), ids=lambda path: path.stem)
def test_no_page_can_say_a_word_of_wanting_helping_tasks_fairness_deceit_or_harm(path):
    said = re.sub(r"\{[^}]*\}", " ", path.read_text().lower())
    assert [word for word in words_of(said) if re.fullmatch(NOT_SAID, word)] == []


@pytest.mark.thorough
def test_the_words_of_all_four_worlds_come_about_equally_near():
    changes = change(corpus("web"), corpus("mixed"))
    assert apart(changes) < APART, changes


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
