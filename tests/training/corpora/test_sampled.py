"""Pages drawn from a model depend on their number alone, begin as given and end whole."""

import json
from pathlib import Path

import pytest
from workbench_training.corpora.card import GRAMMAR, SAMPLED, limits_of
from workbench_training.corpora.controls import KINDS
from workbench_training.corpora.reports import plan_counts
from workbench_training.corpora.sampled import OPENING, opening_of, whole
from workbench_training.corpora.settings import CorpusConfig

from workbench.api import load
from workbench.errors import ConfigError, UnknownNameError
from workbench.pipelines.corpora import inputs_of
from workbench.pipelines.verbs import carry_out

BINS = {"short": 50, "long": 80}


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("drawn") / "tiny")


@pytest.fixture(scope="module")
def drawn(folder):
    """``(documents=6, **options) -> rows`` of web pages that the tiny model draws."""

    def draw(documents=6, seed=0, **options):
        options = {"model": str(folder), "dtype": "float32", **options}
        config = CorpusConfig(
            kind="web", documents=documents, words=BINS, seed=seed, options=options
        )
        return list(KINDS["web"](config))

    return draw


@pytest.fixture(scope="module")
def rows(drawn):
    return drawn()


def openings(documents=6, seed=0):
    config = CorpusConfig(kind="web", documents=documents, words=BINS, seed=seed)
    return [opening_of(row["text"]) for row in KINDS["web"](config)]


def test_pages_begin_as_the_grammars_do_and_go_on_by_themselves(rows):
    for row, opening in zip(rows, openings(), strict=True):
        assert row["text"].startswith(opening)
        assert len(row["text"]) > len(opening)
        assert len(opening.split()) == OPENING
    assert len({row["text"] for row in rows}) == 6
    assert {row["world"] for row in rows} == {"web"}
    assert {row["length_bin"] for row in rows} == set(BINS)


@pytest.mark.thorough
def test_a_page_is_the_same_in_any_batch_and_another_seed_gives_others(drawn, rows):
    assert drawn(batch=1) == rows
    assert {row["text"] for row in drawn(seed=1)}.isdisjoint(row["text"] for row in rows)


def test_pages_have_as_many_tokens_as_their_length_asks_for(drawn, folder):
    subject = load(folder, dtype="float32", check=False)
    for row, opening in zip(drawn(batch=2), openings(), strict=True):
        new = row["text"][len(opening) :]
        tokens = len(subject.tokenizer(new, add_special_tokens=False)["input_ids"])
        assert tokens <= 2 * BINS[row["length_bin"]]  # 4/3, and what decoding takes apart


def test_a_page_is_what_the_model_says_next(drawn, folder):
    subject = load(folder, dtype="float32", check=False)
    (row, *_), (opening, *_) = drawn(temperature=1e-5), openings()
    tokens = round((BINS[row["length_bin"]] - OPENING) / 0.75)
    (greedy,) = subject.generate([opening], max_new_tokens=tokens, render="bare")
    assert row["text"] == whole(opening, greedy)


@pytest.mark.thorough
def test_a_stopped_run_draws_nothing_twice(drawn, rows, tmp_path, monkeypatch):
    file = str(tmp_path / "replies.sqlite")
    assert drawn(4, replies=file)[:4] == drawn(4)
    asked = []
    from workbench.engine import hooks

    plain = hooks.HookRunner.answer
    monkeypatch.setattr(
        hooks.HookRunner,
        "answer",
        lambda self, subject, requests, **options: (
            asked.extend(requests),
            plain(self, subject, requests, **options),
        )[1],
    )
    again = drawn(4, replies=file)
    assert asked == []
    assert again == drawn(4)
    steps = [request.reads[0].max_new_tokens for request in asked]
    assert sorted(steps) == [51, 51, 91, 91]  # pages of one length run together


@pytest.mark.parametrize(
    ("opening", "continuation", "text"),
    [
        ("A town.", " It lies low. It is", "A town. It lies low."),
        ("A town", " without an end to speak of", "A town without an end to speak of"),
        ("One. A town", " that goes on and on", "One. A town that goes on and on"),
        ('"Go!', ' Now!" she said. He', '"Go! Now!" she said.'),
        ("It cost", " 3.5 coins. So", "It cost 3.5 coins."),
    ],
)
def test_what_follows_the_last_sentence_is_cut_unless_it_is_most_of_the_page(
    opening, continuation, text
):
    assert whole(opening, continuation) == text


def test_an_opening_keeps_its_lines_and_a_short_page_is_all_opening():
    words = [f"w{number}" for number in range(OPENING + 3)]
    assert opening_of("\n" + "\n\n".join(words)) == "\n\n".join(words[:OPENING])
    assert opening_of("Two words\n") == "Two words"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"model": "smollm2", "path": "own.jsonl"}, "unexpected keyword argument 'path'"),
        ({"model": "smollm2", "batch": 0}, "batch = 0"),
        ({"model": "smollm2", "temperature": 0}, "temperature = 0"),
        ({"batch": 4}, "'batch'; options that it takes: path, model"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_a_model_is_opened(options, match):
    with pytest.raises(ConfigError, match=match):
        KINDS["web"](CorpusConfig(kind="web", options=options))


def test_a_plan_opens_neither_the_model_nor_the_replies(tmp_path):
    options = {"model": str(tmp_path / "none"), "replies": str(tmp_path / "replies.sqlite")}
    assert plan_counts(CorpusConfig(kind="web", documents=2, options=options))["documents"] == 2
    assert not [*tmp_path.iterdir()]


def test_an_unknown_model_is_refused(tmp_path):
    config = CorpusConfig(kind="web", documents=2, options={"model": str(tmp_path / "none")})
    with pytest.raises((UnknownNameError, ConfigError), match="none"):
        list(KINDS["web"](config))


def test_the_run_is_of_the_models_folder_and_its_card_says_who_wrote(folder, tmp_path):
    config = {
        "kind": "web", "documents": 6, "words": BINS, "max_dropped": 0.5,
        "options": {"model": str(folder), "dtype": "float32"},
    }  # fmt: skip
    assert Path(folder) in inputs_of(CorpusConfig(**config))
    done = carry_out("corpus", config, out=tmp_path / "web")
    card = json.loads((done.path / "card.json").read_text())
    assert SAMPLED in card["limits"]
    assert GRAMMAR not in card["limits"] == limits_of(CorpusConfig(**config))
    lines = (done.path / "documents.jsonl").read_text().splitlines()
    assert len(lines) == card["counts"]["kept"]
