"""Readouts in units: cut by the inputs alone, joined to what one call gives, even if killed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from workbench.directions import Directions
from workbench.readouts import ask_units
from workbench.readouts.ask import ask
from workbench.readouts.ask_units import ask_in_units, cut
from workbench.runs import open_run, read_run
from workbench.sweeps import Design
from workbench.types import CandidatesRead, GenerateRead, LogitsRead, Measurement, Request


def request(name, tokens, *reads):
    ids = tuple(20 + place % 30 for place in range(tokens))
    return Request(str(name), "x", ids, reads or (LogitsRead((300, 301)),))


class Spelled:
    """A readout of prompts of many lengths, whose score wants all of them at once."""

    name = "spelled"

    def requests(self, subject):
        return [request(n, 3 + n % 4) for n in range(12)]

    def score(self, requests, answers):
        logs = np.array([float(answer[0][0]) for answer in answers])
        return [
            Measurement(self.name, "share", r.item, r.condition, float(value - logs.mean()))
            for r, value in zip(requests, logs, strict=True)
        ]


def arms(subject, scope="all"):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(1, 2, subject.width)).astype(np.float32)
    own = Directions(names=("a",), layers=(1, 2), vectors=vectors, model=subject.stamp)
    design = Design([1.0, 3.0], layers=[[1], [1, 2]], controls=1, scope=scope)
    return [window.arms for window in design.windows(subject, own)]


def test_pieces_cover_every_request_once_in_order_and_stay_small(monkeypatch):
    monkeypatch.setattr(ask_units, "PROMPT_TOKENS", 50)
    monkeypatch.setattr(ask_units, "ARM_TOKENS", 120)
    requests = [request(n, 7 + n % 5) for n in range(30)]
    sets = [[()], [(), (), (), ()]]
    pieces = list(cut(requests, sets))
    assert pieces == list(cut(requests, sets))
    for number, most in ((0, 50), (1, 30)):
        own = [piece for piece in pieces if piece.arms == number]
        assert [row for p in own for row in range(p.first, p.stop)] == list(range(30))
        sizes = [sum(len(r.ids) for r in requests[p.first : p.stop]) for p in own]
        assert max(sizes) <= most
        assert len(own) > 3
    long = [request(0, 500), request(1, 500)]
    assert [(p.first, p.stop) for p in cut(long, [[()]])] == [(0, 1), (1, 2)]


def test_what_is_tried_and_written_behind_a_prompt_counts_too(monkeypatch):
    monkeypatch.setattr(ask_units, "PROMPT_TOKENS", 100)
    plain = [request(n, 10) for n in range(8)]
    assert len(list(cut(plain, [[()]]))) == 1
    for read in (CandidatesRead(((1,) * 20, (2,) * 20)), GenerateRead(n=2, max_new_tokens=20)):
        assert len(list(cut([request(n, 10, read) for n in range(8)], [[()]]))) == 4


@pytest.mark.parametrize("scope", ["all", "last"])
def test_units_join_to_what_one_call_gives(tiny_subject, tmp_path, monkeypatch, scope):
    sets = arms(tiny_subject, scope)
    wanted = [ask(tiny_subject, [Spelled()], one) for one in sets]
    monkeypatch.setattr(ask_units, "PROMPT_TOKENS", 15)
    told = []
    with open_run("sweep", {}, root=tmp_path) as run:
        found = ask_in_units(
            tiny_subject, [Spelled()], sets, run, progress=lambda *n: told.append(n)
        )
        run.finish()
    assert told[-1] == (24, 24)
    assert told == sorted(told)
    for left, right in zip(found, wanted, strict=True):
        for one, other in zip(left, right, strict=True):
            assert one.realised == pytest.approx(other.realised, abs=1e-5)
            assert one.engaged == pytest.approx(other.engaged, abs=1e-6)
            np.testing.assert_allclose(
                [m.value for m in one.measurements], [m.value for m in other.measurements],
                atol=1e-5,
            )  # fmt: skip
    assert abs(found[1][2].realised) > 0.1


def test_units_of_other_requests_are_not_taken_for_these(tiny_subject, tmp_path, monkeypatch):
    monkeypatch.setattr(ask_units, "PROMPT_TOKENS", 15)

    class Longer(Spelled):
        def requests(self, subject):
            return [request(n, 4 + n % 4) for n in range(12)]

    with open_run("measure", {}, root=tmp_path, part="0/2") as run:
        assert ask_in_units(tiny_subject, [Spelled()], [[()]], run) is None
        run.finish(complete=False)
    with open_run("measure", {}, root=tmp_path, part="1/2") as run:
        assert ask_in_units(tiny_subject, [Longer()], [[()]], run) is None
        run.finish(complete=False)


MEASURE = """
import sys
from workbench.pipelines.verbs import carry_out
from workbench.readouts import ask_units
ask_units.PROMPT_TOKENS = 60
settings = {"model": "model", "readouts": ["claims"], "device": "cpu"}
print(carry_out("measure", settings, shard=sys.argv[1]).status, flush=True)
"""


@pytest.mark.thorough
def test_two_shares_at_once_one_of_them_killed_leave_the_whole_table(
    tiny_folder, tmp_path, monkeypatch
):
    tiny_folder(tmp_path / "model")
    (tmp_path / "measure.py").write_text(MEASURE)
    folder = {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    folder["env"] = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}

    def start(shard):
        return subprocess.Popen([sys.executable, "measure.py", shard], **folder)

    first, second = start("0/2"), start("1/2")
    while not list(tmp_path.glob("runs/measure/*/.units/*/*[13579].npz")):
        assert second.poll() is None
        time.sleep(0.005)
    second.send_signal(signal.SIGKILL)
    second.communicate()
    assert first.communicate(timeout=120)[0] == "part\n"
    kept = {p: p.stat().st_mtime_ns for p in tmp_path.glob("runs/measure/*/.units/*/*.npz")}
    assert kept
    (run,) = {path.parents[2] for path in kept}
    assert read_run(run).status == "running"
    assert start("1/2").communicate(timeout=120)[0] == "done\n"
    assert read_run(run).status == "done"
    assert not (run / ".units").exists()

    from workbench.pipelines.verbs import carry_out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ask_units, "PROMPT_TOKENS", 60)
    monkeypatch.setattr("workbench.api.cache_root", lambda: tmp_path / "cache")
    settings = {"model": "model", "readouts": ["claims"], "device": "cpu"}
    whole = carry_out("measure", settings, root=tmp_path / "whole")
    frames = [pd.read_parquet(path / "results.parquet") for path in (run, whole.path)]
    pd.testing.assert_frame_equal(*frames)
