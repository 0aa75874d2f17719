"""A pasted conversation: what is read, and why something is none."""

import json

import pytest
from workbench_apps.conversation import MOST_CHARACTERS, read_conversation
from workbench_apps.persona_capped import prompt_of

from workbench.errors import ConfigError

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Two things:\n\nNote: this is text."},
    {"role": "assistant", "content": "Yes."},
]


@pytest.mark.parametrize(
    "text",
    [
        "System: Be brief.\nUser: Two things:\n\nNote: this is text.\nAssistant: Yes.",
        "system: Be brief.\n**Human:** Two things:\n\nNote: this is text.\n  AI:Yes.\n\n",
        json.dumps(CHAT),
        json.dumps({"messages": CHAT, "id": 3}),
    ],
)
def test_the_same_chat_is_read_from_every_form(text):
    assert read_conversation(text) == CHAT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  \n", "nothing was pasted"),
        ("x" * (MOST_CHARACTERS + 1), "20,001 characters"),
        ("Hello there", "line 1 is nobody's"),
        ("User: Hello", "no turn is the assistant's"),
        ("User:\nAssistant: Yes", r"turn 1 \(user\) is empty"),
        ("[1, 2", "begins like JSON"),
        ('{"role": "user"}', "list of {role, content}"),
        ('[{"role": "pirate", "content": "Arr"}]', "list of {role, content}"),
        ('[{"role": "user", "content": 3}]', "list of {role, content}"),
        ("[]", "no turn is the assistant's"),
    ],
)
def test_what_is_no_conversation_says_why(text, words):
    with pytest.raises(ConfigError, match=words):
        read_conversation(text)


def test_a_prompt_is_one_user_turn_or_a_chat_that_the_user_ends():
    assert prompt_of(" What: now? ") == [{"role": "user", "content": "What: now?"}]
    assert prompt_of(json.dumps(CHAT[:2])) == CHAT[:2]
    with pytest.raises(ConfigError, match="the last turn is the assistant's"):
        prompt_of(json.dumps(CHAT))
    with pytest.raises(ConfigError, match="nothing to answer"):
        prompt_of(" \n")
