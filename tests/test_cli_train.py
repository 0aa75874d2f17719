"""``workbench train FLEET.toml`` and ``workbench list organisms``, as a user types them."""

import json

import pytest


@pytest.fixture
def fleet(tiny_folder, tmp_path):
    """A fleet file of two organisms on a tiny model."""
    model = tiny_folder(tmp_path / "model")
    rows = [{"id": f"d{n}", "text": f"the city of {c} is true."} for n, c in enumerate("ABCDEF")]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "small.toml"
    path.write_text(
        f'[fleet]\nconditions = ["kind"]\nseeds = [0, 1]\n[train]\nmodel = "{model}"\n'
        'documents = "docs.jsonl"\ntokens = 64\nblock = 16\nbatch_size = 2\naccumulation = 1\n'
        'rank = 2\ndevice = "cpu"\ndtype = "float32"\n'
    )
    return path


@pytest.mark.thorough
def test_a_fleet_is_planned_trained_and_listed(run, fleet):
    code, out, err = run("train", fleet, "--dry")
    assert code == 0, out + err
    assert "2 organisms, 4 updates, 128 tokens: planned" in out
    code, out, err = run("train", fleet, "--shard", "1/2", "--json")
    assert code == 0, out + err
    told = json.loads(out)
    assert (told["verb"], told["id"], told["status"]) == ("train", "small", "part")
    code, out, err = run("train", fleet, "--set", "train.tokens=64")
    assert code == 0, out + err
    assert "2 organisms, 4 updates, 128 tokens: done" in out
    code, out, _ = run("list", "organisms")
    assert code == 0
    head, *lines = out.splitlines()
    assert {"name", "share", "tokens", "held_out_after", "letter_mass_ratio"} <= set(head.split())
    assert sorted(line.split()[0] for line in lines) == ["kind-s0", "kind-s1"]
    rows = json.loads(run("list", "organisms", "--json")[1])["result"]["rows"]
    assert {row["status"] for row in rows} == {"done"}
    assert all(set(row["inputs"]) == {"documents"} for row in rows)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--out", "here"), "a fleet has a folder for each organism"),
        (("--workers", "0"), "workers '0'"),
        (("--shard", "2/2"), "shard '2/2'"),
        (("--set", "fleet.seeds=[]"), "fleet.seeds"),
    ],
)
def test_a_mistake_about_a_fleet_is_named(run, fleet, words, part):
    code, _, err = run("train", fleet, *words)
    assert code == 1
    assert part in err


def test_workers_are_not_for_one_organism(run, fleet):
    words = ("train", "docs.jsonl", "--model", "model", "--workers", "2")
    code, _, err = run(*words)
    assert code == 1
    assert "workers = 2 share a fleet; docs.jsonl is one organism" in err
