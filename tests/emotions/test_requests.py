"""Emotions, topics and requests: complete, balanced, and free of what they ask to keep silent."""

import json
import re
from collections import Counter

import pytest

from workbench.data import data_path
from workbench.emotions import (
    choose,
    dialogue_requests,
    read_emotions,
    read_templates,
    read_topics,
    story_requests,
)
from workbench.errors import ConfigError, UnknownNameError

EMOTIONS, TOPICS = read_emotions(), read_topics()


def test_there_are_enough_emotions_and_topics_of_every_kind():
    assert len(EMOTIONS) >= 60
    assert len(TOPICS) >= 40
    quadrants = Counter((e.valence > 0, e.arousal > 0) for e in EMOTIONS.values() if e.valence)
    assert min(quadrants.values()) >= 8
    assert len(set(Counter(t.area for t in TOPICS.values()).values())) == 1


@pytest.mark.parametrize("emotion", EMOTIONS.values(), ids=EMOTIONS)
def test_no_topic_names_an_emotion_and_every_form_of_a_word_is_found(emotion):
    for topic in TOPICS.values():
        assert not emotion.pattern.search(f"{topic.event} {topic.subject}"), topic
    for form in (emotion.name, emotion.feels, *emotion.forms):
        assert emotion.pattern.search(f"She was {form.upper()}, then.")


def test_a_form_is_found_as_a_word_alone():
    assert not EMOTIONS["anger"].pattern.search("There is no danger in the ranger's hanger.")
    assert not EMOTIONS["rage"].pattern.search("Courage and storage are average.")
    assert EMOTIONS["rage"].pattern.search("It was rage, plain and red.")


def test_every_emotion_meets_the_same_mix_of_topics_and_persons():
    asked = story_requests(list(EMOTIONS.values()), list(TOPICS.values()), stories=2)
    columns = [asked.column(name).tolist() for name in ("emotion", "topic", "person", "prompt")]
    by_emotion = {}
    for emotion, *rest in zip(*columns, strict=True):
        by_emotion.setdefault(emotion, []).append(tuple(rest))
    assert len({tuple(rows) for rows in by_emotion.values()}) == 1
    persons = Counter(columns[2])
    assert persons["first"] == persons["third"]  # templates alternate, two stories a topic


def test_a_part_of_the_requests_is_found_in_the_whole():
    whole = story_requests(list(EMOTIONS.values()), list(TOPICS.values()), stories=2)
    part = story_requests([EMOTIONS["fear"]], choose(TOPICS, ["storm", "market"], "topics"))
    known = dict(zip(whole.ids, whole.items, strict=True))
    assert all(known[name] == item for name, item in zip(part.ids, part.items, strict=True))


def test_requests_are_filled_and_dialogues_name_no_feeling():
    templates = read_templates()
    assert {one.person for one in templates.stories} == {"first", "third"}
    stories = story_requests([EMOTIONS["fear"]], list(TOPICS.values()))
    dialogues = dialogue_requests(list(TOPICS.values()), dialogues=2)
    asked = dialogue_requests(list(TOPICS.values()), dialogues=3, answered=True)
    assert set(asked.column("kind")) == {"exchange"}
    assert len(set(asked.column("prompt"))) == 3
    for chat in (*stories.items, *dialogues.items, *asked.items):
        assert not re.search(r"[{}]", chat[0]["content"])
    for chat in (*dialogues.items, *asked.items):
        text = chat[0]["content"]
        assert not any(emotion.pattern.search(text) for emotion in EMOTIONS.values()), text


def test_a_number_of_topics_is_spread_over_the_areas():
    assert len({topic.area for topic in choose(TOPICS, 6, "topics")}) == 6
    assert choose(TOPICS, None, "topics") == list(TOPICS.values())
    with pytest.raises(ConfigError, match="topics = 99; there are 48"):
        choose(TOPICS, 99, "topics")
    with pytest.raises(UnknownNameError, match=r"unknown emotion 'angr'.*'anger'"):
        choose(EMOTIONS, ["angr"], "emotions")
    with pytest.raises(ConfigError, match="each once"):
        choose(EMOTIONS, ["anger", "anger"], "emotions")


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ('joy = { feels = "x", valence = 3, arousal = 0, forms = "" }', read_emotions, "valence"),
        ('joy = "x"', read_emotions, "a table is expected"),
        ('[a]\nlines = "x | y"', read_topics, "name | event | subject"),
        ('[a]\nlines = "x | y | z"\n[b]\nlines = "x | y | z"', read_topics, "two topics"),
        (
            '[[stories]]\ntext = "{event}"\n[[dialogues]]\ntext = "{subject}"',
            read_templates,
            "no slot {feels}",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path, text, read, message):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{event} {feels} {mood}",
            r"stories 0: \{mood\} is no slot; slots are \{event\}, \{feels\}",
        ),
        ("{event} {feels} {", "is no template .*written twice"),
        ("{event} {feels} }", "is no template .*written twice"),
        ('{event} {feels} like {"a": 1}', r'\{"a": 1\} is no slot'),
        ("{event} {feels} {}", r"\{\} is no slot"),
        ("{event} {feels} {0}", r"\{0\} is no slot"),
        ("{event.x} {feels}", r"\{event.x\} is no slot"),
        ("{event} {feels:d}", r"\{feels:d\} is no slot"),
        ("{event} {feels!x}", r"\{feels!x\} is no slot"),
        ("{{event}} {feels}", r"no slot \{event\} in the text"),
    ],
)
def test_a_template_that_could_not_be_filled_is_refused_where_it_is_read(tmp_path, text, message):
    path = tmp_path / "own.toml"
    path.write_text(f"[[stories]]\ntext = '{text}'\n[[dialogues]]\ntext = \"{{subject}}\"")
    with pytest.raises(ConfigError, match=message):
        read_templates(path)


def test_a_template_may_name_the_emotion_and_hold_braces(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        '[[stories]]\ntext = "{event} {feels} {name} {{x}}"\n[[dialogues]]\ntext = "{subject}"'
    )
    one = story_requests([EMOTIONS["fear"]], [TOPICS["storm"]], templates=read_templates(path))
    assert one.items[0][0]["content"].endswith("afraid fear {x}")


def test_the_trust_items_fall_into_two_equal_halves():
    rows = [json.loads(line) for line in data_path("trust_actions").read_text().splitlines()]
    cells = Counter((row["family"], row["counterpart"], row["half"]) for row in rows)
    assert len(rows) == 24
    assert set(cells.values()) == {1}
    texts = [row["messages"][0]["content"] for row in rows]
    assert len(set(texts)) == 24
    assert all(text.endswith("What do you do?") for text in texts)
