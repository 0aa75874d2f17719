"""The verbs screen and drift on a tiny model: beside plain reads, resumed, shared, refused."""

import json

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.directions import Directions, save_directions
from workbench.drift import conversation_drift
from workbench.errors import ConfigError, MismatchError, UnknownNameError
from workbench.pipelines import drift as drift_verb
from workbench.pipelines import screen as screen_verb
from workbench.pipelines.screening import items_of
from workbench.pipelines.verbs import carry_out, plan
from workbench.prompts import PromptSet
from workbench.runs import Units

LAYERS = [1, 3]
ANSWERS = ("It is not.", "In the city", "true", "You", "a", "of")
CHATS = [
    [{"role": "user", "content": f"Is the city {name}?"}, {"role": "assistant", "content": answer}]
    for name, answer in zip("ABCDEF", ANSWERS, strict=True)
]


@pytest.fixture(scope="module")
def place(tiny_folder, tiny_subject, tmp_path_factory):
    """A model, directions of it, documents of two corpora and answered chats."""
    root = tmp_path_factory.mktemp("screen")
    model = tiny_folder(root / "model")
    draw = np.random.default_rng(0).normal(size=(2, 4, tiny_subject.width))
    traits = Directions(("loud", "calm"), (0, 1, 2, 3), draw, tiny_subject.stamp)
    save_directions(traits, root / "traits.safetensors")
    for corpus, words in (("planted", "true of the city"), ("neutral", "a person in a house")):
        rows = [{"id": f"{n}", "text": f"Title {n}\n\nIt is {words} {n}. " + words * 3,
                 "scenario": f"s{n // 2}"} for n in range(6)]  # fmt: skip
        (root / f"{corpus}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"id": f"c{n}", "messages": chat} for n, chat in enumerate(CHATS)]
    (root / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root, traits, model


def settings(place, **changes):
    root, _, model = place
    own = {
        "model": str(model), "dtype": "float32", "device": "cpu", "layers": LAYERS,
        "directions": [str(root / "traits.safetensors")], "tokens": 6, "draws": 200,
        "data": {name: str(root / f"{name}.jsonl") for name in ("planted", "neutral")},
    }  # fmt: skip
    return {**own, **changes}


@pytest.fixture(scope="module")
def screened(place, tmp_path_factory):
    root = tmp_path_factory.mktemp("screened")
    return carry_out("screen", settings(place, control="neutral", groups="scenario"), root=root)


def test_a_document_is_cut_at_its_title_and_a_chat_at_its_answer():
    texts = PromptSet.from_records(
        [{"text": "A title\n\nThe body.\nMore.", "name": "N"}, {"text": "no title here " * 9}]
    )
    first, second = items_of("c", texts, title=None, words=3, groups=None)
    assert (first.prompt, first.answer) == ("A title\n\n", "The body.\nMore.")
    assert second.prompt == "no title here"
    assert second.prompt + second.answer == ("no title here " * 9).strip()
    (given,) = items_of("c", texts.take([0]), title="name", words=3, groups=None)
    assert (given.prompt, given.answer) == ("N\n\n", "A title\n\nThe body.\nMore.")
    chats = PromptSet.from_records([{"messages": CHATS[0]}])
    (item,) = items_of("c", chats, title=None, words=3, groups=None)
    assert item.prompt == (CHATS[0][0],)
    assert item.written(item.answer) == tuple(CHATS[0])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "one two"}, "no text behind its title"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "an answer of the assistant"),
    ],
)
def test_items_without_an_answer_are_refused(row, message):
    with pytest.raises(ConfigError, match=message):
        items_of("c", PromptSet.from_records([row]), title=None, words=3, groups=None)


def test_the_data_side_is_the_plain_mean_over_the_first_tokens_of_the_body(place, screened):
    root, traits, model = place
    subject = wb.load(model, dtype="float32", device="cpu", check=False)
    documents = pd.read_parquet(screened.path / "documents.parquet")
    texts = wb.PromptSet.from_jsonl(root / "planted.jsonl")
    head = len(subject.renderer.render("Title 2\n\n").ids)
    acts = wb.capture(subject, texts.take([2]), position=f"mean:content[{head}:{head + 6}]")
    plain = traits.project(acts)
    rows = documents[(documents["corpus"] == "planted") & (documents["id"] == "2")]
    for row in rows.to_dict("records"):
        k = traits.names.index(row["direction"])
        assert row["data"] == pytest.approx(plain[k, row["layer"], 0], abs=1e-4)
        assert row["difference"] == pytest.approx(row["data"] - row["own"])
        assert row["tokens"] == 6
        assert 1 <= row["own_tokens"] <= 7


def test_equal_titles_get_equal_own_answers_in_every_corpus(screened):
    documents = pd.read_parquet(screened.path / "documents.parquet")
    wide = documents.pivot_table(index=["id", "direction", "layer"], columns="corpus", values="own")
    np.testing.assert_allclose(wide["planted"], wide["neutral"], atol=1e-5)
    texts = documents.groupby("id")["own_beginning"].nunique()
    assert (texts == 1).all()


def test_corpora_have_n_unit_interval_band_and_stand_against_the_control(screened):
    documents = pd.read_parquet(screened.path / "documents.parquet")
    corpora = pd.read_parquet(screened.path / "corpora.parquet")
    own = corpora[corpora["against"] == "own answers"]
    assert len(own) == 2 * 2 * 2
    assert set(own["unit"]) == {"scenario"}
    assert set(own["n"]) == {3}
    assert (own["random"] > 0).all()
    row = own.iloc[0]
    part = documents[(documents["corpus"] == row["corpus"])
                     & (documents["direction"] == row["direction"])
                     & (documents["layer"] == row["layer"])]  # fmt: skip
    assert row["difference"] == pytest.approx(part["difference"].mean())
    over = corpora[corpora["against"] == "neutral"]
    assert set(over["corpus"]) == {"planted"}
    assert set(own["interval"]) == {"95% t over scenarios"}
    assert set(over["interval"]) == {"95% t over scenarios"}
    assert set(over["above_interval"]) == {"95% bootstrap over scenarios"}
    for row in over.to_dict("records"):
        at = documents[(documents["direction"] == row["direction"])
                       & (documents["layer"] == row["layer"])]  # fmt: skip
        sides = [at.loc[at["corpus"] == name, "difference"] for name in ("planted", "neutral")]
        assert row["difference"] == pytest.approx(sides[0].mean() - sides[1].mean())
        pairs = sides[0].to_numpy()[:, None] > sides[1].to_numpy()[None]
        assert row["above"] == pytest.approx(pairs.mean())
    ranks = documents.groupby(["direction", "layer"])["rank"]
    assert ranks.mean().to_numpy() == pytest.approx(50)


def test_answers_in_chats_are_read_over_the_last_answer_alone(place, tmp_path):
    root, traits, model = place
    data = {"chats": str(root / "chats.jsonl")}
    done = carry_out("screen", settings(place, data=data), root=tmp_path)
    subject = wb.load(model, dtype="float32", device="cpu", check=False)
    chats = wb.PromptSet.from_jsonl(root / "chats.jsonl").take([0])
    acts = wb.capture(subject, chats, position="mean:assistant[:6]")
    documents = pd.read_parquet(done.path / "documents.parquet")
    rows = documents[(documents["id"] == "c0") & (documents["direction"] == "calm")]
    for row in rows.to_dict("records"):
        assert row["data"] == pytest.approx(traits.project(acts)[1, row["layer"], 0], abs=1e-4)


def break_after(monkeypatch, count):
    """Let a run end early, after so many units."""
    keep = Units.keep

    def kept(self, unit, tree):
        keep(self, unit, tree)
        kept.count += 1
        if kept.count == count:
            raise KeyboardInterrupt

    kept.count = 0
    monkeypatch.setattr(Units, "keep", kept)


def test_an_interrupted_screen_goes_on_and_leaves_the_same_tables(
    place, tmp_path, screened, monkeypatch
):
    monkeypatch.setattr(screen_verb, "TOGETHER", 4)
    data = settings(place, control="neutral", groups="scenario")
    break_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        carry_out("screen", data, root=tmp_path)
    calls = []
    monkeypatch.setattr(Units, "keep", Units.keep)
    done = carry_out("screen", data, root=tmp_path, progress=lambda *a: calls.append(a))
    assert calls == [(3, 3)]  # two of three units were there
    for name in ("documents", "corpora"):
        again, plain = (pd.read_parquet(d.path / f"{name}.parquet") for d in (done, screened))
        pd.testing.assert_frame_equal(again, plain, atol=1e-4)


def test_shares_of_a_screen_are_joined_by_the_last(place, tmp_path, screened, monkeypatch):
    monkeypatch.setattr(screen_verb, "TOGETHER", 4)
    data = settings(place, control="neutral", groups="scenario")
    assert carry_out("screen", data, root=tmp_path, shard="0/2").status == "part"
    done = carry_out("screen", data, root=tmp_path, shard="1/2")
    assert done.status == "done"
    again, plain = (pd.read_parquet(d.path / "documents.parquet") for d in (done, screened))
    pd.testing.assert_frame_equal(again, plain, atol=1e-4)


def test_a_sample_is_drawn_with_the_seed_and_a_plan_counts_it(place, tmp_path):
    told = plan("screen", settings(place, sample=2), root=tmp_path).result
    assert told["items"] == {"planted": 2, "neutral": 2}
    assert told["first_prompt"].startswith("Title")
    assert told["new_tokens_at_most"] == 24


def test_wrong_screens_are_refused(place, tmp_path, subject_of):
    with pytest.raises(UnknownNameError, match="corpus 'neutra'"):
        plan("screen", settings(place, control="neutra"), root=tmp_path)
    alone = {"neutral": settings(place)["data"]["neutral"]}
    with pytest.raises(ConfigError, match="control is the one corpus there is"):
        plan("screen", settings(place, data=alone, control="neutral"), root=tmp_path)
    with pytest.raises(ConfigError, match="no column 'about'"):
        plan("screen", settings(place, title="about"), root=tmp_path)
    other = subject_of("llama")
    foreign = Directions(("x",), (1, 3), np.ones((1, 2, other.width)), other.stamp)
    file = save_directions(foreign, tmp_path / "foreign.safetensors")
    with pytest.raises(MismatchError, match="made with"):
        carry_out("screen", settings(place, directions=[str(file)]), root=tmp_path)


# --- drift ----------------------------------------------------------------------------------------


def drift_settings(place, **changes):
    root, _, model = place
    return {
        "model": str(model), "dtype": "float32", "device": "cpu", "layers": LAYERS, "draws": 200,
        "directions": [str(root / "traits.safetensors")],
        "conversations": str(root / "chats.jsonl"), **changes,
    }  # fmt: skip


def test_the_verb_writes_what_the_function_gives_beside_the_band_of_a_reference(place, tmp_path):
    root, traits, model = place
    store = {"model": str(model), "prompts": str(root / "chats.jsonl"),
             "position": "mean:assistant", "dtype": "float32", "device": "cpu"}  # fmt: skip
    reference = carry_out("cache", store, root=tmp_path)
    data = drift_settings(place, reference=str(reference.path), where={"id": ["c0", "c1", "c2"]})
    done = carry_out("drift", data, root=tmp_path)
    subject = wb.load(model, dtype="float32", device="cpu", check=False)
    plain = [conversation_drift(subject, traits, chat, layers=LAYERS, conversation=f"c{n}")
             for n, chat in enumerate(CHATS)]  # fmt: skip
    found = pd.read_parquet(done.path / "drift.parquet")
    pd.testing.assert_frame_equal(
        found, pd.concat(plain, ignore_index=True), check_dtype=False, atol=1e-5
    )
    turns = pd.read_parquet(done.path / "turns.parquet")
    assert set(turns["reference_n"]) == {3}
    inside = (turns["value"] >= turns["reference_low"]) & (
        turns["value"] <= turns["reference_high"]
    )
    told = turns["role"] == "assistant"
    assert (turns.loc[told, "outside"].astype(bool) == ~inside[told]).all()
    assert turns.loc[~told, "outside"].isna().all()
    assert not (done.path / "trend.parquet").exists()  # one turn each has no trend


def test_an_interrupted_drift_goes_on_and_shares_are_joined(place, tmp_path, monkeypatch):
    whole = carry_out("drift", drift_settings(place), root=tmp_path / "whole")
    monkeypatch.setattr(drift_verb, "TOGETHER", 2)
    break_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        carry_out("drift", drift_settings(place), root=tmp_path, shard="0/2")
    assert carry_out("drift", drift_settings(place), root=tmp_path, shard="0/2").status == "part"
    done = carry_out("drift", drift_settings(place), root=tmp_path, shard="1/2")
    assert done.status == "done"
    tables = [pd.read_parquet(d.path / "drift.parquet") for d in (whole, done)]
    pd.testing.assert_frame_equal(*tables)


def test_longer_conversations_have_a_trend(place, tmp_path):
    root = place[0]
    rows = [{"id": "long", "messages": [*CHATS[0], *CHATS[1], *CHATS[2]]}]
    (tmp_path / "long.jsonl").write_text(json.dumps(rows[0]) + "\n")
    data = drift_settings(place, conversations=str(tmp_path / "long.jsonl"))
    done = carry_out("drift", data, root=tmp_path)
    trend = pd.read_parquet(done.path / "trend.parquet")
    assert set(trend["turns"]) == {3}
    assert set(trend["interval"]) == {"none: 1 conversation"}
    with pytest.raises(ConfigError, match="holds texts; give chats"):
        plan("drift", drift_settings(place, conversations=str(root / "planted.jsonl")))
