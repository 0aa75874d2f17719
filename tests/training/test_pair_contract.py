"""What every method that a model trains promises: start, effect, sign, resume, batches, models."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from sklearn.base import clone
from workbench_training import organism
from workbench_training.pair_fit import fit_trained, make_method, train_on_pairs
from workbench_training.pair_loop import PairLoop
from workbench_training.pair_method import BOTH, Run
from workbench_training.pairs import read_pairs
from workbench_training.reply_scores import frozen

import workbench as wb
from workbench.directions import LinearMap, open_directions, open_map, save_directions, save_map
from workbench.errors import ConfigError, FormatError
from workbench.registry import METHODS, needs_model

NAMES = [name for name in METHODS.names() if needs_model(METHODS.factory(name))]
THOROUGH = pytest.mark.thorough


def numbers(found):
    """What was learned, as one array of each part."""
    if isinstance(found, LinearMap):
        return {"left": found.left, "right": found.right, "b": found.b, "axis": found.axis}
    return {"vectors": found.vectors}


def assert_equal(one, other, exact=True, **room):
    for name, value in numbers(one).items():
        if exact:
            np.testing.assert_array_equal(value, numbers(other)[name])
        else:
            np.testing.assert_allclose(value, numbers(other)[name], **room)


def intervention(found, dose=1.0, scope="user"):
    if isinstance(found, LinearMap):
        return wb.Intervention.map(found, layers=found.layers, dose=dose, scope=scope)
    return wb.Intervention.add(found, layers=found.layers, dose=dose, scope=scope)


def test_the_registry_finds_the_methods_by_their_files():
    assert set(NAMES) == {"bipo", "loreft", "reps"}


@pytest.mark.parametrize("name", NAMES)
def test_a_clone_has_the_same_parameters(name):
    one = METHODS.create(name)
    assert clone(one).get_params() == one.get_params()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("strength", [-2.0, 0.0, 1.0])
def test_the_start_is_no_edit(name, strength, subject_of, pair_rows, pair_config):
    subject, config = subject_of(), pair_config(method=name)
    pairs = read_pairs(pair_rows(), subject, config).trained
    with frozen(subject):
        loop = PairLoop(subject, make_method(config), config, (0, 1, 2, 3), pairs)
        plain = loop.observe(pairs).logprobs
        runs = [Run(run.reply, strength, null) for run in BOTH for null in (False, name == "reps")]
        with torch.no_grad(), loop._applied():
            found = loop.logprobs_of(pairs, runs).view(2, 2, -1)
    for way in range(2):
        np.testing.assert_allclose(found[:, way], plain, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_effect_is_found_and_holds_on_other_prompts(
    name, subject_of, pair_rows, pair_config
):
    rows = [{**row, "split": "test" if n > 5 else "train"} for n, row in enumerate(pair_rows(9))]
    config = pair_config(method=name, epochs=8)
    told = train_on_pairs(subject_of(), rows, config).told
    assert told["margin_after"] > told["margin_before"] + 0.1
    swapped = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    other = train_on_pairs(subject_of(), swapped, config).told
    assert other["margin_before"] == pytest.approx(-told["margin_before"], abs=1e-5)
    assert other["margin_after"] > other["margin_before"] + 0.1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("span", ["user", "assistant"])
def test_the_edit_of_training_is_that_of_the_engine(name, span, subject_of, pair_rows, pair_config):
    """The margin that training reports is what an intervention gives with the recorded scope."""
    subject = subject_of()
    rows = [{**row, "split": "test" if n else "train"} for n, row in enumerate(pair_rows(4))]
    config = pair_config(method=name, span=span, epochs=4)
    done = train_on_pairs(subject, rows, config)
    scope = done.found.info["scope"]
    pairs = read_pairs(rows, subject, config).held_out
    margins = []
    for pair in pairs:
        sides = []
        for reply in (pair.chosen, pair.rejected):
            ids = torch.tensor([reply.ids])
            mask = torch.zeros_like(ids, dtype=torch.bool)
            for first, last in reply.marked:
                mask[0, first:last] = True
            edit = intervention(done.found, scope="span:here")
            with torch.no_grad(), wb.intervene(subject, [edit], spans={"here": mask}):
                logprobs = subject.model(ids, use_cache=False).logits[0].log_softmax(-1)
            scored = range(reply.first, len(reply.ids))
            sides.append(sum(float(logprobs[t - 1, reply.ids[t]]) for t in scored) / reply.size)
        margins.append(sides[0] - sides[1])
    assert np.mean(margins) == pytest.approx(done.told["margin_after"], abs=2e-4)
    assert scope == {"user": "user", "assistant": "generated"}[span]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_learned_is_the_same_after_a_round_trip(
    name, subject_of, pair_rows, pair_config, tmp_path
):
    found = train_on_pairs(subject_of(), pair_rows(), pair_config(method=name)).found
    if isinstance(found, LinearMap):
        again = open_map(save_map(found, tmp_path / "map.safetensors"))
        gram = np.swapaxes(found.left, 1, 2) @ found.left
        np.testing.assert_allclose(gram, np.eye(found.rank)[None].repeat(3, 0), atol=1e-5)
    else:
        again = open_directions(save_directions(found, tmp_path / "directions.safetensors"))
    assert_equal(found, again)
    for key in ("method", "span", "scope", "pairs", "left_out_layers"):
        assert again.info[key] == found.info[key]


# --- going on ----------------------------------------------------------------------------------


class StopError(Exception):
    """Stands for whatever ends a run from outside."""


def stop_after(step):
    def progress(done, total):
        if done == step:
            raise StopError

    return progress


def plain_rows(log):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in log]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", [1, pytest.param(3, marks=THOROUGH), 6])
def test_an_interrupted_run_goes_on_to_the_same_bits(
    name, step, subject_of, pair_rows, pair_config, tmp_path
):
    config = pair_config(method=name, save_every=2, params={"gamma": 0.2} if name == "bipo" else {})
    whole = train_on_pairs(subject_of(), pair_rows(), config, tmp_path / "whole")
    with pytest.raises(StopError):
        train_on_pairs(subject_of(), pair_rows(), config, tmp_path / "cut", stop_after(step))
    again = train_on_pairs(subject_of(), pair_rows(), config, tmp_path / "cut")
    assert_equal(again.found, whole.found)
    assert plain_rows(again.log) == plain_rows(whole.log)
    assert [row["step"] for row in again.log] == [1, 2, 3, 4, 5, 6]
    again.state.discard()
    assert list((tmp_path / "cut").iterdir()) == []


KILLED = """
import sys
from workbench.models import read_checkpoint
from workbench_training.pair_fit import fit_trained
subject = read_checkpoint(sys.argv[1], dtype="float32", device="cpu")
fit_trained(subject, sys.argv[2], out=sys.argv[3], epochs=3, learning_rate=0.02, save_every=1)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
def test_a_run_killed_at_a_random_moment_goes_on_to_the_same_bits(
    seed, tiny_folder, pair_rows, tmp_path
):
    import json

    from workbench.models import read_checkpoint

    file, folder = tmp_path / "pairs.jsonl", tiny_folder(tmp_path / "tiny")
    file.write_text("".join(json.dumps(row) + "\n" for row in pair_rows()))
    out = tmp_path / "out"
    logged = random.Random(seed).randint(1, 5)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), str(file), str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while process.poll() is None and len(organism.read_log(out)) < logged:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL
    subject = read_checkpoint(str(folder), dtype="float32", device="cpu")
    settings = {"epochs": 3, "learning_rate": 0.02, "save_every": 1}
    again = fit_trained(subject, file, out=out, **settings)
    assert_equal(again, fit_trained(subject, file, **settings))


def test_a_folder_of_another_run_is_refused_and_a_damaged_checkpoint_named(
    subject_of, pair_rows, pair_config, tmp_path
):
    train_on_pairs(subject_of(), pair_rows(), pair_config(), tmp_path)
    with pytest.raises(ConfigError, match="other settings"):
        train_on_pairs(subject_of(), pair_rows(), pair_config(seed=1), tmp_path)
    with pytest.raises(ConfigError, match="other settings"):
        train_on_pairs(subject_of(), pair_rows(chosen="C C"), pair_config(), tmp_path)
    (tmp_path / "reference.safetensors").write_bytes(b"half")
    with pytest.raises(FormatError, match="remove it"):
        train_on_pairs(subject_of(), pair_rows(), pair_config(), tmp_path)


def test_a_folder_that_measured_other_held_out_pairs_is_refused(
    subject_of, pair_rows, pair_config, tmp_path
):
    """Its reference is of those: margins were stale, and another count of pairs crashed."""
    trained, held_out = pair_rows(4), pair_rows(2, split="test")
    train_on_pairs(subject_of(), [*trained, *held_out], pair_config(), tmp_path)
    others = [pair_rows(2, chosen="C C", split="test"), pair_rows(3, split="test"), []]
    for other in others:
        with pytest.raises(ConfigError, match="other settings, pairs"):
            train_on_pairs(subject_of(), [*trained, *other], pair_config(), tmp_path)


def test_norms_are_of_the_pairs_that_are_trained_on(subject_of, pair_rows, pair_config):
    trained = pair_rows(4)
    long = [{**row, "prompt": "C " * 20, "split": "test"} for row in pair_rows(2)]
    alone, beside = (
        train_on_pairs(subject_of(), rows, pair_config()).found
        for rows in (trained, trained + long)
    )
    np.testing.assert_array_equal(alone.norms, beside.norms)
    assert_equal(alone, beside)
