"""A cache run from the shell, killed at random moments: the same command leaves the same bytes."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import h5py
import pytest

KILLS = 3
"""One before the first row is written, the others while rows are."""
ROWS = 600
"""Three shards of short statements."""


def cache(folder, out):
    command = "from workbench.cli import main; main()"
    words = ["cache", "smollm2", "statements.jsonl", "--out", out, "--device", "cpu", "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", command, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def values(folder):
    """The bytes of ``/values`` of every shard, by name."""
    found = {}
    for shard in sorted((folder / "acts" / "shards").glob("*.h5")):
        with h5py.File(shard) as file:
            found[shard.name] = file["values"][...].tobytes()
    return found


@pytest.mark.real
def test_a_cache_run_killed_again_and_again_resumes_to_the_same_values(tmp_path):
    rows = [{"text": f"{n} is less than {n % 7}.", "label": n % 2} for n in range(ROWS)]
    (tmp_path / "statements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    started = time.monotonic()
    whole = cache(tmp_path, "whole")
    while not (tmp_path / "whole" / "acts" / "manifest.json").exists():
        assert whole.poll() is None or whole.returncode == 0
        time.sleep(0.01)
    writing = time.monotonic() - started
    whole.communicate(timeout=240)
    assert whole.returncode == 0
    total = time.monotonic() - started

    draw = random.Random(0)
    moments = [draw.uniform(0, writing), *(draw.uniform(writing, total) for _ in range(KILLS - 1))]
    kept = []
    for moment in sorted(moments):
        process = cache(tmp_path, "killed")
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=240)
        kept.append(len(values(tmp_path / "killed")))  # every file there opens whole
    assert kept == sorted(kept)
    said, _ = cache(tmp_path, "killed").communicate(timeout=240)
    assert json.loads(said)["status"] in ("done", "reused")
    assert len(values(tmp_path / "whole")) == 2  # shards
    assert values(tmp_path / "killed") == values(tmp_path / "whole")
    assert not [path for path in (tmp_path / "killed").rglob("*") if path.suffix == ".tmp"]
