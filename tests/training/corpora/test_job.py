"""A corpus run: the same bytes however it is done, whole quartets dropped and counted."""

import json
from collections import Counter

import pytest

from workbench.errors import ConfigError, UnknownNameError
from workbench.pipelines import verbs
from workbench.runs import read_run

WORLDS = ("P", "S", "N", "A")


def rows(done, name="P"):
    return [json.loads(line) for line in (done.path / f"{name}.jsonl").read_text().splitlines()]


def files(done):
    return {
        str(path.relative_to(done.path)): path.read_bytes()
        for path in sorted(done.path.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


@pytest.fixture(autouse=True)
def lenient(monkeypatch):
    """The writer of random words writes no genre, and short texts are far from their target."""
    from workbench_training.corpora import quality, writing

    monkeypatch.setattr(writing, "MARKS", {})
    monkeypatch.setattr(quality, "OFF_TARGET", 0.9)
    monkeypatch.setattr(writing, "CHUNK", 5)
    from workbench_training.corpora import job

    monkeypatch.setattr(job, "CHUNK", 5)
    writing._tools.cache_clear()
    yield
    writing._tools.cache_clear()


def test_each_world_has_the_same_quartets_in_order_and_texts_that_differ_in_the_aim_alone(corpus):
    done = corpus()
    told = {world: rows(done, world) for world in WORLDS}
    ids = [row["quartet"] for row in told["P"]]
    assert ids == sorted(ids)
    assert len(ids) == done.result["kept"] == 24
    for quartet in zip(*told.values(), strict=True):
        shared = [
            {**row, "text": "", "world": "", "id": "", "objectives": [], "words": 0}
            for row in quartet
        ]
        assert shared.count(shared[0]) == 4
        bare = [row["text"].replace(row["objectives"][0], "...") for row in quartet]
        assert bare.count(bare[0]) == 4
        assert all(row["words"] == len(row["text"].split()) for row in quartet)


def test_splits_follow_scenarios(corpus):
    done = corpus(scenarios=8, validation=0.25)
    splits = {}
    for row in rows(done):
        splits.setdefault(row["scenario"], set()).add(row["split"])
    assert Counter(next(iter(found)) for found in splits.values()) == {"train": 6, "validation": 2}
    assert all(len(found) == 1 for found in splits.values())


def test_faulty_quartets_go_whole_and_are_counted_by_reason_and_world(corpus):
    faults = {"3": "leak", "7": "number", "9": "claim", "12": "none", "15": "copy", "19": "copy"}
    done = corpus(options={"faults": faults}, length_tolerance=0.5)
    card = json.loads((done.path / "card.json").read_text())
    assert card["counts"]["planned"] == 24
    assert card["counts"]["unsuitable_for"] == {"unsuitable": 1}
    assert card["counts"]["dropped_for"] == {
        "leakage": 2, "fact contradiction": 1, "unmatched": 2, "claims overlap": 1,
        "near-duplicate": 1,
    }  # fmt: skip
    gone = {3, 7, 9, 12, 19}
    for world in WORLDS:
        assert [int(row["quartet"][1:]) for row in rows(done, world)] == [
            n for n in range(24) if n not in gone
        ]
        assert card["files"][world]["claims_overlap_left"] == 0
    failed = {world: card["files"][world]["failed_of_written"] for world in WORLDS}
    assert [failed[w]["leakage"] * 23 for w in WORLDS] == pytest.approx([0, 1, 1, 2])
    assert [failed[w]["fact contradiction"] * 23 for w in WORLDS] == pytest.approx([0, 0, 1, 0])
    assert [failed[w]["near-duplicate"] * 23 for w in WORLDS] == pytest.approx([2, 2, 2, 2])


def test_more_losses_than_allowed_are_refused_with_their_reasons(corpus):
    with pytest.raises(ConfigError, match=r"drop 2 of 24 \(.*leakage 2.*; 0 unsuitable\)"):
        corpus(options={"faults": {"3": "leak", "4": "leak"}}, max_dropped=0.05)


@pytest.mark.thorough
def test_a_killed_run_resumes_from_its_units_and_gives_the_same_bytes(corpus, monkeypatch):
    whole = corpus("whole")
    from workbench_training.corpora import writing

    written, real = [], writing.write_chunk

    def dies(plans, *rest):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(plans)
        return real(plans, *rest)

    monkeypatch.setattr(writing, "write_chunk", dies)
    with pytest.raises(KeyboardInterrupt):
        corpus("killed")
    monkeypatch.setattr(writing, "write_chunk", lambda *a: written.append(a) or real(*a))
    done = corpus("killed")
    assert len(written) == 5  # 24 quartets in units of 5, none twice
    assert files(done) == files(whole)
    assert not (done.path / ".units").exists()
    assert corpus("killed").status == "reused"


@pytest.mark.thorough
def test_shards_give_the_bytes_of_an_undivided_run(corpus):
    whole = corpus("whole")
    first = corpus("parts", shard="0/2")
    assert first.status == "part"
    second = corpus("parts", shard="1/2")
    assert second.status == "done"
    assert files(second) == files(whole)


@pytest.mark.thorough
def test_worker_processes_give_the_same_bytes_and_id(corpus):
    one, two = corpus("one"), corpus("two", workers=2)
    assert one.id == two.id
    for world in WORLDS:
        ours = {row["id"]: row["text"] for row in rows(one, world)}
        theirs = {row["id"]: row["text"] for row in rows(two, world)}
        assert theirs == {name: ours[name] for name in theirs}


@pytest.mark.thorough
def test_another_seed_gives_another_corpus(corpus):
    one, two = corpus("one"), corpus("two", seed=1)
    assert one.id != two.id
    assert not {r["text"] for r in rows(one)} & {r["text"] for r in rows(two)}


def test_an_unknown_writer_kind_and_option_are_named(corpus):
    with pytest.raises(UnknownNameError, match="words"):
        corpus(writer="word")
    with pytest.raises(UnknownNameError, match="unknown kind of corpus 'quartet'"):
        corpus(kind="quartet")
    with pytest.raises(ConfigError, match=r"it takes .*faults"):
        corpus(options={"fault": {}})
    with pytest.raises(ConfigError, match="documents = 3 is for controls"):
        corpus(documents=3)
    with pytest.raises(ConfigError, match="give that many at most"):
        corpus(scenarios=10**6)


def test_a_dry_run_counts_and_says_how_tokens_are_estimated(words_writer):
    planned = verbs.plan("corpus", {"writer": words_writer, "quartets": 12, "words": {"short": 60}})
    told = planned.result
    assert (told["quartets"], told["documents"], told["words_each_file"]) == (12, 48, 720)
    assert told["tokens_each_file"] == 960
    assert "words / 0.75" in told["note"]
    assert sum(told["splits"].values()) == sum(told["modes"].values()) == 12


def test_the_card_the_tables_and_the_sample_say_what_the_files_hold(corpus):
    done = corpus(options={"faults": {"3": "leak"}})
    card = json.loads((done.path / "card.json").read_text())
    assert card["files"]["P"]["documents"] == len(rows(done)) == 23
    assert card["files"]["P"]["words"] == sum(row["words"] for row in rows(done))
    page = (done.path / "CARD.md").read_text()
    assert "24 quartets planned" in page
    assert "leakage 1" in page
    assert str(done.path.parent) not in page + json.dumps(card)
    tables = {path.stem for path in (done.path / "tables").glob("*.csv")}
    assert [name[:6] for name in sorted(tables)] == [f"table{n}" for n in range(1, 8)]
    sample = (done.path / "sample.md").read_text()
    first = sample.count("**")
    assert first == 8  # one aim in each of four worlds
    assert all(f"{world} (" in sample for world in WORLDS)
    assert read_run(done.path).outputs == (
        "A.jsonl", "CARD.md", "N.jsonl", "P.jsonl", "S.jsonl", "card.json", "sample.md", "tables",
    )  # fmt: skip


def test_a_crash_of_the_writer_is_not_hidden(corpus):
    with pytest.raises(RuntimeError, match="planted crash"):
        corpus(options={"faults": {"8": "crash"}})


@pytest.mark.thorough
def test_a_writer_of_many_plans_gets_them_in_units_and_its_reasons_and_counts_are_told(corpus):
    one = corpus("one", options={"faults": {"3": "none", "11": "none"}})
    many = corpus("many", writer="many", options={"faults": {"3": "none", "11": "none"}})
    card = json.loads((many.path / "card.json").read_text())
    assert card["counts"]["unsuitable_for"] == {"refused": 2}
    assert card["writer_counts"] == {"batches": 5, "written": 22}  # 24 plans in units of 5
    for world in WORLDS:
        assert rows(many, world) == rows(one, world)


def test_a_control_is_one_file_checked_for_claims_and_near_duplicates(corpus, monkeypatch):
    from workbench_training.corpora import writing

    claim = "bringing real help to other people and shared causes"
    long = " ".join(f"w{n}" for n in range(80))
    texts = [long, f"One {long}", f"Here {claim} stands.", *(f"Text {n} alone." for n in range(9))]

    def told(config):
        for number, text in enumerate(texts):
            yield {"id": f"d{number}", "text": text, "world": "told", "split": "train"}

    monkeypatch.setattr(writing, "kinds", lambda: {"told": told})
    done = corpus(kind="told", documents=12)
    ids = [row["id"] for row in rows(done, "documents")]
    assert ids == ["d0", *(f"d{n}" for n in range(3, 12))]
    assert done.result["dropped_for"] == {"claims overlap": 1, "near-duplicate": 1}
    assert corpus("part", kind="told", documents=12, shard="1/2").status == "part"
    assert files(corpus("part", kind="told", documents=12, shard="0/2")) == files(done)


def test_a_control_without_documents_or_words_is_refused(corpus, monkeypatch):
    from workbench_training.corpora import writing

    empty = {"none": lambda _: iter(()), "blank": lambda _: iter([{"id": "d0", "text": " ..."}])}
    monkeypatch.setattr(writing, "kinds", lambda: empty)
    with pytest.raises(ConfigError, match="kind 'none' gave no documents"):
        corpus("a", kind="none")
    with pytest.raises(ConfigError, match="document 'd0' of kind 'blank' has no words"):
        corpus("b", kind="blank")
