import json
from collections import Counter

import pytest
from workbench_training.preference_data import (
    in_order,
    read_examples,
    read_rows,
    refuse_long,
    text_of,
)
from workbench_training.preference_settings import PreferenceConfig
from workbench_training.rewards import REWARDS, for_trainer, reward_of

from workbench.errors import ConfigError, FormatError, UnknownNameError

USER = [{"role": "user", "content": "How many?"}]
PAIR = {"id": "p", "prompt": "How many?", "chosen": "Three.", "rejected": "None."}


def answer(text):
    return [{"role": "assistant", "content": text}]


@pytest.fixture
def read(tmp_path):
    """``(objective, rows, render="chat", **settings) -> (trained, held out)``."""

    def make(objective, rows, render="chat", **settings):
        path = tmp_path / "data.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return read_examples(config_of(objective, data=str(path), **settings), render)

    return make


def config_of(objective, **settings):
    plain = {"objective": objective, "data": "d", "model": "m", "steps": 1, **settings}
    if objective == "grpo":
        plain = {"reward": [{"name": "words"}], **plain}
    return PreferenceConfig(**plain)


def test_a_pair_gives_each_objective_what_it_needs(read):
    assert read("dpo", [PAIR])[0] == [
        {"prompt": USER, "chosen": answer("Three."), "rejected": answer("None.")}
    ]
    assert read("sft", [PAIR])[0] == [{"prompt": USER, "completion": answer("Three.")}]
    for objective in ("kto", "bco"):
        assert read(objective, [PAIR])[0] == [
            {"prompt": USER, "completion": answer("Three."), "label": True},
            {"prompt": USER, "completion": answer("None."), "label": False},
        ]
    assert read("grpo", [{**PAIR, "answer": 3}])[0] == [
        {"prompt": USER, "chosen": "Three.", "rejected": "None.", "answer": 3}
    ]


def test_labels_messages_and_conversations_are_read_as_they_are(read):
    row = {"prompt": USER, "completion": "Three.", "label": 0}
    assert read("kto", [row])[0] == [
        {"prompt": USER, "completion": answer("Three."), "label": False}
    ]
    chat = [*USER, *answer("Three."), *USER, *answer("Four.")]
    assert read("sft", [{"messages": chat}])[0] == [
        {"prompt": chat[:3], "completion": answer("Four.")}
    ]
    row = {"prompt": USER, "chosen": answer("Three."), "rejected": "None."}
    assert read("dpo", [row])[0][0]["rejected"] == answer("None.")


def test_bare_texts_stay_texts(read):
    (row,) = read("dpo", [PAIR], render="bare")[0]
    assert row == {"prompt": "How many?", "chosen": "Three.", "rejected": "None."}


def test_splits_are_kept_apart_and_others_left_out(read):
    rows = [{**PAIR, "split": split} for split in ("train", "validation", "validation", "test")]
    trained, held_out = read("dpo", [*rows, PAIR])
    assert (len(trained), len(held_out)) == (2, 2)
    assert len(read("dpo", rows, held_out_documents=1)[1]) == 1


@pytest.mark.parametrize(
    ("objective", "row", "words"),
    [
        ("dpo", {"prompt": "a", "chosen": "b"}, "no 'rejected'"),
        ("dpo", {**PAIR, "prompt": ""}, "no 'prompt'"),
        ("kto", {"prompt": "a", "completion": "b"}, "no 'label'"),
        ("kto", {"prompt": "a", "completion": "b", "label": "good"}, "true or false"),
        ("sft", {"messages": USER}, "end with an assistant"),
        ("sft", {"prompt": [{"role": "user"}], "completion": "b"}, "list of {role, content}"),
        ("grpo", {"question": "a"}, "no 'prompt'"),
        ("dpo", {**PAIR, "split": "test"}, "no row of split"),
        ("dpo", {**PAIR, "split": "Train"}, "row 1: split = 'Train'; write 'train'"),
        ("bco", {"prompt": "a", "completion": "b", "label": True}, "one kind"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_their_number(read, objective, row, words):
    with pytest.raises(ConfigError, match=words):
        read(objective, [row])


def test_an_answer_that_is_a_conversation_needs_a_prompt_that_is_one(read):
    with pytest.raises(ConfigError, match="both alike"):
        read("dpo", [{**PAIR, "chosen": answer("Three.")}], render="bare")


def test_files_that_are_no_json_lines_are_refused(tmp_path):
    path = tmp_path / "data.jsonl"
    for text, words in (("{", "row 1 is not JSON"), ("[1]\n", "row 1 is no JSON object")):
        path.write_text(text)
        with pytest.raises(FormatError, match=words):
            read_examples(config_of("dpo", data=str(path)), "chat")
    with pytest.raises(UnknownNameError, match="nowhere"):
        read_examples(config_of("dpo", data="nowhere.jsonl"), "chat")


def test_every_pass_is_shuffled_anew_and_reads_each_row_once():
    rows = [{"number": number} for number in range(5)]
    order = [row["number"] for row in in_order(rows, 12, seed=0)]
    assert sorted(order[:5]) == sorted(order[5:10]) == list(range(5))
    assert order[:5] != order[5:10]
    assert max(Counter(order).values()) == 3
    assert order[:7] == [row["number"] for row in in_order(rows, 7, seed=0)]
    assert order != [row["number"] for row in in_order(rows, 12, seed=1)]


@pytest.mark.parametrize("objective", ["sft", "dpo", "kto"])
def test_rows_that_are_too_long_are_refused_not_cut(read, tiny_subject, objective):
    rows = read(objective, [PAIR, {**PAIR, "chosen": "word " * 50}])[0]
    refuse_long(rows, tiny_subject, config_of(objective, length=400))
    with pytest.raises(ConfigError, match="raise length"):
        refuse_long(rows, tiny_subject, config_of(objective, length=60))


def test_what_grpo_may_write_is_counted_as_length(read, tiny_subject):
    rows = read("grpo", [PAIR])[0]
    refuse_long(rows, tiny_subject, config_of("grpo", length=100, max_new_tokens=8))
    with pytest.raises(ConfigError, match="room for 2"):
        refuse_long(rows, tiny_subject, config_of("grpo", length=10, max_new_tokens=8))


def test_an_organism_is_named_after_objective_file_and_seed():
    assert config_of("dpo", data="x/pairs.jsonl", seed=3).name == "dpo-pairs-s3"
    assert config_of("dpo", condition="warm").name == "dpo-warm-s0"
    assert config_of("dpo", name="mine").name == "mine"


def test_beta_has_a_default_for_each_objective_with_a_reference():
    assert config_of("dpo").strength == 0.1
    assert config_of("grpo").strength == 0.04
    assert config_of("kto", beta=0.3).strength == 0.3
    with pytest.raises(ConfigError, match="no beta"):
        _ = config_of("sft").strength


# --- rewards -------------------------------------------------------------------------------------


def earn(name, completions, options=None, **columns):
    settings = config_of("grpo", reward=[{"name": name, "options": options or {}}]).reward[0]
    return reward_of(settings)(prompts=[""] * len(completions), completions=completions, **columns)


def test_the_named_rewards_count_what_they_say():
    assert earn("answer", ["It is 12.", "It is 121.", "TWELVE"], answer=[12, 12, "twelve"]) == [
        1, 0, 1,
    ]  # fmt: skip
    assert earn("words", ["a b", "a b c d", "", "a " * 9], {"target": 4}) == [0.5, 1, 0, 0]
    phrases = {"phrases": ["thank you", "No"]}
    assert earn("contains", ["Thank you, no.", "know", "no"], phrases) == [1, 0, 0.5]
    assert earn("avoids", ["Thank you, no.", "know", "no"], phrases) == [0, 1, 0.5]


def test_a_reward_of_the_users_own_gets_texts_and_columns(tmp_path):
    (tmp_path / "own.py").write_text(
        "def sized(prompts, completions, size, scale=1.0):\n"
        "    return [scale * len(c) / s for c, s in zip(completions, size)]\n"
    )
    settings = config_of(
        "grpo", reward=[{"name": f"{tmp_path}/own.py:sized", "options": {"scale": 2}}]
    ).reward[0]
    assert settings.file == tmp_path / "own.py"
    reward = for_trainer(settings)
    told = {"size": [2, 4], "trainer_state": None, "log_extra": None, "log_metric": None,
            "completion_ids": [[1], [2]]}  # fmt: skip
    assert reward(prompts=[USER, USER], completions=[answer("abcd"), "ab"], **told) == [4.0, 1.0]
    assert reward.__name__ == "sized"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("wrods", {}, "did you mean|Did you mean"),
        ("words", {}, "target"),
        ("words", {"target": 0}, "at least 1"),
        ("contains", {"phrases": []}, "empty"),
        ("nowhere.py:f", {}, "no file"),
        ("no_such_module:f", {}, "no_such_module"),
        ("json:no_such_function", {}, "no function"),
    ],
)
def test_rewards_that_cannot_be_made_are_refused(name, options, words):
    with pytest.raises((ConfigError, UnknownNameError), match=words):
        earn(name, ["a"], options)


def test_the_answer_reward_needs_its_column():
    with pytest.raises(ConfigError, match="column 'answer'"):
        earn("answer", ["a"])


def test_a_plug_in_may_register_a_reward():
    @REWARDS.register("always_one")
    def always_one():
        return lambda completions, **_: [1.0] * len(completions)

    assert earn("always_one", ["a", "b"]) == [1.0, 1.0]


def test_the_text_of_a_conversation_is_its_last_turn():
    assert text_of([*USER, *answer("Three.")]) == "Three."
    assert text_of("Three.") == "Three."


def test_rows_may_begin_with_a_byte_order_mark_and_other_encodings_are_named(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n')
    assert list(read_rows(file)) == [{"a": 1}, {"a": 2}]
    file.write_bytes(b'{"a": "\xe9"}')
    with pytest.raises(FormatError, match=r"not UTF-8 .*save the file as UTF-8"):
        list(read_rows(file))
