"""The command line of trust pairs and of what steering matrices did."""

import json


def test_a_dry_run_counts_pairs_by_split_and_facet(run):
    code, out, _ = run("corpus", "trust_pairs", "--pairs", "60", "--dry", "--json")
    assert code == 0
    told = json.loads(out)["result"]
    assert (told["pairs"], told["splits"]) == (60, {"train": 54, "test": 6})
    assert told["facets"] == {"ability": 20, "benevolence": 20, "integrity": 20}


def test_a_setting_of_documents_is_refused_with_its_name(run):
    code, _, err = run("corpus", "trust_pairs", "--quartets", "60", "--dry")
    assert code == 1
    assert "quartets" in err


def test_a_trust_file_without_sweeps_is_refused(run, tmp_path):
    (tmp_path / "t.toml").write_text('pairs = "pairs.jsonl"\n')
    code, _, err = run("trust", "t.toml")
    assert code == 1
    assert "sweeps" in err
