"""Every role or trait meets every question once, under an id that nothing else changes."""

import pytest

from workbench.errors import ConfigError
from workbench.personas import Role, Trait, rollout_prompts, trait_prompts
from workbench.prompts import PromptSet

RUBRIC = "{question} {answer}"
NURSE = Role("nurse", "", ("You nurse.", "Heal."), RUBRIC)
CROW = Role("crow", "", ("You caw.", "Fly."), RUBRIC)
DEFAULT = Role("default", "", ("", "You are {model_name}."), "")
CURT = Trait("curt", "open_handed", ("Cut.", "Snip."), ("Go on.", "Add."), RUBRIC)
QUESTIONS = PromptSet(("a", "b"), ("Who?", "Why {role}?"))


def test_every_role_prompt_and_question_meet_once_with_their_columns():
    chats = rollout_prompts([NURSE, CROW], QUESTIONS)
    assert chats.ids[:3] == ("nurse/0/a", "nurse/0/b", "nurse/1/a")
    assert len(chats) == 8
    columns = [chats.column(name) for name in ("role", "prompt", "question")]
    assert chats.ids == tuple("/".join(map(str, row)) for row in zip(*columns, strict=True))
    assert chats.items[1] == (
        {"role": "system", "content": "You nurse."},
        {"role": "user", "content": "Why {role}?"},
    )


def test_the_chat_of_an_id_does_not_depend_on_what_else_is_asked():
    whole = rollout_prompts({"n": NURSE, "c": CROW}, QUESTIONS)
    part = rollout_prompts([CROW], QUESTIONS.take([1]), prompts_per_role=1)
    assert part.ids == ("crow/0/b",)
    assert part.items[0] == dict(zip(whole.ids, whole.items, strict=True))["crow/0/b"]


def test_without_a_system_role_the_instruction_and_a_blank_line_come_first():
    chats = rollout_prompts([NURSE], QUESTIONS, prompts_per_role=1, system=False)
    assert chats.items[0] == ({"role": "user", "content": "You nurse.\n\nWho?"},)


@pytest.mark.parametrize("system", [True, False])
def test_an_empty_prompt_leaves_the_question_alone(system):
    chats = rollout_prompts([DEFAULT], QUESTIONS, model_name="Qwen", system=system)
    assert chats.items[0] == ({"role": "user", "content": "Who?"},)
    assert "You are Qwen." in chats.items[2][0]["content"]


def test_a_model_name_that_is_needed_must_be_given():
    assert len(rollout_prompts([DEFAULT], QUESTIONS, prompts_per_role=1)) == 2
    with pytest.raises(ValueError, match="give model_name"):
        rollout_prompts([DEFAULT], QUESTIONS)


@pytest.mark.parametrize("count", [0, 3])
def test_more_prompts_than_there_are_is_an_error(count):
    with pytest.raises(ConfigError, match=rf"'nurse' has 2 prompts, {count} wanted"):
        rollout_prompts([NURSE], QUESTIONS, prompts_per_role=count)
    with pytest.raises(ConfigError, match="'curt' has 2 pairs"):
        trait_prompts([CURT], QUESTIONS, pairs_per_trait=count)


def test_a_role_that_stands_twice_is_an_error():
    with pytest.raises(ConfigError, match="nurse/0/a"):
        rollout_prompts([NURSE, NURSE], QUESTIONS)


def test_questions_must_be_texts():
    chats = rollout_prompts([NURSE], QUESTIONS)
    with pytest.raises(ConfigError, match="give questions as texts"):
        rollout_prompts([CROW], chats)


def test_the_poles_of_a_pair_differ_in_the_instruction_alone():
    chats = trait_prompts([CURT], QUESTIONS)
    assert len(chats) == 2 * 2 * 2
    assert chats.ids[:2] == ("curt/0/a/positive", "curt/0/a/negative")
    assert list(chats.column("pole")) == [1, -1] * 4
    assert list(chats.column("pair")) == ["0/a", "0/a", "0/b", "0/b", "1/a", "1/a", "1/b", "1/b"]
    for first, second in zip(chats.items[::2], chats.items[1::2], strict=True):
        assert first[1] == second[1]
        assert first[0] != second[0]
    assert chats.where(prompt=1, pole=-1).items[0][0]["content"] == "Add."


@pytest.mark.parametrize(
    ("antonym", "said"), [("open_handed", "an open handed"), ("", "a helpful")]
)
def test_an_assistant_is_named_by_the_trait_its_antonym_or_helpful(antonym, said):
    trait = Trait("curt", antonym, ("Cut.",), ("Go on.",), RUBRIC)
    first, second = trait_prompts([trait], QUESTIONS.take([0]), assistant=True).items
    assert first[0]["content"] == "You are a curt assistant. Cut."
    assert second[0]["content"] == f"You are {said} assistant. Go on."


@pytest.mark.parametrize(
    "said",
    ["an honest", "a humorous", "an unassuming", "a utilitarian", "a euphoric", "an obedient"],
)
def test_the_article_follows_the_sound(said):
    trait = Trait(said.split()[1], "", ("Be.",), ("Be not.",), RUBRIC)
    first = trait_prompts([trait], QUESTIONS.take([0]), assistant=True).items[0]
    assert first[0]["content"] == f"You are {said} assistant. Be."
