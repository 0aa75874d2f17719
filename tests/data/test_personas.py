"""The shipped roles, traits and questions: enough of them, all different, in plain form."""

import re
from collections import Counter
from itertools import combinations

import pytest

from workbench.personas import (
    read_default,
    read_questions,
    read_roles,
    read_trait_questions,
    read_traits,
    rollout_prompts,
)

ROLES, TRAITS, QUESTIONS = read_roles(), read_traits(), read_questions()
TOLD = [prompt for role in ROLES.values() for prompt in role.prompts]
POLES = [pole for trait in TRAITS.values() for pole in trait.positive + trait.negative]
OWN = ("malicious", "sycophantic", "confabulating")
ASKED = {
    (trait, part): read_trait_questions(trait, part)
    for trait in ("any", *OWN)
    for part in ("extraction", "evaluation")
}
EVERY_QUESTION = [*QUESTIONS.items, *(text for asked in ASKED.values() for text in asked.items)]
CAPITALS = {
    "AI", "I", "Death", "Earth", "English", "God", "Latin", "Mention", "Monday", "Norse", "Sundays",
    "Thursday", "Tuesday", "Viking", "Zen", "Friday",
}  # fmt: skip


def shingles(text, size=5):
    words = re.findall(r"[a-z']+", text.lower())
    return {tuple(words[i : i + size]) for i in range(max(1, len(words) - size + 1))}


def nearest(texts):
    """The largest Jaccard index of the shingles of two texts, and the two."""
    sets, at = [shingles(text) for text in texts], {}
    for row, own in enumerate(sets):
        for shingle in own:
            at.setdefault(shingle, []).append(row)
    pairs = Counter(pair for rows in at.values() for pair in combinations(rows, 2))
    scored = [(n / len(sets[a] | sets[b]), texts[a], texts[b]) for (a, b), n in pairs.items()]
    return max(scored, default=(0.0, "", ""))


def sentences(text):
    return len(re.findall(r"[.!?](?=\s|$)", text))


def test_there_are_as_many_as_the_readmes_say():
    assert (len(ROLES), len(TRAITS), len(QUESTIONS)) == (164, 71, 84)
    assert {len(role.prompts) for role in ROLES.values()} == {5}
    assert {len(trait.positive) for trait in TRAITS.values()} == {5}
    assert {len(trait.negative) for trait in TRAITS.values()} == {5}
    assert {len(asked) for asked in ASKED.values()} == {20}
    assert len(read_default().prompts) == 5


@pytest.mark.parametrize("texts", [TOLD, POLES, EVERY_QUESTION], ids=["roles", "traits", "asked"])
def test_no_two_texts_are_equal(texts):
    assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_no_two_prompts_of_roles_are_near_duplicates():
    assert nearest(TOLD)[0] < 0.2, nearest(TOLD)


def test_no_two_questions_are_near_duplicates():
    assert nearest(EVERY_QUESTION)[0] < 0.5, nearest(EVERY_QUESTION)


@pytest.mark.parametrize("pole", ["positive", "negative"])
def test_instructions_of_one_pole_are_no_near_duplicates(pole):
    texts = [text for trait in TRAITS.values() for text in getattr(trait, pole)]
    assert nearest(texts)[0] < 0.5, nearest(texts)


def test_the_near_duplicate_measure_sees_one_changed_word():
    changed = "You are a nurse on a busy hospital ward, used to day shifts and to calming patients."
    assert nearest([changed.replace("day", "night"), changed])[0] > 0.4


def test_prompts_are_one_to_three_sentences_that_end():
    for text in [*TOLD, *POLES]:
        assert 1 <= sentences(text) <= 3, text
        assert text[-1] in ".!?", text
        assert text == " ".join(text.split())


def test_the_two_poles_of_a_pair_are_about_as_long():
    lengths = [
        (len(yes.split()), len(no.split()))
        for trait in TRAITS.values()
        for yes, no in zip(trait.positive, trait.negative, strict=True)
    ]
    positive, negative = map(sum, zip(*lengths, strict=True))
    assert 0.9 < positive / negative < 1.1
    assert max(max(pair) / min(pair) for pair in lengths) <= 4


def test_every_role_is_described_in_one_sentence_and_named_in_its_first_prompt():
    for name, role in ROLES.items():
        assert re.fullmatch(r"(A|An|The|Death) .*\.|Death .*\.", role.description), name
        assert name.split("_")[-1] in role.prompts[0].lower() or name == "deity", role.prompts[0]


def test_every_opposite_differs_from_every_trait():
    opposites = [trait.antonym for trait in TRAITS.values()]
    assert len(set(opposites)) == len(opposites)
    assert set(opposites) & set(TRAITS) == set()


def test_no_question_that_roles_are_asked_names_a_role():
    words = [name.replace("_", " ") for name in ROLES]
    named = re.compile(rf"\b({'|'.join(words)})(s|es)?\b", re.IGNORECASE)
    assert [text for text in QUESTIONS.items if named.search(text)] == []


def test_no_prompt_has_the_name_of_a_person():
    """Inside a sentence only the listed words are capitalized."""
    for text in [*TOLD, *POLES, *QUESTIONS.items, *ASKED["any", "extraction"].items]:
        inside = re.findall(r"(?<![.!?:]\s)(?<!^)\b[A-Z][A-Za-z]*", text)
        assert set(inside) <= CAPITALS, text


@pytest.mark.parametrize("thing", [*ROLES.values(), *TRAITS.values()], ids=lambda thing: thing.name)
def test_every_rubric_has_two_slots_left_and_names_its_subject(thing):
    assert re.findall(r"\{\w*\}", thing.rubric) == ["{question}", "{answer}"]
    assert thing.name.replace("_", " ") in thing.rubric
    assert thing.description in thing.rubric


def test_braces_stand_in_the_default_alone():
    assert [text for text in [*TOLD, *POLES, *EVERY_QUESTION] if "{" in text or "}" in text] == []
    assert [text for text in read_default().prompts if "{" in text] == ["You are {model_name}."]


def test_questions_for_extraction_and_evaluation_do_not_overlap():
    for trait in ("any", *OWN):
        first, second = (set(ASKED[trait, part].items) for part in ("extraction", "evaluation"))
        assert first & second == set()
    assert set(OWN) <= set(TRAITS)


def test_everything_that_ships_makes_one_chat_each():
    roles = [read_default(), *ROLES.values()]
    chats = rollout_prompts(roles, QUESTIONS.take([0]), model_name="Qwen")
    assert len(set(chats.ids)) == len(chats) == 165 * 5
