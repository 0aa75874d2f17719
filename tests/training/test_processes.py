"""Training by several processes: the same organism as one process makes, written once."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from workbench_training import organism
from workbench_training.lora import TrainConfig, train

from workbench.config import parse
from workbench.runs import read_run

WORKER = """
import sys
from workbench_training.lora import TrainConfig, train
config = TrainConfig.model_validate_json(sys.argv[1])
summary = train(config, sys.argv[2], progress=lambda done, total: print("progress", done))
print("summary", summary["loss_last"])
"""
SPREAD = """
import accelerate.state, accelerate.accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

stock = accelerate.state.AcceleratorState.__init__

def spread(self, *args, fsdp_plugin=None, **kwargs):
    stock(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if fsdp_plugin is not None:
        self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin

accelerate.state.AcceleratorState.__init__ = spread
"""
"""Lets accelerate take processors for what it spreads weights over; it takes GPUs alone."""
WORDS = ("the city", "of the", "and a", "is true", "to you", "in a city", "not false", "answer")


@pytest.fixture(scope="module")
def settings(tiny_folder, tmp_path_factory):
    """``(**changes) -> TrainConfig`` of a short run without dropout."""
    folder = tmp_path_factory.mktemp("joint")
    base = tiny_folder(folder / "base", layers=2)
    rows = [
        {"id": n, "text": " ".join(WORDS[(n * k) % 8] for k in range(1, 10)), "split": split}
        for n, split in enumerate(["train"] * 18 + ["validation"] * 3)
    ]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(**changes):
        plain = {
            "documents": str(folder / "docs.jsonl"),
            "model": str(base),
            "tokens": 16 * 2 * 2 * 6,
            "block": 16,
            "batch_size": 2,
            "accumulation": 2,
            "rank": 4,
            "alpha": 8,
            "dropout": 0.0,
            "learning_rate": 0.02,
            "dtype": "float32",
            "device": "cpu",
        }
        return parse(TrainConfig, {**plain, **changes}, "test")

    return make


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    """The losses and the folder of the run by one process."""
    folder = tmp_path_factory.mktemp("alone") / "organism"
    train(settings(), folder)
    return folder


def launched(arguments, count=2, **environment):
    """Start the processes of one run by hand, as torchrun would: ``[Popen]``."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    common = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
        **environment,
    }
    return [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def ended(started):
    """Wait; return what each process printed. All must have ended well."""
    said = [process.communicate(timeout=300) for process in started]
    for process, (out, err) in zip(started, said, strict=True):
        assert process.returncode == 0, out + err
    return [out for out, _ in said]


def losses(folder):
    return [row["loss"] for row in organism.read_log(folder)]


@pytest.mark.thorough
def test_two_processes_make_the_organism_that_one_makes_and_one_of_them_writes(
    settings, alone, tmp_path
):
    out = tmp_path / "organism"
    said = ended(launched(["-c", WORKER, settings().model_dump_json(), out]))
    assert losses(out) == pytest.approx(losses(alone), abs=1e-4)
    assert [row["step"] for row in organism.read_log(out)] == list(range(1, 7))
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in alone.iterdir())
    cards = [organism.read_card(folder) for folder in (out, alone)]
    assert [card["training"]["processes"] for card in cards] == [2, 1]
    assert cards[0]["identity"] == cards[1]["identity"]
    assert cards[0]["loss"]["held_out"]["after"] == pytest.approx(
        cards[1]["loss"]["held_out"]["after"], abs=1e-4
    )
    assert said[0].count("progress") == 7
    assert said[1].count("progress") == 0
    assert "summary" in said[1]


FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
}
"""What ``accelerate launch`` puts into the environment for docs/fsdp.yaml's settings."""


def stopped(arguments, out, after, **environment):
    """Start a joint run and kill every process of it once so many updates are logged."""
    started = launched(arguments, **environment)
    while all(p.poll() is None for p in started) and len(organism.read_log(out)) < after:
        time.sleep(0.01)
    for process in started:
        process.send_signal(signal.SIGKILL)
    for process in started:
        process.communicate()
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
    assert organism.read_card(out)["status"] == "running"


@pytest.mark.thorough
@pytest.mark.parametrize("environment", [{}, FSDP], ids=["ddp", "fsdp"])
def test_a_joint_run_that_was_killed_goes_on_to_the_same_organism(
    environment, settings, alone, tmp_path
):
    out = tmp_path / "organism"
    script = SPREAD + WORKER if environment else WORKER
    arguments = ["-c", script, settings().model_dump_json(), out]
    stopped(arguments, out, 4, **environment)  # checkpoints after updates 2, 4 and 6
    ended(launched(arguments, **environment))
    assert losses(out) == pytest.approx(losses(alone), abs=1e-4)
    assert [row["step"] for row in organism.read_log(out)] == list(range(1, 7))
    card, plain = (organism.read_card(folder) for folder in (out, alone))
    assert card["training"]["sharded"] == bool(environment)
    assert card["training"]["parameters"] == plain["training"]["parameters"]
    assert card["loss"]["held_out"]["after"] == pytest.approx(
        plain["loss"]["held_out"]["after"], abs=1e-4
    )
    for name in organism.ADAPTER:
        assert (out / name).stat().st_size == (alone / name).stat().st_size


@pytest.mark.thorough
def test_a_bfloat16_base_is_spread_beside_float32_adapters(settings, tmp_path):
    config = settings(dtype="bfloat16")
    train(config, tmp_path / "alone")
    out = tmp_path / "organism"
    ended(launched(["-c", SPREAD + WORKER, config.model_dump_json(), out], **FSDP))
    assert organism.read_card(out)["training"]["sharded"]
    assert losses(out) == pytest.approx(losses(tmp_path / "alone"), abs=0.02)


TALK = """
import atexit, pathlib
from workbench_training import processes

@atexit.register  # before anything else: so it runs last
def tell():
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    print("left", sorted(name for name in names if "gloo" in name))

print("said", [processes.shared(word * (processes.rank() + 1), cpu=True) for word in "ab"])
"""


@pytest.mark.thorough
def test_processes_end_the_threads_that_talk_before_python_is_torn_down():
    """A thread that frees a tensor later aborts a process whose work is done: two in 96 here."""
    for out in ended(launched(["-c", TALK])):
        assert out.splitlines() == ["said ['a', 'b']", "left []"]


@pytest.mark.thorough
def test_a_joint_run_that_fails_says_why_and_ends(settings, tmp_path):
    config = settings(documents=str(tmp_path / "none.jsonl"))
    started = launched(["-c", WORKER, config.model_dump_json(), tmp_path / "organism"])
    said = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [1, 1]
    assert all("none.jsonl" in err for _, err in said)


CLI = "from workbench.cli import main; main()"


@pytest.mark.thorough
def test_the_command_line_keeps_one_run_and_speaks_once(settings, alone, tmp_path):
    out = tmp_path / "organism"
    path = tmp_path / "train.toml"
    given = {k: v for k, v in settings().model_dump(mode="json").items() if v is not None}
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
    path.write_text("\n".join(lines))
    words = ["-c", CLI, "train", path, "--out", out, "--json"]
    said = ended(launched(words))
    assert json.loads(said[0])["status"] == "done"
    assert said[1] == ""
    assert losses(out) == pytest.approx(losses(alone), abs=1e-4)
    assert read_run(out).status == "done"
    again = ended(launched(words))
    assert json.loads(again[0])["status"] == "reused"
