"""Runs that end early, by a kill, a full disk or the user, go on to the same organism."""

import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from workbench_training import organism
from workbench_training.lora import train

from workbench.errors import WorkbenchError

pytestmark = pytest.mark.usefixtures("cheap_collection")
UPDATES = 6


def losses(folder):
    return [row["loss"] for row in organism.read_log(folder)]


class StopError(Exception):
    """Stands for whatever ends a run from outside."""


def stop_after(step):
    def progress(done, total):
        if done == step:
            raise StopError

    return progress


THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=THOROUGH), 5, pytest.param(6, marks=THOROUGH)]
)
def test_an_interrupted_run_goes_on_to_the_same_losses_and_the_same_adapter(
    step, settings, trained, tmp_path
):
    whole, config, _ = trained  # checkpoints after updates 2, 4 and 6, dropout on
    with pytest.raises(StopError):
        train(config, tmp_path, progress=stop_after(step))
    assert not (tmp_path / "adapter_config.json").exists()
    assert organism.read_card(tmp_path)["status"] == "running"
    train(config, tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(whole), abs=1e-6)
    for name in organism.ADAPTER:
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.thorough
def test_a_checkpoint_that_was_not_finished_is_not_resumed_from(settings, trained, tmp_path):
    whole, config, _ = trained
    with pytest.raises(StopError):
        train(config, tmp_path, progress=stop_after(5))
    last = tmp_path / "checkpoints" / "checkpoint-4"
    (last / "complete").unlink()
    (last / "adapter_model.safetensors").write_bytes(b"half")
    assert organism.last_checkpoint(tmp_path).name == "checkpoint-2"
    assert not last.exists()
    train(config, tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(whole), abs=1e-6)


def test_a_log_line_that_was_cut_short_is_trained_and_written_again(trained, tmp_path):
    folder, _, _ = trained
    text = (folder / "train_log.jsonl").read_text()
    (tmp_path / "train_log.jsonl").write_text(text[:-20])
    assert len(organism.read_log(tmp_path)) == UPDATES - 1
    organism.rewind_log(tmp_path, 2)
    assert [row["step"] for row in organism.read_log(tmp_path)] == [1, 2]


KILLED = """
import sys
from workbench.config import parse
from workbench_training.lora import TrainConfig, train
train(TrainConfig.model_validate_json(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_a_random_moment_goes_on_to_the_same_losses(
    seed, settings, trained, tmp_path
):
    whole, config, _ = trained
    out = tmp_path / "organism"
    logged = random.Random(seed).randint(1, UPDATES - 1)
    arguments = [sys.executable, "-c", KILLED, config.model_dump_json(), str(out)]
    process = subprocess.Popen(arguments, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None and len(organism.read_log(out)) < logged:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    assert organism.read_card(out)["status"] == "running"
    train(config, out)
    assert losses(out) == pytest.approx(losses(whole), abs=1e-6)
    for name in organism.ADAPTER:
        assert (out / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.thorough
def test_a_run_goes_on_at_another_pace_to_the_same_losses(settings, trained, tmp_path):
    whole, config, _ = trained
    with pytest.raises(StopError):
        train(config, tmp_path, progress=stop_after(3))
    train(settings(recompute="all"), tmp_path)
    assert losses(tmp_path) == pytest.approx(losses(whole), abs=1e-5)


@pytest.mark.parametrize(
    "size", [pytest.param(2_000, marks=THOROUGH), 20_000, pytest.param(60_000, marks=THOROUGH)]
)
def test_a_disk_without_room_is_named_and_the_run_goes_on_later(size, settings, trained, tmp_path):
    whole, config, _ = trained
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(WorkbenchError, match=r"room|space|File too large"):
            train(config, tmp_path / "organism")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "organism" / "adapter_config.json").exists()
    train(config, tmp_path / "organism")
    assert losses(tmp_path / "organism") == pytest.approx(losses(whole), abs=1e-6)
