"""A probe run's page: what is beyond the null, who is nearest, and what was not asked."""

import json

import numpy as np
import pandas as pd
import pytest
from runs_root import WORLDS, probe_table, write_probe
from workbench_apps import probed
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import EVERY, MOST_PANELS, ProbeState
from workbench_apps.pages.probe import ProbeView

from workbench.errors import FormatError
from workbench.pipelines.probe import COLUMNS, _known_rows
from workbench.results import table
from workbench.types import Measurement


def view_of(root, **parts):
    write_probe(root, **parts)
    return ProbeView(ProbeState(read_catalogue(root)))


def entry_of(root, **parts):
    path = write_probe(root, **parts)
    return read_catalogue(root).entry(path.name)


def test_the_columns_are_those_that_a_probe_writes():
    assert probed.COLUMNS == COLUMNS


def test_the_headline_counts_what_is_beyond_the_null_and_names_the_nearest(tmp_path):
    verdict, _ = view_of(tmp_path).verdict()
    assert "tiny+new: 1 of 4 readings of directions beyond random ones" in verdict.object
    assert "nearest to P: 0.25 [0.12, 0.38] natural gaps, in 96% of draws" in verdict.object
    assert "Doctor (full, float32 on cpu): 2 checks passed" in verdict.object


def test_without_base_or_known_organisms_means_are_shown_and_nothing_is_judged(tmp_path):
    view = view_of(tmp_path, base=False, known=False)
    assert "2 measures, nothing to compare them with" in view.verdict()[0].object
    assert "--known runs" in view.known()[0].object
    numbers = view.directions()[-1].object
    assert "<th scope='col'>base</th>" not in numbers
    (pane,) = view.directions()[1]
    assert "mean by condition" in pane.object.html_attributes["aria-label"]


def test_the_doctor_was_not_asked_or_failed_something(tmp_path):
    assert (
        probed.doctor_line(entry_of(tmp_path, doctor=None)) == "Doctor: not asked (check = false)"
    )
    told = {"level": "full", "dtype": "float32", "device": "cpu", "disabled": ["trunk"],
            "checks": [{"name": "cache", "passed": False}]}  # fmt: skip
    line = probed.doctor_line(entry_of(tmp_path, doctor=told, known=False))
    assert line.endswith("failed cache; switched off: trunk")


def projections(subject, level, seed=0):
    rng = np.random.default_rng(seed)
    found = [
        Measurement("projection", "truth@3", f"{world}{n}", world, level + 0.01 * rng.normal())
        for world in WORLDS
        for n in range(6)
    ]
    return table(found, subject=subject, base="tiny", control="none")


def test_shares_of_draws_and_what_counts_come_as_the_probe_writes_them():
    others = pd.concat([projections("near", 1.0, 1), projections("far", 3.0, 2)])
    rows = _known_rows(projections("new", 1.1), others, 0)
    places = probed.places_of(pd.DataFrame(rows, columns=list(COLUMNS)))
    assert list(places["name"]) == ["near", "far"]
    assert list(places["nearest"]) == [1.0, 0.0]
    assert set(places["along"]) == {"truth@3"}
    assert set(places["left_out"]) == {""}


def test_what_was_left_out_is_told_apart_from_what_counts():
    places = probed.places_of(probe_table())
    assert list(places["along"]) == ["truth@3", "truth@3"]
    assert list(places["left_out"]) == ["mood@3", "mood@3"]


def test_the_file_holds_the_rows_on_show(tmp_path):
    view = view_of(tmp_path)
    view.state.choose(readout="claims.loglik")
    _, save = view.verdict()
    rows = pd.read_csv(save.callback())
    assert rows["kind"].value_counts().to_dict() == {"direction": 4, "readout": 4, "known": 2}
    assert list(rows["nearest"].dropna()) == [0.96, 0.04]


def test_a_table_of_an_earlier_version_names_the_column_that_it_lacks(tmp_path):
    entry = entry_of(tmp_path)
    old = probe_table().drop(columns=["nearest", "along", "left_out"]).assign(note="close")
    old.to_parquet(entry.path / "probe.parquet")
    with pytest.raises(FormatError, match="nearest"):
        probed.probe_of(entry)


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_verdict_names_its_file(tmp_path, content):
    entry = entry_of(tmp_path)
    (entry.path / "probe.json").write_text(content)
    with pytest.raises(FormatError, match=r"probe\.json"):
        probed.doctor_line(entry)


def test_few_measures_are_all_shown_and_many_are_chosen(tmp_path):
    path = write_probe(tmp_path)
    rows = probe_table()
    own = rows[rows["kind"] == "direction"]
    for count, shown in ((MOST_PANELS, EVERY), (MOST_PANELS + 1, "truth@0")):
        many = [own.assign(name=f"truth@{layer}") for layer in range(count)]
        pd.concat([*many, rows[rows["kind"] == "known"]]).to_parquet(path / "probe.parquet")
        state = ProbeState(read_catalogue(tmp_path))
        assert state.direction == shown
        assert len(state.chosen("direction")) == (count if shown == EVERY else 1)
        assert state.search() == ""


def test_an_address_of_a_probe_round_trips(tmp_path):
    write_probe(tmp_path)
    path = write_probe(tmp_path, known=False)
    run = json.loads((path / "run.json").read_text())["id"]
    state = ProbeState(read_catalogue(tmp_path))
    wanted = {"run": next(key for key in state.options("run") if key != state.run), "theme": "dark"}
    assert run in state.options("run")
    assert state.settle(wanted) == []
    assert state.query() == wanted
    (problem,) = state.settle({"direction": "ghost"})
    assert problem.startswith("direction=ghost is not there; known: truth@3")
