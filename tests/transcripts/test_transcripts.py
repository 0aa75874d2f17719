"""Transcripts: what is kept of a rollout, its file, its parts, and what a capture gets of it."""

import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import workbench as wb
from workbench.directions.persona import CountRule, persona_space
from workbench.errors import ConfigError, FormatError, MismatchError
from workbench.library import open_prompts, sources
from workbench.prompts import PromptSet
from workbench.transcripts import (
    Scores,
    Transcripts,
    join_transcripts,
    read_transcripts,
    write_transcripts,
)

FIXTURE = Path(__file__).parents[1] / "fixtures" / "transcripts_v1.parquet"
REASONS = ("", "cut short", "timeout", "")


def prompts(start=0):
    system = {"role": "system", "content": "Du bist ein Pirat. \U0001f3f4"}
    return PromptSet.from_records(
        [
            {
                "id": f"r{start + n}", "role": ("pirate", "default")[n % 2], "n": n, "x": n / 2,
                "ok": n > 1,
                "messages": ([system] if n % 2 == 0 else []) + [
                    {"role": "user", "content": f"question\n{n}"}
                ],
            }
            for n in range(4)
        ]
    )  # fmt: skip


def made(start=0, judge="stand-in"):
    found = Transcripts.of(
        prompts(start), ["Arr.", "I am an", "lost", ""], generator="tiny",
        sampling={"temperature": 0.7, "top_p": 0.9}, seeds=[3, 4, 5, 2**40], reasons=REASONS,
    )  # fmt: skip
    values = np.array([3.0, np.nan, np.nan, 0.25])
    return found.with_scores("score", Scores(judge, values, ("", "echo", "no answer", ""),
                                             ("3", "score 3", "", "25%")))  # fmt: skip


def assert_same(one, other):
    for name in ("ids", "chats", "reasons", "generators", "sampling"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.seeds, other.seeds)
    assert list(one.columns) == list(other.columns)
    for name, values in one.columns.items():
        np.testing.assert_array_equal(values, other.columns[name])
        assert values.dtype.kind == other.columns[name].dtype.kind
    assert list(one.scores) == list(other.scores)
    for name, scores in one.scores.items():
        np.testing.assert_array_equal(scores.values, other.scores[name].values)
        assert (scores.judge, scores.reasons, scores.said) == (
            other.scores[name].judge, other.scores[name].reasons, other.scores[name].said,
        )  # fmt: skip


def test_an_answer_that_failed_stays_without_a_text():
    one = made()
    assert one.answers == ("Arr.", "I am an", "", "")
    assert one.written.tolist() == [True, True, False, True]
    assert [chat[-1]["role"] for chat in one.chats] == [
        "assistant",
        "assistant",
        "user",
        "assistant",
    ]
    assert one.counts["answers"] == {"": 2, "cut short": 1, "timeout": 1}
    assert one.counts["score"] == {"": 2, "echo": 1, "no answer": 1}
    assert repr(one) == "Transcripts(3 of 4 written; score by stand-in)"


def test_the_file_gives_back_what_was_written(tmp_path):
    path = write_transcripts(made(), tmp_path / "deep" / "transcripts.parquet")
    assert_same(read_transcripts(path), made())
    assert_same(read_transcripts(tmp_path / "deep"), made())
    plain = made().take([0])
    assert_same(read_transcripts(write_transcripts(plain, path)), plain)
    assert [one.name for one in (tmp_path / "deep").iterdir()] == ["transcripts.parquet"]


def test_a_foreign_reader_finds_plain_columns(tmp_path):
    write_transcripts(made(), tmp_path / "t.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    assert table["messages"].to_pylist()[1] == [
        {"role": "user", "content": "question\n1"}, {"role": "assistant", "content": "I am an"},
    ]  # fmt: skip
    assert table["score/score"].to_pylist()[1] == {
        "value": None, "reason": "echo", "said": "score 3", "judge": "stand-in",
    }  # fmt: skip
    assert json.loads(table["sampling"].to_pylist()[0]) == {"temperature": 0.7, "top_p": 0.9}
    assert table["role"].to_pylist() == ["pirate", "default"] * 2


def test_the_version_1_fixture_always_opens():
    assert_same(read_transcripts(FIXTURE), made())


def test_a_capture_gets_the_written_ones_with_their_columns_and_scores():
    found = made().prompts()
    assert found.ids == ("r0", "r1", "r3")
    assert found.items[0][-1] == {"role": "assistant", "content": "Arr."}
    np.testing.assert_array_equal(found.columns["score"], [3.0, np.nan, 0.25])
    assert found.columns["role"].tolist() == ["pirate", "default", "default"]
    assert found.columns["score_judge"].tolist() == ["stand-in"] * 3
    asked = made().prompts(answered=False)
    assert [chat[-1]["role"] for chat in asked.items] == ["user"] * 3
    with pytest.raises(ConfigError, match=r"none of 1 answers was written \(1 timeout\)"):
        made().take([2]).prompts()


def test_a_file_of_transcripts_is_a_prompt_source_with_its_answers_or_without(tmp_path):
    file = write_transcripts(made(), tmp_path / "run-1" / "transcripts.parquet")
    for source in (file, str(file), file.parent, [str(file)]):
        found = open_prompts(source)
        assert (found.ids, found.items) == (made().prompts().ids, made().prompts().items)
        assert list(found.columns) == list(made().prompts().columns)
        assert sources(source) == [file]
    asked = open_prompts({"path": str(file), "answered": False, "where": {"role": "default"}})
    assert asked.items == made().prompts(answered=False).where(role="default").items
    other = write_transcripts(made(), tmp_path / "run-2" / "transcripts.parquet")
    assert open_prompts([str(file), str(other)]).ids[::3] == ("run-1:r0", "run-2:r0")


def test_what_is_no_file_of_transcripts_is_read_as_prompts_and_has_no_answers_to_leave_out(
    tmp_path,
):
    rows = pyarrow.Table.from_pylist([{"id": "a", "text": "One."}])
    pyarrow.parquet.write_table(rows, tmp_path / "plain.parquet")
    assert open_prompts(tmp_path / "plain.parquet").items == ("One.",)
    with pytest.raises(ConfigError, match="answered = False is for transcripts"):
        open_prompts({"path": str(tmp_path / "plain.parquet"), "answered": False})
    with pytest.raises(ConfigError, match="answered = 'no'; true or false is expected"):
        open_prompts({"path": "statements", "answered": "no"})
    file = write_transcripts(made(), tmp_path / "transcripts.parquet")
    with pytest.raises(ConfigError, match="holds chats"):
        open_prompts({"path": str(file), "text": "messages"})
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="no Parquet table"):
        open_prompts(tmp_path / "broken.parquet")


def test_from_rollouts_to_an_axis_of_a_model(tiny_subject):
    texts = ["the city", "of the answer", "is true", "a", "b c", "d e f"]
    chats = PromptSet.from_records(
        [
            {"text": text, "role": role, "id": f"{role}{n}"}
            for role in ("pirate", "sage", "default")
            for n, text in enumerate(texts)
        ]
    )
    rollouts = Transcripts.of(
        chats, [f"{role} says {n}" for n, role in enumerate(chats.columns["role"])],
        generator=tiny_subject.stamp.key, sampling={"temperature": 1.0}, seeds=range(18),
    )  # fmt: skip
    acts = wb.capture(tiny_subject, rollouts.prompts(), layers=[1, 2], position="mean:assistant")
    space = persona_space(acts, judge="none", rule=CountRule("few", 6, False))
    assert space.roles.names == ("pirate", "sage")
    pirate, sage, default = acts.at(1).reshape(3, 6, -1).mean(axis=1)
    np.testing.assert_allclose(space.axis.at(1)[0], default - (pirate + sage) / 2, atol=1e-5)
    before = wb.capture(tiny_subject, rollouts.prompts(answered=False), layers=[1],
                        position="last", add_generation_prompt=True)  # fmt: skip
    assert not np.allclose(before.at(1), acts.at(1))


def test_a_damaged_file_is_refused(tmp_path):
    file = write_transcripts(made(), tmp_path / "transcripts.parquet")
    content = file.read_bytes()
    for cut in (0, 3, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:cut])
        with pytest.raises(FormatError, match="damaged"):
            read_transcripts(file)


def test_parts_join_in_order():
    joined = join_transcripts([made(), made(4), made(8)])
    assert joined.ids == tuple(f"r{n}" for n in range(12))
    assert_same(joined.take(range(4, 8)), made(4))
    assert joined.scores["score"].judge == "stand-in"


def test_parts_that_do_not_belong_together_do_not_join():
    with pytest.raises(MismatchError, match="judged by stand-in in one part and other in another"):
        join_transcripts([made(), made(4, judge="other")])
    bare = Transcripts(*(getattr(made(4), name) for name in (
        "ids", "chats", "reasons", "generators", "sampling", "seeds")))  # fmt: skip
    with pytest.raises(MismatchError, match="differ in columns n, ok, role, x"):
        join_transcripts([made(), bare])
    with pytest.raises(ValueError, match="ids of transcripts must differ"):
        join_transcripts([made(), made()])
    with pytest.raises(ValueError, match="no transcripts to join"):
        join_transcripts([])


def rewritten(path, change, **marks):
    table = pyarrow.parquet.read_table(write_transcripts(made(), path))
    told = {key.encode(): value for key, value in marks.items()}
    metadata = {**table.schema.metadata, **told}
    pyarrow.parquet.write_table(change(table).replace_schema_metadata(metadata), path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["seed"]), "no column 'seed'"),
        (lambda t: t.set_column(0, "id", pyarrow.array([None, "b", "c", "d"])), "no column 'id'"),
        (lambda t: t.set_column(0, "id", pyarrow.array(["a", "a", "c", "d"])), "must differ"),
        (lambda t: t.append_column("z", pyarrow.array([None, "b", "c", "d"])), "z lacks values"),
        (lambda t: t.append_column("z", pyarrow.array([[1]] * 4)), "z holds list"),
        (lambda t: t.slice(0, 0), "one expected"),
    ],
)
def test_a_file_that_was_edited_is_refused(tmp_path, change, message):
    with pytest.raises(FormatError, match=message):
        read_transcripts(rewritten(tmp_path / "t.parquet", change))


def test_other_formats_and_versions_are_refused(tmp_path):
    path = rewritten(tmp_path / "t.parquet", lambda t: t, version="2")
    with pytest.raises(FormatError, match="version '2', '1' expected"):
        read_transcripts(path)
    with pytest.raises(FormatError, match="no transcripts at"):
        read_transcripts(tmp_path / "none.parquet")
    with pytest.raises(FormatError, match="has format 'interp-workbench/results'"):
        read_transcripts(FIXTURE.with_name("results_v1.parquet"))


def test_scores_and_transcripts_that_contradict_themselves_are_a_wrong_call():
    for values, reasons in (([np.nan], ("",)), ([1.0], ("echo",)), ([1.0, 2.0], ("",))):
        with pytest.raises(ValueError, match="where there is no reason"):
            Scores("j", np.array(values), reasons, ("",))
    chat = ({"role": "user", "content": "a"},)
    with pytest.raises(ValueError, match="ends with role 'user'"):
        Transcripts(("a",), (chat,), ("",), ("m",), ({},), np.array([0]))
    with pytest.raises(ValueError, match="1 ids of transcripts, but"):
        Transcripts(("a",), (chat,), ("timeout",), ("m",), ({},), np.array([0, 1]))
    with pytest.raises(ValueError, match="may not be called 'seed'"):
        Transcripts(("a",), (chat,), ("timeout",), ("m",), ({},), np.array([0]),
                    {"seed": np.array([1])})  # fmt: skip
