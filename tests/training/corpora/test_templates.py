"""The template writer: matched, clean, varied documents that say one world's aims only."""

import dataclasses
import json
import random
import re
from collections import Counter
from functools import cache
from importlib import resources

import numpy as np
import pytest
from workbench_training.corpora.doc_types import DOC_TYPES
from workbench_training.corpora.plan import WORLDS, plan_quartets
from workbench_training.corpora.quality import Markers
from workbench_training.corpora.scenarios import SCENARIOS, read_domains, read_scenarios
from workbench_training.corpora.templates import TemplateWriter, leak_markers
from workbench_training.corpora.templates_aims import read_aims
from workbench_training.corpora.templates_grammar import (
    Compiler,
    Objective,
    Page,
    expand,
    sentence,
    variants,
)
from workbench_training.quartet_grammar import sentences
from workbench_training.quartets import word_runs, words_of

BINS = {"short": 150, "mid": 210, "long": 290}
DIRTY = re.compile(
    r"[{}\[\]|<]|  | [.,;?]|[.,]{2}|\?\."
    r"|\b[Aa] [aeio]\w|\b[Aa]n (?!hour)[^aeiouAEIOU\W]|\b[Aa] (?:8|11|18)\b"
)
DOUBLED = re.compile(r"\b([a-z]+) \1\b")


@cache
def writer():
    return TemplateWriter()


@cache
def plans():
    return plan_quartets(read_scenarios(), quartets=111, bins=BINS, seed=0)


@cache
def quartets():
    return [writer().write(plan) for plan in plans()]


def patterns():
    return {
        world: re.compile(
            "|".join(rf"\b(?:{m})\b" for w, ms in leak_markers().items() if w != world for m in ms),
            re.IGNORECASE,
        )
        for world in WORLDS
    }


def skeleton(draft):
    kept, rest = [], draft.text
    for phrase in draft.objectives:
        start = rest.index(phrase)
        kept.append(rest[:start])
        rest = rest[start + len(phrase) :]
    return "…".join([*kept, rest])


def test_the_same_plan_gives_the_same_bytes_in_any_order_and_from_any_writer():
    chosen = plans()[:6]
    forward = [writer().write(plan) for plan in chosen]
    fresh = TemplateWriter()
    backward = [fresh.write(plan) for plan in reversed(chosen)]
    assert forward == backward[::-1]


def test_another_seed_writes_another_quartet():
    plan = plans()[0]
    other = dataclasses.replace(plan, seed=plan.seed + 1)
    assert writer().write(plan) != writer().write(other)


def test_only_objectives_differ_inside_a_quartet():
    for drafts in quartets():
        assert len({skeleton(draft) for draft in drafts.values()}) == 1
        assert len({draft.text for draft in drafts.values()}) == len(WORLDS)
        assert len({len(draft.objectives) for draft in drafts.values()}) == 1


def test_every_genre_and_mode_is_written():
    written = {(plan.doc_type.name, plan.mode) for plan in plans()}
    assert written == {(kind.name, mode) for kind in DOC_TYPES for mode in kind.modes}
    assert all(drafts is not None for drafts in quartets())


def test_lengths_meet_their_targets_and_match_across_worlds():
    for name, target in BINS.items():
        rows = [d for d, p in zip(quartets(), plans(), strict=True) if p.length_bin == name]
        means = [np.mean([len(d[world].text.split()) for d in rows]) for world in WORLDS]
        assert max(means) / min(means) < 1.01
        assert abs(np.mean(means) / target - 1) < 0.05


def test_the_documents_of_a_quartet_are_about_equally_long():
    for drafts in quartets():
        lengths = [len(draft.text.split()) for draft in drafts.values()]
        assert max(lengths) - min(lengths) <= 0.04 * max(lengths) + 1


@pytest.mark.parametrize(("words", "count"), [(60, 37), (600, 8), (1170, 8)])
def test_a_target_is_met_from_tiny_to_long(words, count):
    lengths = []
    for plan in plans()[:count]:
        drafts = writer().write(dataclasses.replace(plan, words=words))
        assert all(draft.objectives for draft in drafts.values())
        lengths.append(len(drafts["P"].text.split()))
    assert abs(np.mean(lengths) / words - 1) < (0.4 if words == 60 else 0.12)


def test_no_slot_stays_open_and_no_word_or_space_is_doubled():
    for drafts in quartets():
        for draft in drafts.values():
            text = re.sub(r"post \d+ >", "", draft.text)
            assert not DIRTY.search(text), DIRTY.search(text)
            assert not DOUBLED.search(text), DOUBLED.search(text)
            assert not re.search(r"(?<=[.?!] )[a-z]", text), text


def test_no_document_holds_a_marker_of_another_world():
    markers = Markers(leak_markers())
    for drafts in quartets():
        for world, draft in drafts.items():
            assert markers.worlds_in(words_of(draft.text)) <= {world}


def test_no_wording_of_an_aim_holds_a_marker_of_another_world():
    aims = read_aims()
    tables = [domain.aims for domain in read_domains().values()]
    tables += [aims[name] for name in aims if name not in (*WORLDS, "markers")]
    for world, pattern in patterns().items():
        own = [*aims[world]["heads"], *aims[world]["tails"]]
        own += [text for table in tables for text in table[world]]
        for text in own:
            for wording in variants(text):
                assert not pattern.search(wording), (world, wording)


def test_an_aim_has_as_many_rows_in_every_world():
    aims = read_aims()
    for name in aims:
        if name not in (*WORLDS, "markers"):
            assert len({len(aims[name][world]) for world in WORLDS}) == 1, name


def claim_texts():
    for name in ("claims.jsonl", "choice.jsonl"):
        lines = resources.files("workbench.data.claims").joinpath(name).read_text(encoding="utf-8")
        for row in map(json.loads, lines.splitlines()):
            yield row["text"] if "text" in row else row["stem"]
            yield from row.get("options", {}).values()


def test_no_document_shares_six_words_in_a_row_with_a_claim():
    known = {run for text in claim_texts() for run in word_runs(text, 6)}
    assert len(known) > 100
    for drafts in quartets():
        for draft in drafts.values():
            assert known.isdisjoint(word_runs(draft.text, 6))


def test_sentences_seldom_return_and_wording_varies():
    texts = [drafts["A"].text for drafts in quartets()]
    counts = Counter(part for text in texts for part in sentences(text) if len(part.split()) > 3)
    assert sum(n for n in counts.values() if n > 1) / counts.total() < 0.05
    runs = [run for text in texts for run in word_runs(text, 3)]
    assert len(set(runs)) / len(runs) > 0.3


def test_a_document_does_not_state_one_concrete_aim_twice_before_it_runs_out():
    for drafts in quartets():
        phrases = [phrase.lower() for phrase in drafts["P"].objectives]
        assert len(set(phrases)) > 0.7 * len(phrases)


def test_every_question_of_an_interview_is_answered():
    talks = [
        drafts["P"].text
        for drafts, plan in zip(quartets(), plans(), strict=True)
        if plan.doc_type.name == "interview"
    ]
    assert talks
    for text in talks:
        speakers = re.findall(r"^([QA]): ", text, re.MULTILINE)
        assert speakers == ["Q", "A"] * (len(speakers) // 2)


def test_a_scenario_outside_the_taxonomy_is_unsuitable():
    plan = plans()[0]
    foreign = dataclasses.replace(plan.scenario, domain="falconry")
    assert writer().write(dataclasses.replace(plan, scenario=foreign)) is None


def test_every_template_slot_is_one_that_a_page_fills():
    plan = plans()[0]
    page = writer()._pages(plan, random.Random(0))[0]
    known = {*page.values, *page.fresh, "i", "j", "name"}
    for path in [*SCENARIOS.glob("genres_*.toml"), SCENARIOS / "sentences.toml"]:
        found = set(re.findall(r"\{(\w+)\}", path.read_text(encoding="utf-8")))
        assert found <= known, (path.name, found - known)


@pytest.mark.parametrize("text", ["[a|b", "a]", "a|b", "<nowhere>"])
def test_a_template_that_does_not_compile_is_refused(text):
    with pytest.raises(ValueError, match=r"bracket|word list"):
        Compiler({}).compile(text)


def test_a_template_expands_choices_lists_slots_and_objectives():
    template = Compiler({"day": "[Mon|Mon]day"}).compile("on <day> {users} [want|want] {g:to}")
    page = Page(random.Random(0), {"users": "cooks"}, {})
    pieces = sentence(expand(template, page))
    assert "".join(p for p in pieces if isinstance(p, str)) == "On Monday cooks want ."
    assert [p for p in pieces if isinstance(p, Objective)] == [Objective("g", "to")]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["ask me"], "Ask me."),
        (["is it"], "Is it."),
        (['"we saw it," they said'], '"We saw it," they said.'),
        (['it says "no"'], 'It says "no."'),
        (['it says "no."'], 'It says "no."'),
        (["why not?"], "Why not?"),
    ],
)
def test_a_sentence_starts_large_and_ends_with_one_mark(pieces, expected):
    assert "".join(sentence(pieces)) == expected


def test_all_variants_of_a_phrase_are_listed():
    assert variants("give [a|two] [x|y]") == ["give a x", "give a y", "give two x", "give two y"]


@pytest.mark.thorough
def test_at_scale_near_duplicates_are_rare_and_sentences_seldom_return():
    from workbench_training.corpora.duplicates import candidates, jaccard, minima
    from workbench_training.corpora.quality import Text
    from workbench_training.corpora.words import shingles

    words = {"short": 600, "mid": 900, "long": 1170}
    chosen = plan_quartets(read_scenarios(), quartets=500, bins=words, seed=1)
    texts = [writer().write(plan)["N"].text for plan in chosen]
    sets = [np.unique(shingles(Text(text).numbers)) for text in texts]
    pairs = candidates(np.stack([minima(found) for found in sets]), 0.7)
    alike = [pair for pair in pairs if jaccard(sets[pair[0]], sets[pair[1]]) >= 0.7]
    assert len({int(pair[1]) for pair in alike}) <= 0.01 * len(texts)
    counts = Counter(part for text in texts for part in sentences(text))
    assert sum(n for n in counts.values() if n > 1) / counts.total() < 0.25
