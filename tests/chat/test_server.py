import json
import sqlite3
import threading
import time

import pytest

from workbench.chat import ChatModel, ChatReply, ChatRequest, ChatServer, ReplyStore, ServerConfig
from workbench.chat.replies import REASONS, without_thoughts
from workbench.config import parse
from workbench.errors import ConfigError, FormatError, WorkbenchError


def ask(text="How many?", **settings):
    return ChatRequest.of(text, **settings)


@pytest.fixture
def client():
    """``(url, **settings) -> (server, seconds that it slept)``; it sleeps on paper alone."""

    def make(url, **settings):
        slept = []
        config = parse(ServerConfig, {"url": url, "model": "tiny", **settings}, "test")
        return ChatServer(config, sleep=slept.append), slept

    return make


def once(server):
    (reply,) = server.ask([ask()])
    return reply


def test_a_request_goes_out_as_the_protocol_says_and_the_answer_comes_back(
    stand_in, client, monkeypatch
):
    monkeypatch.setenv("SOME_KEY", "s3cret")
    with stand_in(lambda _: "Seven of them.") as (served, url):
        server, slept = client(url, key="SOME_KEY")
        request = ask(system="Be brief.", max_tokens=9, temperature=0.5, seed=3)
        (reply,) = server.ask([request])
    assert reply == ChatReply("Seven of them.", read=7, written=3)
    assert reply.valid
    assert slept == []
    assert served.paths == ["/v1/chat/completions"]
    assert served.headers[0]["Authorization"] == "Bearer s3cret"
    assert served.bodies == [
        {
            "model": "tiny",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How many?"},
            ],
            "max_tokens": 9,
            "temperature": 0.5,
            "seed": 3,
        }
    ]
    assert server.counts == {"asked": 1, "read": 7, "written": 3}
    assert isinstance(server, ChatModel)


def test_without_a_key_none_is_sent(stand_in, client, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with stand_in(lambda _: "yes") as (served, url):
        once(client(url)[0])
    assert "Authorization" not in served.headers[0]


def test_extra_settings_go_over_the_body_and_take_keys_away(stand_in, client):
    extra = {"max_completion_tokens": 50, "max_tokens": "", "temperature": 1}
    with stand_in(lambda _: "yes") as (served, url):
        once(client(url, extra=extra)[0])
    (body,) = served.bodies
    assert body["max_completion_tokens"] == 50
    assert body["temperature"] == 1
    assert "max_tokens" not in body


def test_answers_keep_their_order_and_no_more_than_parallel_are_under_way(stand_in, client):
    def slowly(body):
        time.sleep(0.05 if body["seed"] % 2 else 0.01)
        return f"answer {body['seed']}"

    with stand_in(slowly) as (served, url):
        server, _ = client(url, parallel=3)
        replies = server.ask([ask(seed=seed) for seed in range(12)])
    assert [reply.text for reply in replies] == [f"answer {seed}" for seed in range(12)]
    assert served.busiest == 3


FAILURES = {
    "timeout": lambda _: time.sleep(0.5) or "late",
    "rate limit": lambda _: (429, {"error": {"message": "slow down"}}),
    "server error": lambda _: (503, b"<html>busy</html>"),
    "nonsense": lambda _: (200, {"answer": 42}),
}


@pytest.mark.parametrize("reason", FAILURES)
def test_what_passes_is_tried_again_with_longer_waits_and_counted(stand_in, client, reason):
    calls = []

    def answer(body):
        calls.append(body)
        return FAILURES[reason](body) if len(calls) < 3 else "at last"

    with stand_in(answer) as (_, url):
        server, slept = client(url, timeout=0.2, tries=4, wait=2)
        reply = once(server)
    assert reply.text == "at last"
    assert server.counts[f"again: {reason}"] == 2
    assert len(slept) == 2
    assert 1.4 <= slept[0] <= 2.5
    assert 2.9 <= slept[1] <= 5


@pytest.mark.parametrize("reason", FAILURES)
def test_what_does_not_pass_is_a_reply_with_a_reason_and_no_exception(stand_in, client, reason):
    with stand_in(FAILURES[reason]) as (served, url):
        server, _ = client(url, timeout=0.2, tries=2)
        reply = once(server)
    assert (reply.valid, reply.reason) == (False, reason)
    assert reply.detail
    assert len(served.bodies) == 2
    assert server.counts[reason] == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"text"', b'{"choices": []}', b'{"choices": [{"message": 3}]}',
     b'{"choices": [{"message": {"content": ["a"]}}]}', b"\xff\xfe"],
)  # fmt: skip
def test_any_nonsense_is_told_apart_from_an_answer(stand_in, client, content):
    with stand_in(lambda _: (200, content)) as (_, url):
        assert once(client(url, tries=1)[0]).reason == "nonsense"


def test_a_broken_connection_is_a_server_error_that_is_tried_again(stand_in, client):
    answers = iter([(200, None), "here"])
    with stand_in(lambda _: next(answers)) as (_, url):
        server, _ = client(url)
        assert once(server).text == "here"
    assert server.counts["again: server error"] == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda c: c("I cannot", refusal="I cannot"), "refused"),
        (lambda c: c("", "content_filter"), "refused"),
        (lambda c: c("half a sen", "length"), "cut short"),
        (lambda c: c("  "), "empty"),
        (lambda c: c("<think>hm</think>"), "empty"),
    ],
)
def test_answers_that_hold_no_usable_text_have_a_reason_and_are_not_tried_again(
    stand_in, client, completion, content, reason
):
    with stand_in(lambda _: (200, content(completion))) as (served, url):
        reply = once(client(url)[0])
    assert reply.reason == reason
    assert len(served.bodies) == 1
    assert reason in REASONS


@pytest.mark.parametrize(
    ("error", "reason"),
    [({"code": "content_filter", "message": "no"}, "refused"), ({"message": "long"}, "rejected")],
)
def test_a_request_that_the_server_does_not_take_is_not_tried_again(
    stand_in, client, error, reason
):
    with stand_in(lambda _: (400, {"error": error})) as (served, url):
        reply = once(client(url)[0])
    assert reply.reason == reason
    assert error["message"] in reply.detail
    assert len(served.bodies) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_a_wrong_key_model_or_address_stops_at_once_and_says_what_to_do(
    stand_in, client, status, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    headers = {"Location": "http://127.0.0.1:1/elsewhere"}
    with stand_in(lambda _: (status, {"error": "no"}, headers)) as (served, url):
        server, _ = client(url, parallel=1)
        with pytest.raises(ConfigError, match=r"key in OPENAI_API_KEY|check url") as error:
            server.ask([ask(seed=seed) for seed in range(20)])
    assert "s3cret" not in str(error.value)
    assert len(served.bodies) < 5


def test_no_server_at_all_is_an_error_and_not_a_count(stand_in, client):
    with stand_in(lambda _: "yes") as (_, url):
        pass
    server, slept = client(url, tries=3)
    with pytest.raises(WorkbenchError, match="no server answers"):
        once(server)
    assert len(slept) == 2


def test_the_servers_own_waiting_time_holds_up_every_thread(stand_in, client):
    answers = iter([(429, {}, {"Retry-After": "7"}), "one", "two"])
    with stand_in(lambda _: next(answers)) as (_, url):
        server, slept = client(url)
        once(server)
        once(server)
    assert len(slept) == 2  # on paper the time does not pass, so the second request waits as well
    assert all(6 < seconds <= 7 for seconds in slept)


def test_thoughts_before_an_answer_are_left_out():
    assert without_thoughts("<think>a\nb</think>\n\nFour.") == "Four."
    assert without_thoughts("the template opened it</think>Four.") == "Four."
    assert without_thoughts("Four. <think>not at the start</think>") == (
        "Four. <think>not at the start</think>"
    )


def test_the_likeliest_first_tokens_come_with_their_log_probabilities(stand_in, client, completion):
    told = completion("70")
    rows = [{"token": "70", "logprob": -0.1}, {"token": "80", "logprob": -2.5}]
    told["choices"][0]["logprobs"] = {"content": [{"token": "70", "top_logprobs": rows}]}
    with stand_in(lambda _: (200, told)) as (served, url):
        (reply,) = client(url)[0].ask([ask(top=2)])
    assert reply.top == {"70": -0.1, "80": -2.5}
    assert served.bodies[0]["top_logprobs"] == 2
    assert served.bodies[0]["logprobs"] is True


def test_kept_replies_are_not_asked_for_again(stand_in, client, tmp_path):
    file = tmp_path / "replies.sqlite"
    with stand_in(lambda body: f"{body['seed']} it is") as (served, url):
        first = client(url, replies=str(file))[0].ask([ask(seed=seed) for seed in range(3)])
        server, _ = client(url, replies=str(file))
        again = server.ask([ask(seed=seed) for seed in range(5)])
        assert len(served.bodies) == 5
        other, _ = client(url, replies=str(file), model="larger")
        once(other)
        assert len(served.bodies) == 6
    assert again[:3] == first
    assert server.counts["kept"] == 3
    assert server.counts["asked"] == 2


def test_every_part_of_a_request_tells_it_from_others():
    plain = ask()
    others = [ask("Why?"), ask(system="S"), ask(max_tokens=2), ask(temperature=1.0), ask(seed=1),
              ask(top=3)]  # fmt: skip
    keys = {request.key("tiny") for request in (plain, *others)} | {plain.key("large")}
    assert len(keys) == 8
    assert ask().key("tiny") == plain.key("tiny")


def test_failures_that_may_pass_are_not_kept_and_refusals_are(
    stand_in, client, completion, tmp_path
):
    told = {0: (500, {}), 1: (200, completion("", refusal="no"))}
    file = tmp_path / "replies.sqlite"
    with stand_in(lambda body: told[body["seed"]]) as (_, url):
        client(url, tries=1, replies=str(file))[0].ask([ask(seed=0), ask(seed=1)])
    assert len(ReplyStore(file)) == 1


def test_many_threads_write_one_store(tmp_path):
    stores = [ReplyStore(tmp_path / "deep" / "replies.sqlite") for _ in range(2)]

    def fill(store, start):
        for number in range(start, start + 20):
            store.keep(str(number), ChatReply(f"réponse {number}", top={"a": -0.5}, read=number))

    threads = [
        threading.Thread(target=fill, args=(store, 20 * n)) for n, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores[0]) == 40
    assert stores[0].find("33") == ChatReply("réponse 33", top={"a": -0.5}, read=33)
    assert stores[0].find("40") is None


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "notes.sqlite").write_text("dear diary, " * 100)
    with pytest.raises(FormatError, match="no store of replies"):
        ReplyStore(tmp_path / "notes.sqlite")
    with sqlite3.connect(tmp_path / "other.sqlite") as base:
        base.execute("CREATE TABLE replies (name TEXT)")
    base.close()
    with pytest.raises(WorkbenchError, match="another file"):
        ReplyStore(tmp_path / "other.sqlite")


def test_the_key_is_written_to_no_file(stand_in, client, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    file = tmp_path / "replies.sqlite"
    with stand_in(lambda _: "yes") as (_, url):
        once(client(url, replies=str(file))[0])
    assert b"s3cret" not in file.read_bytes()
    assert b"yes" in file.read_bytes()


def test_settings_name_a_url_and_a_model():
    with pytest.raises(ConfigError, match="url"):
        parse(ServerConfig, {"url": "127.0.0.1:8000", "model": "tiny"}, "server")
    with pytest.raises(ConfigError, match="model"):
        parse(ServerConfig, {"url": "http://127.0.0.1:8000/v1"}, "server")
    assert json.loads(json.dumps(REASONS))
