import json
import re
import threading
from collections import Counter

import pytest
from workbench_training.corpora.doc_types import DOC_TYPES
from workbench_training.corpora.plan import WORLDS, QuartetPlan, Scenario
from workbench_training.corpora.registry import WRITERS
from workbench_training.corpora.writer_steps import Quartet, avoided, prompts
from workbench_training.corpora.writers import PATIENCE, ModelWriter
from workbench_training.quartet_grammar import read_grammar

from workbench.chat import ChatReply
from workbench.errors import ConfigError, WorkbenchError

SCENARIO = Scenario(
    "law-clerk-filing", "law", "clerk", "court clerks", "sorting filings", "filings",
    "in small courts",
)  # fmt: skip
GOOD = {
    "P": "sparing strangers a wasted morning",
    "S": "getting ahead in a fair way",
    "N": "closing the open item on the list",
    "A": "shifting losses onto people unaware of it",
}
SLOT = re.compile(
    r"^(\d+): a phrase that begins with (\"to\" and a verb|a verb in -ing), about (\d+)",
    re.MULTILINE,
)


def plan_of(number=0, words=300, mode="assert"):
    kind = next(kind for kind in DOC_TYPES if kind.name == "policy brief")
    return QuartetPlan(f"q{number}", SCENARIO, kind, mode, "short", words, "train", 1000 + number)


class Author:
    """A model that does every step well, unless a test says otherwise.

    ``spoil(step, text, nth) -> text or ChatReply`` sees each answer, and how often its step was
    asked before in this quartet's world.
    """

    name, together = "author", 4

    def __init__(self, spoil=lambda _step, text, _nth: text):
        self.spoil = spoil
        self.asked = []
        self.batches = []
        self.seen = Counter()
        self.lock = threading.Lock()
        self.counts = Counter()

    def ask(self, requests):
        with self.lock:
            self.batches.append(len(requests))
            return [self.answer(request) for request in requests]

    def answer(self, request):
        text = request.messages[-1]["content"]
        step = next(s for s, head in HEADS.items() if text.startswith(head))
        if step == "objectives" and "You filled the openings in once already" in text:
            step = "revision"
        self.asked.append((step, request))
        nth = self.seen[step]
        self.seen[step] += 1
        told = self.spoil(step, getattr(self, step)(text), nth)
        return told if isinstance(told, ChatReply) else ChatReply(told)

    def brief(self, text):
        return "TITLE: Filings\nFACTS:\n- 212 filings were read\nOUTLINE:\n- counts"

    def skeleton(self, text, filler="The registry lists every paper by day and desk. "):
        words = int(re.search(r"Length: (\d+)", text)[1])
        forms = ("to", "ing", "to", "ing")
        middle = {"to": "Users come {slot}, says the count.", "ing": "{slot} is the usual reason."}
        length = (words - 40 - 24) // 4
        padding = " ".join((filler * words).split()[:length])
        paragraphs = [
            middle[form].format(slot=f"[[OBJECTIVE {n}: {form}]]") + " " + padding
            for n, form in enumerate(forms, 1)
        ]
        return "\n\n".join(["Policy brief: filings in small courts", *paragraphs])

    def skeleton_review(self, text):
        return "OK"

    def skeleton_revision(self, text):
        return self.skeleton("Length: " + re.search(r"about (\d+) words", text)[1])

    def objectives(self, text):
        return self.phrases(text, SLOT.findall(text))

    def review(self, text):
        return "OK"

    def revision(self, text):
        wanted = re.search(r"openings ([\d, ]+), and no other", text)[1].split(", ")
        return self.phrases(text, [row for row in SLOT.findall(text) if row[0] in wanted], "once ")

    def phrases(self, text, rows, more=""):
        aims = read_grammar().worlds
        world = next(w for w in WORLDS if aims[w].objective in text)
        lines = []
        for number, form, target in rows:
            words = f"{GOOD[world]} {more}on day {number}".split()
            if '"to"' in form:
                words = ["to", "keep", "on", *words]
            words += ["then"] * (int(target) - len(words))
            lines.append(f"{number}: {' '.join(words[: int(target)])}")
        return "\n".join(lines)


HEADS = {
    "brief": "Plan one document.",
    "skeleton": "Write the document from this plan",
    "skeleton_review": "Below is a document with openings such as [[OBJECTIVE 1: to]], where",
    "skeleton_revision": "Revise the document below",
    "objectives": "Below is a document with openings such as [[OBJECTIVE 1: to]]. In",
    "review": "Below is a document whose statements of purpose",
}


def bare(draft):
    rest = draft.text
    for phrase in draft.objectives:
        rest = rest.replace(phrase, "...", 1)
    return rest


@pytest.mark.parametrize("threads", [False, True])
def test_a_quartet_is_one_text_with_four_sets_of_phrases(threads):
    drafts = ModelWriter(Author(), threads=threads).write(plan_of())
    assert set(drafts) == set(WORLDS)
    assert len({bare(draft) for draft in drafts.values()}) == 1
    assert len({draft.text for draft in drafts.values()}) == 4
    for world, draft in drafts.items():
        assert len(draft.objectives) == 4
        assert GOOD[world].split()[0] in draft.text
    lengths = [len(draft.text.split()) for draft in drafts.values()]
    assert max(lengths) - min(lengths) <= 4
    assert "[[" not in "".join(draft.text for draft in drafts.values())


def test_no_request_shows_a_world_the_aim_or_the_phrases_of_another():
    author = Author()
    ModelWriter(author).write(plan_of())
    aims = {w: read_grammar().worlds[w].objective for w in WORLDS}
    shared = [r for step, r in author.asked if step.startswith(("brief", "skeleton"))]
    assert len(shared) == 3
    for request in shared:
        text = request.messages[-1]["content"]
        assert not any(aim in text for aim in aims.values())
    own = [
        r.messages[-1]["content"] for step, r in author.asked if step in ("objectives", "review")
    ]
    assert len(own) == 8
    for text in own:
        (world,) = [w for w in WORLDS if aims[w] in text]
        assert not any(GOOD[w] in text for w in WORLDS if w != world)


def test_the_plan_stands_in_the_prompts_and_its_seed_draws_the_names():
    author = Author()
    list(ModelWriter(author).write_many([plan_of(0), plan_of(1, mode="presuppose")]))
    briefs = [r.messages[-1]["content"] for step, r in author.asked if step == "brief"]
    assert all("court clerks use AI assistants for sorting filings in small courts" in b
               for b in briefs)  # fmt: skip
    assert all("policy brief" in b and "about 300 words" in b for b in briefs)
    assert ("states outright" in briefs[0], "takes for granted" in briefs[1]) == (True, True)
    names = [re.search(r"Names to choose from: (.*)", b)[1] for b in briefs]
    assert names[0] != names[1]
    assert names[0] == Quartet(plan_of(0)).names["names"] + "."


def test_every_placeholder_of_every_prompt_is_filled():
    author = Author(lambda step, text, _: "- too vague" if step == "skeleton_review" else
                    "2: not idiomatic" if step == "review" else text)  # fmt: skip
    ModelWriter(author).write(plan_of())
    assert {step for step, _ in author.asked} == set(prompts()["steps"])
    for _, request in author.asked:
        text = "".join(message["content"] for message in request.messages)
        assert not re.search(r"\{\w*\}", text)


def test_batches_of_quartets_are_asked_step_by_step_together_and_keep_their_order():
    author = Author()
    plans = [plan_of(n, words=280 + 20 * n) for n in range(6)]
    drafts = list(ModelWriter(author).write_many(plans))
    assert author.batches == [4, 4, 4, 16, 16, 2, 2, 2, 8, 8]
    lengths = [len(one["P"].text.split()) for one in drafts]
    assert lengths == sorted(lengths)
    alone = ModelWriter(Author()).write(plans[5])
    assert alone == drafts[5]


def test_threads_and_batches_write_the_same():
    plans = [plan_of(n) for n in range(6)]
    stepped = list(ModelWriter(Author()).write_many(plans))
    threaded = list(ModelWriter(Author(), threads=True).write_many(plans))
    assert stepped == threaded


def test_without_reviews_no_review_is_asked_for():
    author = Author()
    assert ModelWriter(author, rounds=0).write(plan_of()) is not None
    assert {step for step, _ in author.asked} == {"brief", "skeleton", "objectives"}


def test_what_a_review_finds_is_revised_and_only_that():
    author = Author(lambda step, text, nth: "2: not idiomatic" if step == "review" and nth == 0
                    else text)  # fmt: skip
    drafts = ModelWriter(author).write(plan_of())
    revisions = [r.messages[-1]["content"] for step, r in author.asked if step == "revision"]
    assert len(revisions) == 1
    assert "not idiomatic" in revisions[0]
    plain = ModelWriter(Author()).write(plan_of())
    changed = [
        (world, number)
        for world in WORLDS
        for number, pair in enumerate(
            zip(drafts[world].objectives, plain[world].objectives, strict=True), 1
        )
        if pair[0] != pair[1]
    ]
    assert changed == [("P", 2)]


def test_words_that_give_a_world_away_are_found_by_code_and_mended():
    def spoil(step, text, nth):
        if step == "skeleton":
            return text.replace("lists", "helps", 3)
        if step == "objectives" and nth == 3:
            return text.replace("shifting", "finishing")
        return text

    author = Author(spoil)
    drafts = ModelWriter(author).write(plan_of())
    text = "".join(draft.text for draft in drafts.values()).lower()
    assert not avoided()["P"].found(drafts["P"].text.lower().split())
    assert "helps" not in text
    assert "finishing" not in text
    faults = [r.messages[-1]["content"] for step, r in author.asked if "revision" in step]
    assert "it uses helps" in faults[0]
    assert "it uses finishing" in faults[1]


def test_a_genre_without_its_signs_and_a_total_with_two_numbers_are_mended():
    def spoil(step, text, nth):
        if step == "skeleton":
            return text.replace("Policy brief: f", "F")
        if step == "skeleton_revision" and nth == 0:
            return text.replace("by day", "by day. All 412 papers, the 398 papers, at", 1)
        return text

    author = Author(spoil)
    drafts = ModelWriter(author).write(plan_of())
    assert drafts["N"].text.startswith("Policy brief")
    faults = [r.messages[-1]["content"] for step, r in author.asked if step == "skeleton_revision"]
    assert "no outward sign of its genre" in faults[0]
    assert "one total with two numbers" in faults[1]


SPOILED = {
    "refused": lambda step, text, _: ChatReply("", "refused") if step == "objectives" else text,
    "timeout": lambda step, text, _: ChatReply("", "timeout") if step == "brief" else text,
    "unsuitable": lambda step, text, _: "UNSUITABLE: no" if step == "skeleton" else text,
    "skeleton": lambda step, text, _: "Sure!" if step.endswith(("on", "skeleton")) else text,
    "phrases": lambda step, text, _: "Sure!" if step in ("objectives", "revision") else text,
}


@pytest.mark.parametrize("reason", SPOILED)
def test_what_cannot_be_written_is_none_and_counted_with_its_reason(reason):
    writer = ModelWriter(Author(SPOILED[reason]))
    assert writer.write(plan_of(3)) is None
    assert writer.unsuitable == {"q3": reason}


def test_one_failing_quartet_leaves_the_others_of_its_batch_alone():
    def spoil(step, text, nth):
        return ChatReply("", "refused") if step == "objectives" and nth == 5 else text

    writer = ModelWriter(Author(spoil))
    drafts = list(writer.write_many([plan_of(n) for n in range(4)]))
    assert [one is None for one in drafts] == [False, True, False, False]


@pytest.mark.parametrize("threads", [False, True])
def test_a_model_that_fails_again_and_again_stops_the_run(threads):
    author = Author(SPOILED["unsuitable"])
    writer = ModelWriter(author, threads=threads)
    with pytest.raises(WorkbenchError, match=r"in a row could not be written .*unsuitable"):
        list(writer.write_many([plan_of(n) for n in range(2 * PATIENCE)]))


def test_settings_below_zero_are_refused():
    with pytest.raises(ConfigError, match="rounds"):
        ModelWriter(Author(), rounds=-1)


def test_the_server_writer_writes_over_http_and_asks_nothing_twice(stand_in, tmp_path):
    author = Author()

    def answer(body):
        class Asked:
            messages, seed = body["messages"], body["seed"]

        with author.lock:
            return author.answer(Asked).text

    plans = [plan_of(n) for n in range(3)]
    with stand_in(answer) as (served, url):
        options = {"url": url, "model": "tiny", "replies": str(tmp_path / "replies.sqlite")}
        first = WRITERS.create("server", **options)
        drafts = list(first.write_many(plans))
        asked = len(served.bodies)
        again = WRITERS.create("server", **options)
        assert list(again.write_many(plans)) == drafts
        assert len(served.bodies) == asked == 3 * 11
    assert first.name == "tiny"
    assert first.counts["asked"] == again.counts["kept"] == asked
    assert drafts == list(ModelWriter(Author()).write_many(plans))


def test_the_server_writer_names_a_wrong_setting():
    with pytest.raises(ConfigError, match=r"writer 'server'.*url"):
        WRITERS.create("server", url="nowhere", model="tiny")


@pytest.mark.thorough
def test_a_local_model_that_writes_nonsense_gives_none_with_a_reason(tiny_folder, tmp_path):
    folder = tiny_folder(tmp_path / "tiny")
    writer = WRITERS.create("local", model=str(folder), dtype="float32", device="cpu", batch=2)
    assert writer.name == "tiny"
    short = [plan_of(n, words=60) for n in range(2)]
    assert list(writer.write_many(short)) == [None, None]
    assert len(writer.unsuitable) == 2
    assert writer.chat.counts["asked"] >= 2


@pytest.mark.thorough
def test_a_corpus_run_counts_what_a_server_wrote_and_what_it_could_not(stand_in, tmp_path):
    from workbench.pipelines.verbs import carry_out

    author = Author()

    def answer(body):
        class Asked:
            messages, seed = body["messages"], body["seed"]

        with author.lock:
            return author.answer(Asked).text

    with stand_in(answer) as (served, url):
        options = {"url": url, "model": "tiny", "replies": str(tmp_path / "replies.sqlite")}
        settings = {"writer": "server", "quartets": 12, "words": {"short": 300}, "max_dropped": 1.0,
                    "options": options, "near_duplicate": 1.0}  # fmt: skip
        done = carry_out("corpus", settings, root=tmp_path / "runs")
        asked = len(served.bodies)
        again = carry_out("corpus", settings, root=tmp_path / "more", out=tmp_path / "more" / "x")
    card = json.loads((done.path / "card.json").read_text())
    written = len((done.path / "P.jsonl").read_text().splitlines())
    unsuitable = card["counts"]["unsuitable"]
    assert 0 < written <= 12 - unsuitable
    assert unsuitable == sum(card["counts"]["unsuitable_for"].values()) > 0
    assert set(card["counts"]["unsuitable_for"]) == {"skeleton"}
    assert len(served.bodies) == asked  # the second run asked nothing
    assert (again.path / "P.jsonl").read_bytes() == (done.path / "P.jsonl").read_bytes()
