"""Finding the item sets that ship with the package, and writing them."""

import pytest

from workbench.data import data_path, item_sets
from workbench.data.rows import read_rows, slug, write_rows
from workbench.errors import UnknownNameError


def test_every_item_set_is_a_file_beside_its_readme():
    for path in item_sets().values():
        assert path.is_file()
        assert (path.parent / "README.md").is_file()


def test_an_unknown_item_set_is_an_error_that_names_the_nearest_one():
    with pytest.raises(UnknownNameError, match=r"'claim'.*'claims'"):
        data_path("claim")


def test_ids_are_unique_over_all_item_sets():
    ids = [row["id"] for path in item_sets().values() for row in read_rows(path)]
    assert len(ids) == len(set(ids))


def test_rows_come_back_as_written_and_nothing_else_is_left(tmp_path):
    rows = [{"id": "a", "text": "São Paulo\nis there"}, {"id": "b", "text": "'x' \u2028 y"}]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert read_rows(tmp_path / "rows.jsonl") == rows
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_slug_is_plain_lower_case():
    assert slug("São Paulo (the city)") == "sao-paulo-the-city"
