"""Prompt sets: readers, columns, and every bad row named."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench.errors import ConfigError, UnknownNameError
from workbench.library import open_prompts, sources
from workbench.prompts import PromptSet, read_prompts

ROWS = [
    {"id": "a", "text": "One is less than two.", "label": 1, "topic": "numbers"},
    {"id": "b", "text": "Two is less than one.", "label": 0, "topic": "numbers"},
]


def test_csv_jsonl_and_parquet_give_the_same_set(tmp_path):
    (tmp_path / "s.csv").write_text(
        "id,text,label,topic\n"
        + "".join(f"{r['id']},{r['text']},{r['label']},numbers\n" for r in ROWS)
    )
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "s.parquet")
    sets = [read_prompts(tmp_path / f"s.{kind}") for kind in ("csv", "jsonl", "parquet")]
    for found in sets:
        assert found.ids == ("a", "b")
        assert found.items[0] == ROWS[0]["text"]
        assert found.columns["label"].tolist() == [1, 0]
        assert found.columns["label"].dtype == np.int64


def test_a_csv_without_ids_is_numbered_and_keeps_a_text_of_digits_as_text(tmp_path):
    (tmp_path / "s.csv").write_text("statement,label\n12,1\n13,0\n")
    found = PromptSet.from_csv(tmp_path / "s.csv", text="statement")
    assert found.ids == ("0", "1")
    assert found.items == ("12", "13")


def test_a_csv_without_the_named_column_lists_those_it_has(tmp_path):
    (tmp_path / "s.csv").write_text("statement,label\nx,1\n")
    with pytest.raises(ConfigError, match="no column 'text'; columns: statement, label"):
        PromptSet.from_csv(tmp_path / "s.csv")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "id 'a' stands 2 times"),
        ([{"text": "  "}], "row 0: text is empty"),
        ([], "no rows"),
        ([{"label": 1}], "no key 'text'; keys: label"),
        ([{"text": [{"role": "user"}]}], "neither a text nor a list"),
        ([{"text": 3}], "text = 3 is neither"),
        ([{"text": "x"}, {"text": [{"role": "user", "content": "y"}]}], "are mixed"),
    ],
)
def test_a_bad_row_is_named(rows, message):
    with pytest.raises(ConfigError, match=message):
        PromptSet.from_records(rows)


def test_a_broken_json_line_is_named(tmp_path):
    (tmp_path / "s.jsonl").write_text('{"text": "x"}\n[1]\n')
    with pytest.raises(ConfigError, match=r"line 2: list found, a JSON object expected"):
        PromptSet.from_jsonl(tmp_path / "s.jsonl")
    (tmp_path / "s.jsonl").write_text('{"text": "x"\n')
    with pytest.raises(ConfigError, match=r"line 1: not JSON"):
        PromptSet.from_jsonl(tmp_path / "s.jsonl")


def test_where_keeps_columns_aligned_and_refuses_an_empty_result():
    found = PromptSet.from_records(ROWS).where(label=[0, 5])
    assert (found.ids, found.columns["label"].tolist()) == (("b",), [0])
    with pytest.raises(ConfigError, match="no rows"):
        found.where(topic="cities")
    with pytest.raises(ConfigError, match="no column 'subject'; columns: label, topic"):
        found.where(subject="x")


def test_a_list_of_sources_is_stacked_with_constants_and_clashing_ids_told_apart(tmp_path):
    for name in ("cities", "neg_cities"):
        (tmp_path / f"{name}.csv").write_text("statement,label\nA city.,1\nNo city.,0\n")
    parts = [
        {"path": str(tmp_path / f"{name}.csv"), "text": "statement", "columns": {"polarity": sign}}
        for name, sign in (("cities", 1), ("neg_cities", -1))
    ]
    found = open_prompts(parts)
    assert found.columns["polarity"].tolist() == [1, 1, -1, -1]
    assert found.ids == ("cities:0", "cities:1", "neg_cities:0", "neg_cities:1")
    assert [path.name for path in sources(parts)] == ["cities.csv", "neg_cities.csv"]


def test_a_source_that_is_neither_a_set_nor_a_file_lists_the_sets():
    with pytest.raises(UnknownNameError, match="Did you mean 'statements'"):
        open_prompts("statments")
    with pytest.raises(ConfigError, match="keys are path"):
        open_prompts({"file": "x"})


def test_facts_are_extracted_so_that_rows_about_one_thing_stay_together(tmp_path):
    (tmp_path / "c.csv").write_text(
        "text\nThe city of New York is in A.\nThe city of Bern is in B.\n"
    )
    table = {"path": str(tmp_path / "c.csv"), "extract": {"fact": "The city of (.+?) is"}}
    assert open_prompts(table).columns["fact"].tolist() == ["New York", "Bern"]
    with pytest.raises(ConfigError, match=r"finds nothing in 'The city of New York"):
        open_prompts({**table, "extract": {"fact": "the town of (.+)"}})
    with pytest.raises(ConfigError, match="with one group"):
        open_prompts({**table, "extract": {"fact": "city"}})


def test_a_line_separator_inside_a_text_does_not_end_a_json_line(tmp_path):
    (tmp_path / "s.jsonl").write_text('{"text": "one\u2028two\u0085three"}\n', encoding="utf-8")
    assert PromptSet.from_jsonl(tmp_path / "s.jsonl").items == ("one\u2028two\u0085three",)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["7", "-12"], [7, -12]),
        (["7", "2.50"], [7.0, 2.5]),
        (["007", "010"], ["007", "010"]),
        (["1e2", "Inf"], ["1e2", "Inf"]),
        (["1_000", "nan"], ["1_000", "nan"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
    ],
)
def test_a_csv_column_is_numbers_only_where_every_cell_reads_as_one(tmp_path, cells, expected):
    (tmp_path / "s.csv").write_text("text,code\n" + "".join(f"x,{cell}\n" for cell in cells))
    assert PromptSet.from_csv(tmp_path / "s.csv").columns["code"].tolist() == expected


def test_csv_ids_stay_as_they_are_written(tmp_path):
    (tmp_path / "s.csv").write_text("id,text\n01,x\n1,y\n")
    assert PromptSet.from_csv(tmp_path / "s.csv").ids == ("01", "1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", b"text,label\nx\n", "row 0: 1 cells under 2 columns"),
        ("s.csv", b"text,label\nx,1,2\n", "row 0: 3 cells under 2 columns"),
        ("s.csv", b"text,label,label\nx,1,2\n", "two columns are called 'label'"),
        ("s.csv", b'text,label\n"x,1\n', "no CSV file"),
        ("s.csv", b"", "no column 'text'; columns: none"),
        ("s.csv", b"text\n\xff\n", "not UTF-8"),
        ("s.jsonl", b"\xff\xfe", "not UTF-8"),
        ("s.jsonl", b"", "no rows"),
        ("s.jsonl", b'{"id": null, "text": "x"}', "id is empty"),
        ("s.jsonl", b'{"messages": []}', "neither a text nor a list"),
        ("s.jsonl", b'{"messages": [{"role": "user", "content": null}]}', "neither a text nor"),
        ("s.parquet", b"PAR1", "no Parquet table"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_prompts(tmp_path / name)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([5], "prompts: 5 stands in a list"),
        ({"path": 5}, "path = 5; a text is expected"),
        ({"path": "statements", "where": 5}, "where = 5; a table is expected"),
        ({"path": "statements", "extract": {"fact": 5}}, "with one group"),
        ({"path": "statements", "first": "2"}, "first = '2'; a number is expected"),
        ({"path": "statements", "first": 0}, "1 or more is expected"),
        ({"text": "x"}, "keys are path"),
    ],
)
def test_a_source_of_a_wrong_kind_is_refused(source, message):
    with pytest.raises(ConfigError, match=message):
        open_prompts(source)
    if source != {"path": "statements", "extract": {"fact": 5}}:
        with pytest.raises(ConfigError, match=message):
            sources(source)


def test_as_many_of_the_kept_rows_as_asked_for_come_from_the_top():
    kept = open_prompts({"path": "statements", "where": {"label": 0}})
    some = open_prompts({"path": "statements", "where": {"label": 0}, "first": 3})
    assert some.ids == kept.ids[:3]
    assert some.column("topic").tolist() == kept.column("topic")[:3].tolist()
    assert (
        open_prompts({"path": "statements", "first": 10**9}).ids == open_prompts("statements").ids
    )


def test_a_printed_set_says_how_many_and_of_what():
    assert repr(PromptSet.from_records(ROWS)) == "PromptSet(2 texts; label, topic; from records)"
