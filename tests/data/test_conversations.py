"""The shipped conversations: three of each kind, turns in order, words that everybody may read."""

from collections import Counter

from workbench.library import open_prompts


def test_three_conversations_of_each_kind_alternate_and_end_with_an_answer():
    found = open_prompts("conversations")
    assert Counter(found.column("kind").tolist()) == {"task": 3, "self": 3}
    for chat in found.items:
        assert [message["role"] for message in chat] == ["user", "assistant"] * 4


def test_no_turn_stands_twice_and_answers_are_of_like_length():
    found = open_prompts("conversations")
    turns = [message["content"] for chat in found.items for message in chat]
    assert len(set(turns)) == len(turns)
    words = {
        kind: [
            len(message["content"].split())
            for chat in found.where(kind=kind).items
            for message in chat[1::2]
        ]
        for kind in ("task", "self")
    }
    means = {kind: sum(counts) / len(counts) for kind, counts in words.items()}
    assert abs(means["task"] - means["self"]) < 3
