"""Run folders: one id for one piece of work, reuse, resume, refusal, locks, provenance."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from workbench.config import Config
from workbench.errors import (
    ConfigError,
    FormatError,
    MismatchError,
    UnknownNameError,
    WorkbenchError,
)
from workbench.files import format_bytes, write_bytes
from workbench.runs import (
    differing,
    foresee,
    hash_path,
    list_runs,
    open_run,
    plain,
    plan_run,
    read_result,
    read_run,
    run_id,
)
from workbench.runs.units import Units, discard_units, pack_tree, unpack_tree

FIXTURE = Path(__file__).parent / "fixtures" / "run_v1"
CONFIG = {"model": "smollm2", "layers": [1, 2], "nested": {"rate": 0.1}}


class Settings(Config):
    rate: float = 0.1
    place: Path = Path("a")


def finish(root, config=CONFIG, result=None, **options):
    with open_run("cache", config, root=root, **options) as run:
        if run.state != "done":
            (run.path / "out.txt").write_text("x")
            run.finish(result)
    return run


def fail(root, error):
    def body():
        with open_run("cache", CONFIG, root=root) as run:
            opened.append(run)
            (run.path / "part.txt").write_text("kept")
            raise error

    opened = []
    with pytest.raises(type(error)):
        body()
    return opened[0]


def test_an_id_is_twelve_hex_digits_of_what_decides_the_result():
    base = run_id("cache", CONFIG)
    assert len(base) == 12
    assert int(base, 16) >= 0
    assert base == run_id("cache", dict(reversed(CONFIG.items())))
    free = {"out": "x", "device": "cuda", "shard": "1/4", "workers": "ray"}
    assert base == run_id("cache", {**CONFIG, **free})
    others = [
        run_id("fit", CONFIG),
        run_id("cache", {**CONFIG, "layers": [2, 1]}),
        run_id("cache", {**CONFIG, "nested": {"rate": 0.2}}),
        run_id("cache", CONFIG, seed=0),
        run_id("cache", CONFIG, seed=1),
    ]
    assert len({base, *others}) == 6


def test_an_id_follows_the_content_of_inputs_and_not_their_place(tmp_path):
    ids = []
    for place, text in (("a", "one"), ("b", "one"), ("c", "two")):
        path = tmp_path / place / "prompts.csv"
        path.parent.mkdir()
        path.write_text(text)
        ids.append(run_id("cache", {"prompts": str(path)}, [path]))
    assert ids[0] == ids[1] != ids[2]


def test_a_changed_input_gives_another_id(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text("one")
    before = run_id("cache", CONFIG, [path])
    path.write_text("two!")
    assert run_id("cache", CONFIG, [path]) != before
    with pytest.raises(ConfigError, match="no input"):
        run_id("cache", CONFIG, [tmp_path / "absent"])


def test_a_finished_run_is_written_down(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("in")
    with open_run("cache", CONFIG, root=tmp_path / "runs", inputs=[source], seed=3) as run:
        assert run.state == "new"
        assert run.path == tmp_path / "runs" / "cache" / run.id
        assert read_run(run.path).status == "running"
        (run.path / "acts").mkdir()
        (run.path / "table.txt").write_text("x")
        run.finish({"n": np.int64(4), "auc": 0.9}, models=["tiny"])
    found = read_run(run.path)
    assert (found.id, found.verb, found.status, found.seed) == (run.id, "cache", "done", 3)
    assert found.config == CONFIG
    assert found.outputs == ("acts", "table.txt")
    assert found.models == ("tiny",)
    assert found.inputs[0]["path"] == str(source)
    assert found.inputs[0]["sha256"] == hash_path(source)
    assert found.packages["numpy"] == np.__version__
    assert found.started <= found.finished
    assert found.device
    assert read_result(run.path) == {"n": 4, "auc": 0.9}
    assert [path.name for path in run.path.iterdir() if path.name.startswith(".")] == []
    assert list((tmp_path / "runs" / "cache").iterdir()) == [run.path]


def test_a_finished_run_is_reused_and_not_rewritten(tmp_path):
    first = finish(tmp_path, result={"n": 1})
    before = (first.path / "run.json").read_bytes()
    second = finish(tmp_path)
    assert (second.state, second.path, second.id) == ("done", first.path, first.id)
    assert (first.path / "run.json").read_bytes() == before


def test_a_finished_run_that_lost_an_output_is_done_again(tmp_path):
    first = finish(tmp_path)
    (first.path / "out.txt").unlink()
    assert finish(tmp_path).state == "resumed"
    assert finish(tmp_path).state == "done"


def test_an_output_that_changed_its_length_is_seen_set_aside_and_made_again(tmp_path):
    with open_run("cache", CONFIG, root=tmp_path) as run:
        (run.path / "acts").mkdir()
        for name in ("acts/shard.h5", "table.txt"):
            (run.path / name).write_bytes(b"0123456789")
        run.finish()
    assert read_run(run.path).sizes == {"acts/shard.h5": 10, "table.txt": 10}
    (run.path / "acts/later.h5").write_bytes(b"an embedding, added when the run was done")
    assert finish(tmp_path).state == "done"
    (run.path / "acts/shard.h5").write_bytes(b"0123")
    with open_run("cache", CONFIG, root=tmp_path) as again:
        assert again.state == "resumed"
        assert not (run.path / "acts/shard.h5").exists()
        assert (run.path / "acts/.shard.h5.damaged").read_bytes() == b"0123"
        assert (run.path / "table.txt").exists()
        (run.path / "acts/shard.h5").write_bytes(b"0123456789")
        again.finish()
    assert finish(tmp_path).state == "done"
    (run.path / "acts/shard.h5").unlink()
    assert finish(tmp_path).state == "resumed"


def test_a_failed_run_keeps_its_error_and_its_files_and_resumes(tmp_path):
    run = fail(tmp_path, ZeroDivisionError("by nought"))
    manifest = json.loads((run.path / "run.json").read_text())
    assert (manifest["status"], manifest["error"]) == ("failed", "ZeroDivisionError: by nought")
    assert read_run(run.path).error == "ZeroDivisionError: by nought"
    again = finish(tmp_path)
    assert again.state == "resumed"
    assert (again.path / "part.txt").read_text() == "kept"
    assert "error" not in json.loads((run.path / "run.json").read_text())


def test_a_body_that_forgets_to_finish_is_not_done(tmp_path):
    with (
        pytest.raises(ValueError, match=r"without run\.finish"),
        open_run("fit", {}, root=tmp_path),
    ):
        pass
    assert next(iter(list_runs(tmp_path).values())).status == "failed"


def test_an_output_that_is_not_there_cannot_be_finished_with(tmp_path):
    with (
        pytest.raises(FormatError, match=r"lacks its output 'table\.parquet'"),
        open_run("fit", {}, root=tmp_path) as run,
    ):
        run.finish(outputs=[run.path / "table.parquet"])


def test_a_folder_of_another_run_is_refused_with_the_keys_and_moved_aside_by_force(tmp_path):
    place = tmp_path / "mine"
    finish(tmp_path, out=place)
    other = {**CONFIG, "nested": {"rate": 0.5}}
    with pytest.raises(MismatchError) as error:
        finish(tmp_path, other, out=place)
    assert "nested.rate: 0.1 -> 0.5" in str(error.value)
    assert "layers" not in str(error.value)
    assert read_run(place).config == CONFIG
    moved = finish(tmp_path, other, out=place, force=True)
    assert (moved.state, read_run(place).config) == ("new", other)
    assert read_run(tmp_path / "mine.old-1").config == CONFIG


def test_a_folder_that_is_no_run_is_never_written_into(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(MismatchError, match=r"holds no run\.json, so it is no run folder"):
        finish(tmp_path, out=tmp_path / "thesis")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        finish(tmp_path, out=tmp_path / "file")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]


def test_an_unfinished_run_is_no_input_and_a_finished_one_is_named(tmp_path):
    run = fail(tmp_path, RuntimeError())
    with pytest.raises(ConfigError, match="a cache run of status 'failed'; finish it first"):
        run_id("fit", {}, [run.path])
    first = finish(tmp_path)
    with open_run("fit", {}, root=tmp_path, inputs=[first.path, first.path / "out.txt"]) as fit:
        fit.finish()
    assert [entry["run"] for entry in read_run(fit.path).inputs] == [first.id, first.id]


def test_a_run_as_input_stands_for_its_outputs_and_not_for_its_clock(tmp_path):
    first = finish(tmp_path / "a")
    before = hash_path(first.path)
    shutil.rmtree(tmp_path / "a")
    assert hash_path(finish(tmp_path / "a").path) == before
    (first.path / "out.txt").write_text("changed")
    assert hash_path(first.path) != before


def test_a_folder_with_a_hash_list_is_hashed_by_it(tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "hashes.json").write_text("{}")
    (tmp_path / "manifest.json").write_text("{}")
    before = hash_path(tmp_path)
    (tmp_path / "shards" / "x").write_text("not read")
    assert hash_path(tmp_path) == before
    (tmp_path / "hashes.json").write_text('{"x": "1"}')
    assert hash_path(tmp_path) != before


HOLD = """
import sys, time
from workbench.runs import open_run
with open_run("cache", {}, root=sys.argv[1]) as run:
    print(run.state, flush=True)
    time.sleep(60)
"""


@pytest.mark.thorough
def test_a_second_process_is_refused_and_a_dead_ones_lock_is_taken_over(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline().strip() == "new"
        with (
            pytest.raises(WorkbenchError, match=f"being written by process {child.pid} on"),
            open_run("cache", {}, root=tmp_path),
        ):
            pytest.fail("two processes hold one run")
        assert [run.status for run in list_runs(tmp_path).values()] == ["running"]
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert [run.status for run in list_runs(tmp_path).values()] == ["interrupted"]
    with open_run("cache", {}, root=tmp_path) as run:
        assert run.state == "resumed"
        run.finish()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [run.id]


def test_runs_are_listed_with_unreadable_ones_among_them(tmp_path):
    done = finish(tmp_path)
    broken = tmp_path / "fit" / "x"
    broken.mkdir(parents=True)
    (broken / "run.json").write_text('{"format": "interp')
    found = list_runs(tmp_path)
    assert {path: run.status for path, run in found.items()} == {
        done.path: "done",
        broken: "unreadable",
    }
    assert "cannot be read" in found[broken].config["error"]
    assert list_runs(tmp_path / "nowhere") == {}


def test_a_manifest_of_another_format_or_version_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"no run\.json in"):
        read_run(tmp_path)
    path = tmp_path / "run.json"
    path.write_text("{}")
    with pytest.raises(FormatError, match="no run manifest"):
        read_run(tmp_path)
    path.write_text(json.dumps({"format": "interp-workbench/run", "version": 7}))
    with pytest.raises(FormatError, match="version 7, this program reads 1"):
        read_run(tmp_path)
    path.write_text(json.dumps({"format": "interp-workbench/run", "version": 1}))
    with pytest.raises(FormatError, match="missing"):
        read_run(tmp_path)


def test_the_version_1_fixture_always_opens():
    run = read_run(FIXTURE)
    assert (run.id, run.verb, run.status) == ("0123456789ab", "measure", "done")
    assert run.inputs == ({"path": "prompts.csv", "sha256": "ab" * 32, "run": None},)
    assert run.outputs == ("results.parquet",)
    assert read_result(FIXTURE) == {"rows": 3}


def test_settings_become_plain_json():
    assert plain(Settings()) == {"rate": 0.1, "place": "a"}
    found = plain({"a": np.float32(0.5), "b": (1, {2}), "c": float("inf"), "d": np.arange(2)})
    assert found == {"a": 0.5, "b": [1, [2]], "c": "inf", "d": [0, 1]}
    with pytest.raises(ConfigError, match="cannot stand in the settings"):
        plain({"a": object()})


def test_differences_name_nested_keys_and_stay_short():
    old, new = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 5}, "e": [1] * 500}
    found = differing(old, new)
    assert found[:2] == ["a.c: 2 -> 5", "d: 3 -> 'absent'"]
    assert all(len(line) < 200 for line in found)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_need_and_room_and_keeps_the_old_file(tmp_path, monkeypatch, code):
    path = tmp_path / "x"
    write_bytes(path, b"old")

    def full(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("workbench.files.os.fsync", full)
    with pytest.raises(WorkbenchError, match=r"disk is full: .*x needs 5.0 kB, .* are free"):
        write_bytes(path, b"n" * 5000)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_explained(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(WorkbenchError, match="cannot write"):
        finish(tmp_path / "file" / "below")


def test_sizes_read_well():
    assert [format_bytes(n) for n in (0, 999, 8_847_360, 3 * 10**12)] == [
        "0 bytes",
        "999 bytes",
        "8.8 MB",
        "3.0 TB",
    ]


def test_a_start_that_failed_before_it_wrote_anything_does_not_block_its_folder(tmp_path):
    out = tmp_path / "P-s0"
    with pytest.raises(ConfigError, match="too few"), open_run("train", {"tokens": 5}, out=out):
        raise ConfigError("too few")
    with open_run("train", {"tokens": 6}, out=out) as run:
        assert run.state == "new"
        run.finish()
    with (
        pytest.raises(MismatchError, match="tokens"),
        open_run("train", {"tokens": 7}, out=out),
    ):
        pass


def do_part(root, part, complete, config=CONFIG, body=None, **options):
    with open_run("cache", config, root=root, part=part, **options) as run:
        if run.state != "done":
            (run.path / f"part-{run.part[0]}.txt").write_text("x")
            if body is not None:
                body(run)
            run.finish({"part": run.part[0]}, complete=complete)
    return run


def locks(root):
    return sorted(path.name for path in root.rglob(".*lock"))


def test_a_run_in_parts_is_done_when_the_last_one_says_so(tmp_path):
    first = do_part(tmp_path, "0/2", complete=False)
    assert (first.state, first.part, read_run(first.path).status) == ("new", (0, 2), "running")
    assert [run.status for run in list_runs(tmp_path).values()] == ["interrupted"]
    last = do_part(tmp_path, (1, 2), complete=True)
    assert (last.state, last.id, last.path) == ("resumed", first.id, first.path)
    run = read_run(last.path)
    assert (run.status, run.outputs) == ("done", ("part-0.txt", "part-1.txt"))
    assert do_part(tmp_path, "0/2", complete=False).state == "done"
    assert finish(tmp_path).state == "done"
    assert locks(tmp_path) == []


def test_parts_work_side_by_side_and_nobody_else_does(tmp_path):
    def beside(run):
        assert [entry.status for entry in list_runs(tmp_path).values()] == ["running"]
        other = do_part(tmp_path, "1/2", complete=False)
        assert (other.id, other.state) == (run.id, "resumed")
        for call in (
            lambda: do_part(tmp_path, "0/2", complete=False),
            lambda: finish(tmp_path),
        ):
            with pytest.raises(WorkbenchError, match=r"being written by process \d+ on"):
                call()
        assert [entry.status for entry in list_runs(tmp_path).values()] == ["running"]

    run = do_part(tmp_path, "0/2", complete=True, body=beside)
    assert read_run(run.path).status == "done"
    assert locks(tmp_path) == []


def test_no_part_starts_beside_a_whole_run(tmp_path):
    with open_run("cache", CONFIG, root=tmp_path) as run:
        with pytest.raises(WorkbenchError, match="being written"):
            do_part(tmp_path, "0/2", complete=False)
        run.finish()
    assert locks(tmp_path) == []


def test_parts_of_another_run_are_refused_even_by_force_while_some_are_at_work(tmp_path):
    def beside(run):
        with pytest.raises(MismatchError, match=r"nested\.rate: 0\.1 -> 0\.2.*others are writing"):
            do_part(
                tmp_path,
                "1/2",
                False,
                {**CONFIG, "nested": {"rate": 0.2}},
                out=run.path,
                force=True,
            )

    run = do_part(tmp_path, "0/2", complete=False, body=beside, out=tmp_path / "named")
    other = {**CONFIG, "nested": {"rate": 0.2}}
    moved = do_part(tmp_path, "0/2", True, other, out=run.path, force=True)
    assert (moved.state, read_run(tmp_path / "named.old-1").id) == ("new", run.id)


def test_a_part_that_fails_is_written_down_unless_the_others_found_everything(tmp_path):
    def fail_part(run):
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        do_part(tmp_path, "0/2", complete=False, body=fail_part)
    folder = next(iter(list_runs(tmp_path)))
    assert json.loads((folder / "run.json").read_text())["error"] == "OSError: no network"

    def done_meanwhile(run):
        do_part(tmp_path, "1/2", complete=True)
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        do_part(tmp_path, "0/2", complete=False, body=done_meanwhile)
    assert read_run(folder).status == "done"


def test_only_a_part_can_end_incomplete(tmp_path):
    with (
        pytest.raises(ValueError, match="only a part"),
        open_run("cache", CONFIG, root=tmp_path) as run,
    ):
        run.finish(complete=False)


def test_parts_that_start_and_end_at_the_same_moment_never_refuse_each_other(tmp_path):
    number = 8
    together = threading.Barrier(number)

    def work(index):
        together.wait()

        def body(run):
            together.wait()

        run = do_part(tmp_path, (index, number), complete=False, body=body)
        together.wait()
        whole = len(list(run.path.glob("part-*.txt"))) == number
        return do_part(tmp_path, (index, number), complete=whole)

    with ThreadPoolExecutor(number) as pool:
        runs = list(pool.map(work, range(number)))
    assert len({run.id for run in runs}) == 1
    assert read_run(runs[0].path).status == "done"
    assert locks(tmp_path) == []


@pytest.mark.parametrize("part", ["2/2", "x", "1", "-1/2", (0, 0), "0/0"])
def test_a_part_that_is_none_is_refused(tmp_path, part):
    with pytest.raises(ConfigError, match="give i/n"):
        do_part(tmp_path, part, complete=False)


def test_a_tree_comes_back_from_its_bytes_with_arrays_of_the_same_type():
    tree = {
        "values": [[np.arange(3, dtype=np.float32), ["a text", "ü"]], []],
        "flag": True,
        "none": None,
        "number": np.int64(4),
        "nan": float("nan"),
        "wide": np.ones((2, 0), bool),
    }
    found = unpack_tree(pack_tree(tree))
    np.testing.assert_array_equal(found["values"][0][0], tree["values"][0][0])
    assert found["values"][0][0].dtype == np.float32
    assert found["values"][0][1] == ["a text", "ü"]
    assert (found["flag"], found["none"], found["number"]) == (True, None, 4)
    assert np.isnan(found["nan"])
    assert found["wide"].shape == (2, 0)
    with pytest.raises(TypeError):
        pack_tree({"a": object()})


def test_units_of_all_parts_are_joined_once_all_are_there(tmp_path):
    with open_run("sweep", {}, root=tmp_path, part="1/2") as run:
        units = Units(run, 5, "abc")
        assert units.own() == [1, 3]
        units.keep(1, {"rows": 1})
        assert units.lacking() == [3]
        units.keep(3, {"rows": 3})
        with units.joining() as complete:
            assert not complete
        run.finish(complete=False)
    with open_run("sweep", {}, root=tmp_path) as run:
        assert Units(run, 5, "another").lacking() == [0, 1, 2, 3, 4]
        units = Units(run, 5, "abc")
        assert units.lacking() == [0, 2, 4]
        for unit in units.lacking():
            units.keep(unit, {"rows": unit})
        with units.joining() as complete:
            assert complete
            assert [units.load(unit)["rows"] for unit in range(5)] == [0, 1, 2, 3, 4]
        run.finish()
        assert run.outputs == ()
    discard_units(run.path)
    assert [path.name for path in run.path.iterdir()] == ["run.json"]
    assert locks(tmp_path) == []


def test_a_damaged_unit_is_removed_and_said(tmp_path):
    with open_run("sweep", {}, root=tmp_path) as run:
        units = Units(run, 1, "abc")
        units.keep(0, {"rows": np.arange(1000)})
        image = bytearray(units.path(0).read_bytes())
        image[len(image) // 2] ^= 1
        units.path(0).write_bytes(bytes(image))
        with pytest.raises(FormatError, match="run the same command again"):
            units.load(0)
        assert units.lacking() == [0]
        run.finish()


@pytest.mark.parametrize("error", [ConfigError, FormatError, MismatchError, UnknownNameError])
def test_a_refusal_before_anything_is_written_leaves_no_folder(tmp_path, error):
    with pytest.raises(error), open_run("fit", CONFIG, root=tmp_path):
        raise error("no such column")
    assert list((tmp_path / "fit").iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(error), open_run("fit", CONFIG, out=tmp_path / "mine"):
        raise error("no such column")
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_refusal_in_the_folder_of_an_earlier_failure_leaves_none_either(tmp_path):
    def refuse(folder, error):
        with open_run("fit", CONFIG, out=folder) as run:
            (run.path / ".units" / "abc").mkdir(parents=True, exist_ok=True)
            raise error

    with pytest.raises(ZeroDivisionError), open_run("fit", CONFIG, out=tmp_path / "a"):
        raise ZeroDivisionError
    with pytest.raises(ConfigError):
        refuse(tmp_path / "a", ConfigError("no such column"))
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    for _ in range(2):
        with pytest.raises(ConfigError):
            refuse(tmp_path / "mine", ConfigError("no such column"))
        assert list((tmp_path / "mine").iterdir()) == []


def test_a_refusal_after_something_was_written_is_kept_as_failed(tmp_path):
    run = fail(tmp_path, ConfigError("dose 3"))
    assert read_run(run.path).error == "ConfigError: dose 3"
    with pytest.raises(ConfigError), open_run("cache", CONFIG, root=tmp_path):
        raise ConfigError("again")
    assert (run.path / "part.txt").exists()


def test_ctrl_c_leaves_an_interrupted_run_that_says_what_it_resumes_from(tmp_path):
    run = fail(tmp_path, KeyboardInterrupt())
    assert [one.status for one in list_runs(tmp_path).values()] == ["interrupted"]
    (run.path / "acts").mkdir()
    (run.path / "acts" / "shard.h5").write_text("x")
    (run.path / ".units" / "abc").mkdir(parents=True)
    for unit in range(2):
        (run.path / ".units" / "abc" / f"{unit}.npz").write_text("x")
    started = read_run(run.path).started
    again = fail(tmp_path, ZeroDivisionError("by\nnought"))
    assert again.kept == (
        f"the run of {started} was interrupted; kept: 2 finished units of work, "
        "acts/ with 1 file, part.txt"
    )
    with open_run("cache", CONFIG, root=tmp_path) as last:
        assert "failed (ZeroDivisionError: by); kept: 2 finished" in last.kept
        last.finish()
    with open_run("cache", CONFIG, root=tmp_path) as reused:
        assert reused.kept == ""


def test_foreseeing_a_run_changes_nothing(tmp_path):
    run = plan_run("cache", CONFIG, (), None)
    place = tmp_path / "cache" / run.id
    assert foresee(place, run) == "new"
    finish(tmp_path)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in place.iterdir())
    assert foresee(place, run) == "done"
    other = plan_run("cache", {}, (), None)
    with pytest.raises(MismatchError, match="holds run"):
        foresee(place, other)
    assert foresee(place, other, force=True) == "new"
    assert sorted((path.name, path.stat().st_mtime_ns) for path in place.iterdir()) == before
    (place / "out.txt").unlink()
    assert foresee(place, run) == "resumed"
