"""Probing: an adapter beside its base, a full checkpoint, and the place among known organisms."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

import workbench as wb
from workbench.errors import ConfigError, FormatError, MismatchError
from workbench.pipelines.probe import COLUMNS, probe, probe_model, read_known
from workbench.readouts.projection import Projection
from workbench.results import write_results

LAYER = 2
WORLDS = ("P", "A")


def prompts():
    rows = [
        {"id": f"{world}-{number}", "text": f"the city {word} is {end}", "world": world}
        for number, word in enumerate(("of the", "and a", "true", "not false", "to you", "in a"))
        for world, end in zip(WORLDS, ("true", "false"), strict=True)
    ]
    return wb.PromptSet.from_records(rows, text="text")


def kin(source, target, noise, seed):
    """Copy an adapter with a little noise on its weights: another seed of the same organism."""
    shutil.copytree(source, target)
    file = target / "adapter_model.safetensors"
    weights = safetensors.torch.load_file(file)
    draw = torch.Generator().manual_seed(seed)
    moved = {
        name: value + noise * value.std() * torch.randn(value.shape, generator=draw)
        for name, value in weights.items()
    }
    safetensors.torch.save_file(moved, file, metadata={"format": "pt"})
    return target


@pytest.fixture(scope="module")
def fleet(tiny_folder, tiny_adapter, tmp_path_factory):
    """Folders: the base, two seeds each of organisms P and A, and a newcomer that is kin to P."""
    root = tmp_path_factory.mktemp("fleet")
    base = tiny_folder(root / "base")
    made = {"base": base}
    for name, seed in (("P", 11), ("A", 12)):
        first = tiny_adapter(root / f"{name}-s0", base, seed=seed)
        made[f"{name}-s0"] = first
        made[f"{name}-s1"] = kin(first, root / f"{name}-s1", 0.01, seed)
    made["new"] = kin(made["P-s0"], root / "new", 0.01, 99)
    return made


@pytest.fixture(scope="module")
def load(fleet):
    kept = {}

    def opened(name):
        if name not in kept:
            kept[name] = wb.load(fleet[name], dtype="float32", device="cpu", check=False)
        return kept[name]

    return opened


@pytest.fixture(scope="module")
def directions(load):
    vectors = np.random.default_rng(0).normal(size=(2, 1, load("base").width))
    return wb.Directions(("mood", "trust"), (LAYER,), vectors, load("base").stamp)


@pytest.fixture(scope="module")
def known(load, directions):
    readout = Projection(directions, prompts())
    names = ("base", "P-s0", "P-s1", "A-s0", "A-s1")
    return pd.concat([wb.measure(load(name), [readout]) for name in names], ignore_index=True)


def test_an_adapter_is_placed_nearest_to_its_own_kind(load, directions, known):
    found = probe(load("new"), directions=[directions], prompts=prompts(), known=known, check=False)
    assert list(found.columns) == list(COLUMNS)
    places = found[found["kind"] == "known"]
    assert places.iloc[0]["name"] == "P"
    assert set(places["name"]) == {"P", "A", load("base").ref.key}
    assert places.iloc[0]["value"] < 0.2 < 0.5 < places.set_index("name").loc["A", "value"]
    assert places.iloc[0][["nearest", "along", "left_out"]].tolist() == [1.0, "mood, trust", ""]


def test_a_direction_reads_what_the_projection_readout_reads_and_the_base_beside_it(
    load, directions
):
    found = probe(load("P-s0"), directions=[directions], prompts=prompts(), check=False)
    rows = found.set_index(["name", "condition"])
    for name in ("P-s0", "base"):
        plain = wb.summarize(wb.measure(load(name), [Projection(directions, prompts())]))
        column = "value" if name == "P-s0" else "base"
        for row in plain.itertuples():
            assert rows.loc[(row.measure, row.condition), column] == pytest.approx(
                row.mean, abs=1e-5
            )
    assert len(rows) == 4
    assert (rows["null"] > 0).all()
    assert set(rows["null_name"]) == {"95% of 200 random directions"}
    np.testing.assert_allclose(rows["change"], rows["value"] - rows["base"], atol=1e-5)
    assert ((rows["change_low"] <= rows["change"]) & (rows["change"] <= rows["change_high"])).all()


def test_one_direction_and_one_readout_need_no_list(load, directions):
    """A name was read letter by letter."""
    given = {"prompts": prompts(), "check": False}
    alone = probe(load("new"), directions=directions, readouts="perplexity", **given)
    listed = probe(load("new"), directions=[directions], readouts=["perplexity"], **given)
    pd.testing.assert_frame_equal(alone, listed)
    assert set(alone["kind"]) == {"direction", "readout"}


def test_a_direction_along_the_change_itself_beats_the_random_ones(load):
    states = {}
    for name in ("P-s0", "base"):
        acts = wb.capture(load(name), prompts(), layers=[LAYER])
        states[name] = acts.at(LAYER)
    moved = (states["P-s0"] - states["base"]).mean(0)
    own = wb.Directions(("moved",), (LAYER,), moved[None, None], load("base").stamp)
    found = probe(load("P-s0"), directions=[own], prompts=prompts(), check=False)
    assert found["beyond_null"].all()
    assert (found["change"] > 1.5 * found["null"]).all()


def test_a_full_checkpoint_is_probed_with_the_base_that_is_given(fleet, load, directions, tmp_path):
    whole = wb.load(fleet["P-s1"], dtype="float32", device="cpu", check=False)
    folder = tmp_path / "whole"
    whole.model.merge_and_unload().save_pretrained(folder)
    whole.tokenizer.save_pretrained(folder)
    options = {"directions": [directions], "prompts": prompts(), "check": False}
    alone = probe(folder, device="cpu", **options)
    assert alone["base"].isna().all()
    beside = probe(folder, base=fleet["base"], device="cpu", **options)
    adapter = probe(load("P-s1"), **options)
    np.testing.assert_allclose(beside["change"], adapter["change"], atol=1e-4)


@pytest.mark.thorough
def test_the_doctor_comes_first_and_everything_is_in_the_json(load, directions):
    found = probe_model(
        load("P-s0"), directions=[directions], prompts=prompts(), readouts=["perplexity"]
    )
    assert found.report is not None
    assert found.report.level == "full"
    told = found.to_dict()
    assert told["model"].endswith("P-s0")
    assert told["doctor"]["ok"]
    assert {row["kind"] for row in told["rows"]} == {"direction", "readout"}
    assert not any(
        isinstance(v, float) and np.isnan(v) for row in told["rows"] for v in row.values()
    )
    assert not found.measurements["measure"].str.startswith("random:").any()
    assert set(found.measurements["subject"]) == {load("P-s0").ref.key, load("base").ref.key}


def test_known_organisms_come_from_a_table_a_file_or_a_runs_root(known, tmp_path):
    for number, (_, rows) in enumerate(known.groupby("subject")):
        write_results(rows, tmp_path / "measure" / f"r{number}" / "results.parquet")
    by_root = read_known(tmp_path)
    assert len(by_root) == len(known)
    assert len(read_known(tmp_path / "measure" / "r0")) == len(known) / 5
    assert read_known(known) is known
    with pytest.raises(FormatError, match="no projections under"):
        read_known(tmp_path / "nothing")


def test_what_cannot_be_probed_is_refused_with_the_reason(load, directions, make_subject, known):
    subject = load("P-s0")
    with pytest.raises(ConfigError, match="nothing to probe with"):
        probe(subject)
    with pytest.raises(ConfigError, match="compared along directions"):
        probe(subject, readouts=["perplexity"], known=known)
    with pytest.raises(ConfigError, match="two directions are called 'mood'"):
        probe(subject, directions=[directions, directions], prompts=prompts(), check=False)
    plain = wb.PromptSet.from_records([{"id": "a", "text": "the city"}], text="text")
    with pytest.raises(ConfigError, match="none of the columns world, topic, condition"):
        probe(subject, directions=[directions], prompts=plain, check=False)
    other = make_subject("llama", layers=5)
    with pytest.raises(MismatchError, match="model_type = qwen3"):
        probe(other, directions=[directions], prompts=prompts(), check=False)


def test_a_direction_may_be_called_anything_but_what_the_random_ones_are(load, directions):
    """A name with "@" was taken for a layer, one with "random:" for a part of the null."""
    odd = replace(directions, names=("mood@2", "trust/ü"))
    found = probe(load("P-s0"), directions=[odd], prompts=prompts(), check=False)
    plain = probe(load("P-s0"), directions=[directions], prompts=prompts(), check=False)
    assert set(found["name"]) == {"mood@2", "trust/ü"}
    assert sorted(found["value"]) == sorted(plain["value"])
    assert sorted(found["null"]) == sorted(plain["null"])
    taken = replace(directions, names=("random:0:5", "trust"))
    with pytest.raises(ConfigError, match="'random:0:5': names that begin with 'random:'"):
        probe(load("P-s0"), directions=[taken], prompts=prompts(), check=False)
