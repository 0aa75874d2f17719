"""What `show` and `verify` say of files."""

import contextlib
from pathlib import Path

import pytest

from workbench.directions import open_directions
from workbench.directions.exchange import export_directions
from workbench.errors import FormatError
from workbench.pipelines.catalogue import describe, rows_of, verify_path
from workbench.runs import open_run

FIXTURE = Path(__file__).parent.parent / "fixtures" / "map_v1.safetensors"


def test_a_map_file_is_shown_and_verified_as_what_it_is(tmp_path):
    said = describe([str(FIXTURE)])
    assert (said["names"], said["kind"], said["model"]) == ("trust", "rank 2", "tiny")
    assert verify_path(FIXTURE) == {"format": "linear map", "name": "trust", "layers": 2}
    data = bytearray(FIXTURE.read_bytes())
    data[-3] ^= 1
    (tmp_path / "flipped.safetensors").write_bytes(data)
    with pytest.raises(FormatError, match="'sha256' does not agree"):
        verify_path(tmp_path / "flipped.safetensors")


def test_a_file_of_another_program_is_told_by_its_content(tmp_path):
    source = open_directions(
        Path(__file__).parent.parent / "fixtures" / "directions_v1.safetensors"
    )
    own = source[source.names[0]].select([layer for layer in source.layers if layer])
    file = export_directions(own, tmp_path / "own.gguf", edit="add")
    assert "control" in str(describe([str(file)])).lower()
    with pytest.raises(FormatError, match="neither a run folder nor a store"):
        describe([str(tmp_path)])


def test_the_intervention_of_version_1_says_what_it_does_and_how_to_do_it_elsewhere():
    file = FIXTURE.with_name("intervention_v1.safetensors")
    said = describe([str(file)])
    assert said["edits"].splitlines() == [
        "  block 0: add, dose 144.295, scope all",
        "  block 5: cap, dose 1, floor -1, ceiling inf, scope all",
    ]
    assert (said["name"], said["model"]) == ("raise and cap", "tiny")
    assert "def edited(model" in said["plain transformers code"]
    compile(said["plain transformers code"], "plain.py", "exec")
    assert verify_path(file) == {"format": "intervention", "edits": 2, "layers": 2}


def test_a_list_of_runs_says_why_each_is_not_done_and_how_to_go_on(tmp_path):
    endings = {"done": None, "failed": ZeroDivisionError("by\nnought"), "cut": KeyboardInterrupt()}
    for name, error in endings.items():
        with (
            contextlib.suppress(ZeroDivisionError, KeyboardInterrupt),
            open_run("cache", {"name": name}, root=tmp_path) as run,
        ):
            (run.path / "out.txt").write_text("x")
            if error is not None:
                raise error
            run.finish()
    (tmp_path / "fit" / "x").mkdir(parents=True)
    (tmp_path / "fit" / "x" / "run.json").write_text("{")
    notes = {row["status"]: row["note"] for row in rows_of("runs", tmp_path)}
    assert notes["done"] == ""
    assert notes["failed"] == "ZeroDivisionError: by"
    assert notes["interrupted"] == "the same command goes on; kept: out.txt"
    assert "run.json cannot be read" in notes["unreadable"]
