"""SIGKILL at any moment, two writers, a full disk: what lies there is whole, and a resumed capture
leaves the same bytes."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from workbench.activations import open_activations, verify

pytestmark = pytest.mark.thorough

KILLS = 20
STEPS = (0, 1, 2, 5, 8)
"""Further kills inside the write path: at the n-th fsync of a process."""
SCRIPT = """
import importlib.util, json, os, random, shutil, signal, subprocess, sys, time
from pathlib import Path
import torch
from workbench.activations import capture, open_activations
from workbench.activations.store import Store, existing_manifest
from workbench.errors import FormatError, WorkbenchError
from workbench.models import read_checkpoint
from workbench.prompts import PromptSet
from workbench.registry import ENGINES

torch.set_num_threads(1)
spec = importlib.util.spec_from_file_location("tiny", sys.argv[1])
tiny = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny)
root, kills, steps = Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
subject = read_checkpoint(str(tiny.tiny_folder(root / "model")), dtype="bfloat16", device="cpu")
subject.runner = ENGINES.create("hooks")
draw = random.Random(7)
texts = ["A city is true " * draw.randint(1, 9) for _ in range(120)]
prompts = PromptSet.from_records([{"text": text, "label": len(text) % 2} for text in texts])

def run(out, shard=None):
    return capture(subject, prompts, out=out, shard_rows=3, budget=64, shard=shard)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def die_at_step(step):
    real, calls = os.fsync, []
    def fsync(file):
        calls.append(file)
        die() if len(calls) > step else real(file)
    os.fsync = fsync

def killed_at_step(step):
    child = os.fork()
    if child == 0:
        die_at_step(step)
        run(root / "killed")
        os._exit(0)
    return os.waitpid(child, 0)[1]

def killed_at_random(seconds):
    child = os.fork()
    if child == 0:
        run(root / "killed")
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]

def survey():
    folder = root / "killed"
    manifest = existing_manifest(folder)
    if manifest is None:
        return 0
    store = Store(folder, manifest)
    found = [shard for shard in manifest.shards if store.shard(*shard).path.exists()]
    for shard in found:
        store.shard(*shard).check_values()
    try:
        open_activations(folder)
    except FormatError:
        refused = True
    else:
        refused = False
    assert refused == (len(found) < len(manifest.shards))
    return len(found)

def forked(*shards, out, first_dies_at=None):
    children = []
    for shard in shards:
        child = os.fork()
        if child == 0:
            if first_dies_at is not None and not children:
                die_at_step(first_dies_at)
            run(out, shard)
            os._exit(0)
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]

def full_disk(place):
    module = importlib.import_module("workbench.activations.capture")
    real, module.free_bytes = module.free_bytes, lambda _: 1 << 40
    try:
        run(place / "acts")
    except WorkbenchError as error:
        message = str(error)
    module.free_bytes = real
    left = sorted(path.name for path in (place / "acts").rglob("*") if path.is_file())
    store = Store(place / "acts", existing_manifest(place / "acts"))
    shards = [shard for shard in store.manifest.shards if store.shard(*shard).path.exists()]
    for shard in shards:
        store.shard(*shard).check_values()
    return {"message": message, "shards": len(shards), "left": left}

run(root / "warm")
start = time.monotonic()
run(root / "whole")
seconds = time.monotonic() - start
signals, kept = [], []
for step in steps:
    signals.append(killed_at_step(step))
    kept.append(survey())
for _ in range(kills):
    signals.append(killed_at_random(draw.uniform(0, seconds / 2 / kills)))
    kept.append(survey())
run(root / "killed")
parts = [(0, 2), (1, 2)]
writers = {
    "parts": forked(*parts, out=root / "parts"),
    "same": forked(None, None, out=root / "same"),
    "same_part": forked(parts[0], parts[0], out=root / "same_part"),
    "one_killed": forked(*parts, out=root / "one_killed", first_dies_at=9),
}
part_was_whole = (root / "same_part" / "hashes.json").exists()
forked(parts[1], out=root / "same_part")
forked(parts[0], out=root / "one_killed")
disk = None
if len(sys.argv) > 5:
    disk = full_disk(Path(sys.argv[5]))
    subprocess.run(["mount", "-o", "remount,size=64m", sys.argv[5]], check=True)
    run(Path(sys.argv[5]) / "acts")
    shutil.copytree(Path(sys.argv[5]) / "acts", root / "disk")
extra = {"writers": writers, "part_was_whole": part_was_whole, "disk": disk}
print(json.dumps({"signals": signals, "kept": kept, "shards": 40, "seconds": seconds, **extra}))
"""


@contextmanager
def small_disk(place):
    """A file system of 128 kB where this user may mount one, else None."""
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    root = tmp_path_factory.mktemp("kill")
    tiny = Path(__file__).parents[1] / "tiny.py"
    arguments = [str(tiny), str(root), str(KILLS), json.dumps(STEPS)]
    with small_disk(tmp_path_factory.mktemp("disk") / "small") as disk:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments, *([str(disk)] if disk else [])],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return root, json.loads(done.stdout.splitlines()[-1])


def test_every_process_was_killed_and_lost_no_finished_shard(killed):
    _, report = killed
    assert report["signals"] == [9] * (len(STEPS) + KILLS), report
    assert report["kept"] == sorted(report["kept"])
    assert 0 < report["kept"][-1] < report["shards"], report


def test_the_resumed_files_are_those_of_an_uninterrupted_run(killed):
    root, _ = killed
    assert_alike(root / "killed", root / "whole")


def assert_alike(one, whole):
    paths = sorted(path.relative_to(whole) for path in whole.glob("**/*.*"))
    assert len(paths) == 44
    assert paths == sorted(path.relative_to(one) for path in one.glob("**/*.*"))
    for path in paths:
        if path.name == "acts.h5":
            continue  # the view for foreign readers carries HDF5's time stamps; compared below
        assert (one / path).read_bytes() == (whole / path).read_bytes(), path
    assert verify(one) == verify(whole)


@pytest.mark.parametrize("name", ["parts", "same", "same_part", "one_killed"])
def test_two_processes_at_once_leave_what_one_leaves(killed, name):
    root, report = killed
    assert report["writers"][name] == ([9, 0] if name == "one_killed" else [0, 0])
    assert not report["part_was_whole"]
    assert_alike(root / name, root / "whole")


def test_a_disk_that_fills_up_keeps_what_was_whole_and_is_gone_on_with(killed):
    root, report = killed
    if report["disk"] is None:
        pytest.skip("this user may not mount a small file system")
    assert re.search("the disk is full: .* are free; free some space", report["disk"]["message"])
    assert 0 < report["disk"]["shards"] < report["shards"]
    assert [name for name in report["disk"]["left"] if name.endswith(".tmp")] == []
    assert "hashes.json" not in report["disk"]["left"]
    assert_alike(root / "disk", root / "whole")


def test_the_values_are_bit_for_bit_the_same(killed):
    root, _ = killed
    whole, resumed = (open_activations(root / name) for name in ("whole", "killed"))
    assert whole.dtype == resumed.dtype == "bfloat16"
    np.testing.assert_array_equal(whole.values, resumed.values)
    with h5py.File(root / "whole" / "acts.h5") as a, h5py.File(root / "killed" / "acts.h5") as b:
        assert a["values"][...].tobytes() == b["values"][...].tobytes()
