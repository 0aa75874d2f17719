import math

import pytest

from workbench.chat import ChatModel, ChatRequest
from workbench.chat.local import LocalChat
from workbench.errors import ConfigError


def asks(count=3, **settings):
    given = {"max_tokens": 6, "temperature": 1.0, **settings}
    texts = ("the city", "of the answer is true", "a")
    return [ChatRequest.of(texts[n % 3], seed=n, **given) for n in range(count)]


def test_a_loaded_model_answers_each_request_the_same_in_any_company(tiny_subject):
    chat = LocalChat(tiny_subject)
    assert isinstance(chat, ChatModel)
    together = chat.ask(asks())
    alone = [chat.ask([request])[0] for request in reversed(asks())][::-1]
    assert together == alone
    assert len({reply.text for reply in together}) == 3
    assert chat.counts["asked"] == 6
    assert all(reply.read > 5 for reply in together)


def test_another_seed_is_another_answer_and_the_same_request_is_asked_once(tiny_subject):
    chat = LocalChat(tiny_subject)
    first, second = (ChatRequest.of("the city", temperature=1.0, max_tokens=6, seed=s)
                     for s in (0, 1))  # fmt: skip
    replies = chat.ask([first, second, first])
    assert replies[0] == replies[2] != replies[1]
    assert chat.counts["asked"] == 2


def test_an_answer_that_uses_up_its_tokens_is_cut_short(tiny_subject):
    (reply,) = LocalChat(tiny_subject).ask(asks(1, temperature=0.0))
    assert reply.reason == "cut short"


def test_replies_are_kept_in_a_file(tiny_subject, tmp_path):
    file = tmp_path / "replies.sqlite"
    first = LocalChat(tiny_subject, replies=file).ask(asks())
    again = LocalChat(tiny_subject, replies=file)
    assert again.ask(asks()) == first
    assert again.counts == {"kept": 3}


def test_the_likeliest_first_tokens_are_told_and_all_of_them_are_one(tiny_subject):
    (reply,) = LocalChat(tiny_subject).ask(asks(1, top=3))
    assert 1 <= len(reply.top) <= 3
    assert max(reply.top.values()) < 0
    (reply,) = LocalChat(tiny_subject).ask(asks(1, top=10_000))
    assert sum(map(math.exp, reply.top.values())) == pytest.approx(1, abs=1e-4)


def test_a_model_without_a_chat_template_is_refused(subject_of):
    with pytest.raises(ConfigError, match="template"):
        LocalChat(subject_of(template="none")).ask(asks(1))
