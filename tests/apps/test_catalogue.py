"""The catalogue finds what can be drawn and lists the rest with its reason."""

import json

import pytest
from workbench_apps import doses, tables
from workbench_apps.catalogue import DOCS, EVIDENCE, NEEDS, PARTS, RESULTS, read_catalogue

from workbench.errors import ConfigError, FormatError, MismatchError


def test_every_run_is_found_by_what_it_holds(full_root):
    catalogue = read_catalogue(full_root)
    counts = {k: len(catalogue.usable(k)) for k in ("map", "truth", "claims", "dose", "probe")}
    assert counts == {"map": 1, "truth": 1, "claims": 3, "dose": 1, "probe": 1}
    assert catalogue.missing() == []


def test_runs_that_read_one_frozen_direction_belong_together(writers, tmp_path):
    first, second = writers.write_fit(tmp_path), writers.write_fit(tmp_path, best=0.8)
    writers.write_claims(tmp_path, first)
    writers.write_claims(tmp_path, second)
    groups = read_catalogue(tmp_path).claim_groups()
    assert {key: len(runs) for key, runs in groups.items()} == {first.name: 3, second.name: 3}


def test_what_is_missing_comes_with_a_command(tmp_path):
    missing = read_catalogue(tmp_path).missing()
    assert [kind for kind, _, _ in missing] == [
        "map",
        "truth",
        "claims",
        "dose",
        "probe",
        "personas",
        "emotions",
        "trust",
    ]
    *demo, (_, _, probe), (_, _, personas), (_, _, emotions), (_, _, trust) = missing
    runs = f"--runs {tmp_path}"
    assert all(f"workbench run studies/demo.toml {runs}" in command for *_, command in demo)
    assert probe.startswith("workbench probe MODEL --directions FILE")
    assert f"--known {tmp_path} {runs}" in probe
    assert personas == f"workbench run studies/axis_smollm2.toml {runs}"
    assert emotions == f"workbench run studies/emotion_smollm2.toml {runs}"
    assert trust == f"workbench run studies/trust_smollm2.toml {runs}"


def test_a_command_is_for_the_folder_that_is_open_and_the_fit_that_lies_there(writers, tmp_path):
    root = tmp_path / "my runs"
    fit = writers.write_fit(root)
    (fit / "directions.safetensors").write_bytes(b"")
    told = read_catalogue(root).command("probe")
    assert f"--directions '{fit / 'directions.safetensors'}'" in told
    assert told.endswith(f"--known '{root}' --runs '{root}'")


def test_every_page_of_the_docs_that_is_named_is_there():
    assert all((DOCS / need.docs).is_file() for need in (NEEDS | PARTS).values())


@pytest.mark.parametrize("content", ["", "{", '{"id": 3}', "[]", "\x00\x01"])
def test_a_half_written_manifest_is_listed_and_never_used(writers, tmp_path, content):
    path = writers.write_fit(tmp_path)
    (path / "run.json").write_text(content)
    catalogue = read_catalogue(tmp_path)
    (entry,) = catalogue.entries
    assert entry.problem
    assert catalogue.usable("truth") == []


def test_an_interrupted_run_is_not_shown_as_a_result(writers, tmp_path):
    path = writers.write_fit(tmp_path)
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**manifest, "status": "running"}))
    catalogue = read_catalogue(tmp_path)
    assert "interrupted" in catalogue.entries[0].problem
    assert catalogue.usable("truth") == []


def test_a_run_under_way_is_counted_as_such_and_not_as_broken(writers, tmp_path):
    from workbench.runs import open_run

    writers.write_fit(tmp_path)
    path = writers.write_sweep(tmp_path)
    (path / "run.json").write_text("{")
    with open_run("cache", {"model": "m"}, out=tmp_path / "cache") as run:
        catalogue = read_catalogue(tmp_path)
        assert catalogue.counts() == "3 runs, 1 under way, 1 to mend"
        (own,) = [entry for entry in catalogue.entries if entry.running]
        assert own.problem == "being written now"
        run.finish()
    assert read_catalogue(tmp_path).counts() == "3 runs, 1 to mend"


def test_a_run_whose_output_is_gone_says_so(writers, tmp_path):
    path = writers.write_sweep(tmp_path)
    (path / RESULTS).unlink()
    (entry,) = read_catalogue(tmp_path).entries
    assert "results.parquet is gone" in entry.problem


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        read_catalogue(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 half written"])
def test_a_damaged_table_names_its_path(writers, tmp_path, content):
    fit, sweep = writers.write_fit(tmp_path), writers.write_sweep(tmp_path)
    (fit / EVIDENCE).write_bytes(content)
    (sweep / RESULTS).write_bytes(content)
    catalogue = read_catalogue(tmp_path)
    with pytest.raises(FormatError, match=r"evidence\.parquet"):
        tables.evidence_of(catalogue.entry(fit.name))
    with pytest.raises(FormatError, match=r"results\.parquet"):
        doses.sweep_of(catalogue.entry(sweep.name))


def test_a_truncated_store_is_refused(writers, tmp_path):
    path = writers.write_cache(tmp_path)
    (shard,) = (path / "acts" / "shards").iterdir()
    shard.write_bytes(shard.read_bytes()[:2000])
    entry = read_catalogue(tmp_path).entry(path.name)
    with pytest.raises(FormatError, match=shard.name):
        tables.planes_of(entry).at(0)


def test_a_changed_file_is_read_again(writers, tmp_path):
    fit = writers.write_fit(tmp_path)
    entry = read_catalogue(tmp_path).entry(fit.name)
    before = tables.evidence_of(entry)["auc"].max()
    writers.evidence(best=0.71).to_parquet(fit / EVIDENCE)
    assert tables.evidence_of(entry)["auc"].max() == pytest.approx(0.71)
    assert before == pytest.approx(0.95)


def test_an_evidence_file_without_a_column_says_which(writers, tmp_path):
    fit = writers.write_fit(tmp_path)
    writers.evidence().drop(columns="null_random").to_parquet(fit / EVIDENCE)
    with pytest.raises(FormatError, match="null_random"):
        tables.evidence_of(read_catalogue(tmp_path).entry(fit.name))


def test_activations_of_every_token_are_refused_for_a_map(monkeypatch, tmp_path, writers):
    class Ragged:
        offsets, position = (0, 3), "all"

    monkeypatch.setattr("workbench.activations.open_activations", lambda _: Ragged())
    path = writers.write_cache(tmp_path)
    with pytest.raises(MismatchError, match="every token"):
        tables.planes_of(read_catalogue(tmp_path).entry(path.name))
