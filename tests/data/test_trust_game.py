"""Trust game prompts differ between counterparts in the counterpart clause and nothing else."""

import re
from collections import Counter

import pytest

from workbench.data import data_path
from workbench.data.rows import dump_rows, read_rows
from workbench.data.trust_game.generate import read_table, trust_game_rows

ROWS = read_rows(data_path("trust_game"))
TABLE = read_table()
FRAMES = [frame["name"] for frame in TABLE["frame"]]
NOUNS = {
    "person": "a person",
    "ai_user": "a regular user of AI assistants",
    "ai_agent": "an AI agent",
}
AGENTIVE = {
    "decide",
    "choose",
    "pick",
    "want",
    "keep",
    "give",
    "send",
    "share",
    "select",
    "recipient",
}


def prompt(row):
    return row["messages"][0]["content"]


def prompts(branch, frame, order):
    key = (branch, frame, order)
    return {
        row["counterpart"]: prompt(row)
        for row in ROWS
        if (row["branch"], row["frame"], row["order"]) == key
    }


CELLS = [
    (branch, frame, order)
    for frame in FRAMES
    for branch, order in (
        ("transfer", "single"),
        ("expected_return", "forward"),
        ("expected_return", "reversed"),
    )
]


def test_the_committed_file_is_what_the_generator_writes():
    assert data_path("trust_game").read_text(encoding="utf-8") == dump_rows(trust_game_rows())


def test_twelve_frames_meet_five_counterparts_and_four_of_them_in_two_orders():
    counts = Counter((row["branch"], row["counterpart"], row["order"]) for row in ROWS)
    expected = {("transfer", name, "single"): 12 for name in [*NOUNS, "device", "dictator"]}
    for name in [*NOUNS, "device"]:
        for order in ("forward", "reversed"):
            expected["expected_return", name, order] = 12
    assert counts == expected


def test_a_prompt_is_one_short_user_message():
    for row in ROWS:
        assert [message["role"] for message in row["messages"]] == ["user"]
        assert len(prompt(row).split()) <= 110
        assert "{" not in prompt(row)


@pytest.mark.parametrize("cell", CELLS)
def test_person_user_and_agent_differ_in_one_noun(cell):
    texts = prompts(*cell)
    assert {texts[name].count(noun) for name, noun in NOUNS.items()} == {1}
    assert len({texts[name].replace(noun, "NOUN") for name, noun in NOUNS.items()}) == 1


@pytest.mark.parametrize("cell", CELLS)
def test_all_counterparts_differ_in_one_clause(cell):
    texts = prompts(*cell)
    clauses = TABLE["counterparts"]
    assert {texts[name].count(clauses[name]) for name in texts} == {1}
    assert len({texts[name].replace(clauses[name], "CLAUSE") for name in texts}) == 1


@pytest.mark.parametrize("frame", FRAMES)
def test_a_dictator_prompt_has_no_return_clause(frame):
    text = prompts("transfer", frame, "single")["dictator"].lower()
    assert not re.search(r"return|\bback\b|decides|share|repay", text)


@pytest.mark.parametrize("frame", FRAMES)
def test_the_device_draws_and_does_nothing_else(frame):
    assert "a random draw decides the share returned" in TABLE["counterparts"]["device"]
    rest = TABLE["counterparts"]["device"].replace("a random draw decides the share returned", "")
    stems = {word.rstrip("s.,") for word in rest.lower().split()}
    assert not stems & AGENTIVE
    assert TABLE["counterparts"]["device"] in prompts("transfer", frame, "single")["device"]


def test_scenes_and_rules_name_nobody_who_could_return_anything():
    people = r"\b(person|people|partner|player|someone|somebody|he|she|user|other side)\b"
    for frame in TABLE["frame"]:
        text = " ".join((frame["scene"], frame["rules"], frame["question"]))
        assert not re.search(people, text.lower())
        assert not re.search(r"return|\bback\b|random|\bAI\b", text)
        assert "tripled" in text


def test_transfer_answers_are_the_whole_dollars_from_nothing_to_ten():
    for row in ROWS:
        if row["branch"] == "transfer":
            assert row["values"] == {str(amount): float(amount) for amount in range(11)}
            assert prompt(row).endswith("Answer with the number of dollars only.")
            assert row["prefix"] == "Answer: "


def test_expected_return_letters_stand_for_the_middle_of_the_range_shown_beside_them():
    for row in ROWS:
        if row["branch"] == "expected_return":
            shown = re.findall(r"^([A-E])\. \$(\d+) to \$(\d+)$", prompt(row), flags=re.MULTILINE)
            middles = {letter: (int(low) + int(high)) / 2 for letter, low, high in shown}
            assert row["values"] == middles
            assert row["prefix"] == ""
            assert sorted(middles.values()) == [3, 9, 15, 21, 27]


def test_a_reversed_order_mirrors_the_forward_one():
    values = {row["id"]: row["values"] for row in ROWS}
    for key, forward in values.items():
        if key.endswith(":forward"):
            reverse = values[key.replace(":forward", ":reversed")]
            assert list(reverse.values()) == list(forward.values())[::-1]
            assert list(forward.values()) == sorted(forward.values())


def test_frames_are_worded_apart():
    for part in ("scene", "rules", "question"):
        assert len({frame[part] for frame in TABLE["frame"]}) == 12


def test_every_row_belongs_to_bank_v0_and_rests_on_its_frame():
    assert {row["bank_id"] for row in ROWS} == {"v0"}
    assert {row["fact"] for row in ROWS} == {f"trust_game:v0:{frame}" for frame in FRAMES}
