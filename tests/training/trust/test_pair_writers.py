"""Pairs by a language model: mended by the rules, reviewed without labels, counted when lost."""

import re
from collections import Counter

import pytest
from workbench_training.trust.job import write_pairs
from workbench_training.trust.plan import plan_pairs
from workbench_training.trust.settings import TrustPairsConfig
from workbench_training.trust.texts import write_pair
from workbench_training.trust.writers import PairWriter, make_writer

from workbench.chat import ChatReply
from workbench.errors import ConfigError, WorkbenchError

CONFIG = TrustPairsConfig(pairs=12, neutral=0)


class Author:
    """Writes what the grammar would; ``spoil(text, nth ask of this pair)`` changes it."""

    name, together = "author", 5

    def __init__(self, plans, spoil=lambda text, _nth: text, review=True):
        self.rows = {plan.scenario.id: write_pair(plan) for plan in plans}
        self.plans, self.spoil, self.right = plans, spoil, review
        self.asked, self.batches, self.counts = [], [], Counter()

    def ask(self, requests):
        self.batches.append(len(requests))
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.counts["asked"] += 1
        self.asked.append(request)
        text = request.messages[-1]["content"]
        if "Answer with 1 or 2" in text:
            one = re.search(r"=== 1\n(.*?)\n=== 2", text, re.DOTALL)[1]
            is_chosen = any(row["chosen"] == one for row in self.rows.values())
            return ChatReply("1" if is_chosen == self.right else "2")
        nth = sum(turn["role"] == "assistant" for turn in request.messages)
        row = self.row_for(request.messages[1]["content"])
        told = self.spoil(f"=== FIRST\n{row['chosen']}\n=== SECOND\n{row['rejected']}", nth)
        return told if isinstance(told, ChatReply) else ChatReply(told)

    def row_for(self, text):
        claim = re.search(r"statement of the user's: \"(.*?)\"", text)[1]
        (plan, *_) = [
            plan
            for plan in self.plans
            if any(re.fullmatch(re.sub(r"{\w+}", r"\\w+", own), claim, re.IGNORECASE)
                   for own in plan.scenario.claims)
        ]  # fmt: skip
        return self.rows[plan.scenario.id]


def test_a_good_author_is_asked_twice_a_pair_and_many_at_once():
    plans = plan_pairs(CONFIG)
    author = Author(plans)
    found = list(PairWriter(author).write(plans))
    assert [row["chosen"] for row in found] == [
        author.rows[plan.scenario.id]["chosen"] for plan in plans
    ]
    assert author.batches == [5, 5, 5, 5, 2, 2]
    assert [row["id"] for row in found] == [plan.id for plan in plans]


def test_faults_are_told_and_mended():
    plans = plan_pairs(CONFIG)[:1]
    author = Author(plans, lambda text, nth: text if nth else text + " Sorry.")
    (row,) = PairWriter(author).write(plans)
    assert "orry" not in row["rejected"]
    assert "- refusal" in author.asked[1].messages[-1]["content"]


@pytest.mark.parametrize(
    ("spoil", "review", "reason"),
    [
        (lambda _text, _: "I would rather talk about it.", True, "format"),
        (lambda text, _: text + " Sorry.", True, "refusal"),
        (lambda _text, _: ChatReply("", "cut short"), True, "cut short"),
        (lambda text, _: text, False, "review"),
    ],
)
def test_a_pair_that_cannot_be_written_is_left_out_with_its_reason(spoil, review, reason):
    plans = plan_pairs(CONFIG)[:1]
    assert list(PairWriter(Author(plans, spoil, review)).write(plans)) == [reason]


def test_a_writer_that_fails_throughout_stops_the_run():
    plans = plan_pairs(TrustPairsConfig(pairs=40, neutral=0))
    with pytest.raises(WorkbenchError, match="25 pairs in a row"):
        list(PairWriter(Author(plans, lambda _text, _: "no")).write(plans))


@pytest.mark.thorough
def test_a_server_writes_a_corpus_whose_losses_are_counted(stand_in, completion):
    config = TrustPairsConfig(pairs=12, neutral=0, test=0.0, max_dropped=1.0, max_probe=1.0)
    plans = plan_pairs(config)
    author = Author(plans, lambda text, _: text)

    def answer(asked):
        from workbench.chat import ChatRequest

        request = ChatRequest(tuple(asked["messages"]))
        return 200, completion(author.answer(request).text)

    with stand_in(answer) as (_, url):
        told = {"url": url, "model": "m", "key": ""}
        written = write_pairs(config.model_copy(update={"writer": "server", "options": told}))
    assert written.writer == "m"
    assert len(written.pairs) + written.dropped.total() == 12
    assert written.counts["asked"] >= 2 * len(written.pairs) > 0


def test_options_that_a_writer_lacks_are_refused():
    wrong = CONFIG.model_copy(update={"writer": "local", "options": {"mends": 1}})
    with pytest.raises(ConfigError, match="options of the writer 'local'"):
        make_writer(wrong)
    with pytest.raises(ConfigError, match="mends = -1"):
        PairWriter(Author([]), mends=-1)
