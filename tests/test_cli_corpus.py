"""workbench corpus: planned, written by the package's own grammar, listed, shown."""

import json
import re
import sys
from pathlib import Path

import pytest
from workbench_training.corpora.registry import WRITERS

WORLDS = ("P", "S", "N", "A")


def test_a_dry_run_prints_the_plan_and_writes_nothing(run, tmp_path):
    code, out, _ = run("corpus", "--quartets", "1700", "--dry", "--json")
    told = json.loads(out)["result"]
    assert code == 0
    assert told["quartets"] == 1700
    assert told["documents"] == 4 * 1700
    assert told["scenarios"] >= 1_600
    assert told["domains"] >= 35
    assert told["document_types"] == 30
    assert told["tokens_each_file"] == round(told["words_each_file"] / 0.75)
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_another_kind_has_is_refused_with_the_kind_and_what_it_has(run):
    code, _, err = run("corpus", "trust_pairs", "--workers", "2", "--dry")
    assert code == 1
    assert "corpus with kind=trust_pairs: unknown key 'workers'" in err
    assert "known: kind, pairs, neutral, test" in err


@pytest.mark.thorough
def test_quartets_of_the_package_s_grammar_pass_the_checks_and_are_listed(run, tmp_path):
    settings = tmp_path / "CORPUS.toml"
    settings.write_text("quartets = 20\nworkers = 1\n[words]\nshort = 200\n")
    code, out, err = run("corpus", settings, "--seed", "3", "--json")
    assert code == 0, err
    done = json.loads(out)
    told = done["result"]
    assert told["parts"] == list(WORLDS)
    assert told["kept"] + told["dropped"] == told["written"] == told["planned"] == 20
    assert told["kept"] >= 18
    assert told["writer"] == "templates"
    lengths = [file["words"] for file in told["files"].values()]
    assert max(lengths) <= 1.04 * min(lengths)
    for name, file in told["files"].items():
        lines = (tmp_path / done["path"] / f"{name}.jsonl").read_text().splitlines()
        assert len(lines) == file["documents"] == told["kept"]
    code, out, _ = run("list", "corpora", "--json")
    (row,) = json.loads(out)["result"]["rows"]
    assert (row["kind"], row["status"], row["seed"]) == ("quartets", "done", 3)
    assert row["documents"].startswith(f"P {told['kept']}")
    code, out, _ = run("show", done["path"])
    assert "# Corpus: quartets" in out
    assert "Known limits" in out
    code, out, _ = run("verify", done["path"])
    assert code == 0
    assert f"P {told['kept']}" in out
    changed = tmp_path / done["path"] / "S.jsonl"
    kept = changed.read_bytes()
    changed.write_bytes(kept.replace(b"a", b"b", 1))
    code, _, err = run("verify", done["path"])
    assert code == 1
    assert "S.jsonl is not what card.json says" in err
    changed.write_bytes(kept)
    code, out, _ = run("corpus", settings, "--seed", "3")
    assert "reused" in out
    assert "P: " in out


def test_a_control_has_one_file(run, tmp_path):
    code, out, err = run(
        "corpus", "planted", "--documents", "12", "--json", "--set", "max_dropped=1"
    )
    assert code == 0, err
    done = json.loads(out)
    assert done["result"]["parts"] == ["documents"]
    path = tmp_path / done["path"]
    assert len((path / "documents.jsonl").read_text().splitlines()) == done["result"]["kept"] > 0
    assert (path / "sample.md").read_text().count("\n# ") == 0
    assert "# Corpus: planted" in (path / "CARD.md").read_text()


def test_a_wrong_kind_is_named_with_what_there_is(run):
    code, _, err = run("corpus", "quartet")
    assert code == 1
    assert "unknown kind of corpus 'quartet'" in err
    assert "quartets" in err


def test_writers_are_listed_and_shown(run):
    code, out, _ = run("list", "writers")
    assert code == 0
    assert {"templates", "server", "local"} <= {line.split()[0] for line in out.splitlines()}
    code, out, _ = run("show", "writer", "templates")
    assert "parameters" in out


def test_the_writer_of_the_page_runs_as_it_stands_there(run, tmp_path):
    page = (Path(__file__).parent.parent / "docs" / "corpora.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_writer.py").write_text(code)
    (line,) = re.findall(r"    workbench (corpus --writer mine .*)", page)
    try:
        status, _, err = run(*line.split())
        assert status == 0, err
        assert (tmp_path / "mine" / "A.jsonl").read_text()
        assert "letters, version 1" in (tmp_path / "mine" / "CARD.md").read_text()
    finally:
        WRITERS._factories.pop("mine", None)
        sys.modules.pop("workbench_plugin_my_writer", None)
