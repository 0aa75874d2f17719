"""SIGKILL at any moment: what is on disk is whole, and a resumed capture leaves the same bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from workbench.activations import open_activations, verify

KILLS = 6
STEPS = (0, 1, 2, 5, 8)
"""Further kills inside the write path: at the n-th fsync of a process."""
SCRIPT = """
import importlib.util, json, os, random, signal, sys, time
from pathlib import Path
import torch
from workbench.activations import capture, open_activations
from workbench.activations.store import Store, existing_manifest
from workbench.errors import FormatError
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

def run(out):
    capture(subject, prompts, out=out, shard_rows=3, budget=64)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def killed_at_step(step):
    child = os.fork()
    if child == 0:
        real, calls = os.fsync, []
        def fsync(file):
            calls.append(file)
            die() if len(calls) > step else real(file)
        os.fsync = fsync
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

run(root / "warm")
start = time.monotonic()
run(root / "whole")
seconds = time.monotonic() - start
signals, kept = [], []
for step in steps:
    signals.append(killed_at_step(step))
    kept.append(survey())
for _ in range(kills):
    signals.append(killed_at_random(draw.uniform(0, seconds / kills)))
    kept.append(survey())
run(root / "killed")
print(json.dumps({"signals": signals, "kept": kept, "shards": 40, "seconds": seconds}))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    root = tmp_path_factory.mktemp("kill")
    tiny = Path(__file__).parents[1] / "tiny.py"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tiny), str(root), str(KILLS), json.dumps(STEPS)],
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
    paths = sorted(path.relative_to(root / "whole") for path in root.glob("whole/**/*.*"))
    assert len(paths) == 43
    assert paths == sorted(path.relative_to(root / "killed") for path in root.glob("killed/**/*.*"))
    for path in paths:
        if path.name == "acts.h5":
            continue  # the view for foreign readers carries HDF5's time stamps; compared below
        assert (root / "whole" / path).read_bytes() == (root / "killed" / path).read_bytes(), path
    assert verify(root / "killed") == verify(root / "whole")


def test_the_values_are_bit_for_bit_the_same(killed):
    root, _ = killed
    whole, resumed = (open_activations(root / name) for name in ("whole", "killed"))
    assert whole.dtype == resumed.dtype == "bfloat16"
    np.testing.assert_array_equal(whole.values, resumed.values)
    with h5py.File(root / "whole" / "acts.h5") as a, h5py.File(root / "killed" / "acts.h5") as b:
        assert a["values"][...].tobytes() == b["values"][...].tobytes()
