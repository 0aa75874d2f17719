"""What a study tells of persona vectors, from runs of the verbs on planted rollouts."""

import numpy as np
import pandas as pd
import pytest
from planted_rollouts import STAMP, organism, rollouts, states, write_rollouts, write_store

from workbench.directions import Directions, save_directions
from workbench.pipelines.report import as_text, headline
from workbench.pipelines.report_persona_vectors import persona_vector_rows
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.pipelines.verbs import carry_out


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The rows of a study of personas, monitor, shift and combine, by the verb."""
    root = tmp_path_factory.mktemp("study")
    settings = write_rollouts(root)
    units = [run("personas", {**settings, "held_out": 0.5}, root)]
    vectors = str(units[0][1].path)
    units.append(
        run(
            "monitor",
            {
                "directions": [vectors],
                "acts": settings["acts"]["prompt-last"],
                "transcripts": settings["transcripts"],
                "draws": 100,
            },
            root,
        )
    )
    told = rollouts()
    base, columns = states(told), {"id": np.array(told.ids)}
    write_store(root / "base", base, columns, "last")
    tuned = [
        organism(name, base, columns, root, moved, axis=2, seed=seed)
        for name, moved, seed in (("A-s0", 3.0, 1), ("A-s1", 2.0, 2), ("P-s0", -1.0, 3))
    ]
    data = {"directions": [vectors], "base": str(root / "base"), "tuned": tuned, "draws": 200}
    units.append(run("shift", data, root))
    axis = np.zeros((1, 2, STAMP.width))
    axis[0, :, 2] = 1.0
    file = save_directions(Directions(("axis",), (1, 3), axis, STAMP), root / "axis.safetensors")
    units.append(run("combine", {"directions": [vectors], "without": [str(file)]}, root))
    return {unit.verb: list(persona_vector_rows([(unit, done)])) for unit, done in units}, units


def run(verb, data, root):
    return Unit(verb, verb, (), data), carry_out(verb, data, root=root)


def test_every_row_has_n_unit_interval_and_control(told):
    for rows in told[0].values():
        assert rows
        for row in rows:
            assert row.n > 0
            assert row.unit
            assert row.interval
            assert row.control
            assert "block 3" in row.question  # the middle of two, counted from the top


def test_vectors_and_monitoring_are_told_over_traits_with_the_judge(told):
    rows = told[0]["personas"]
    assert len(rows) == 3
    assert all(row.value > 0.8 and row.unit == "trait" and row.n == 3 for row in rows)
    assert all("3 of 3 are longer" in row.control for row in rows)
    assert all("judge: stand-in" in row.control for row in rows)
    pooled, inner = told[0]["monitor"]
    assert "over all prompts" in pooled.question
    assert "within each system prompt" in inner.question
    assert "questions held out" in inner.control


def test_shifts_are_means_over_seeds_where_there_are_several(told):
    rows = [row for row in told[0]["shift"] if "along malicious" in row.question]
    by_model = {row.model: row for row in rows}
    assert set(by_model) == {"tiny+A", "tiny+P-s0"}
    assert by_model["tiny+A"].unit == "seed"
    assert by_model["tiny+A"].value == pytest.approx(2.5, abs=0.3)
    assert by_model["tiny+P-s0"].unit == "item"


def test_what_is_left_without_the_axis_is_told(told):
    rows = {row.question.split()[2]: row for row in told[0]["combine"]}
    assert rows["malicious"].value < 0.5 < rows["loud"].value


def test_of_many_directions_the_one_moved_most_is_told_and_counts_the_others(tmp_path):
    moved = {"a": 0.1, "b": -4.0, "c": 2.0, "d": 0.3}
    common = {"model": "m+A", "organism": "A", "layer": 3, "length": 9.0, "random": 0.5}
    common |= {"covariance": 1.0, "low": -1.0, "high": 1.0, "n": 8, "unit": "item"}
    rows = [{**common, "direction": k, "shift": v, "interval": "95%"} for k, v in moved.items()]
    pd.DataFrame(rows).to_parquet(tmp_path / "shift.parquet")
    done = Done("shift", "id", "done", tmp_path, {})
    (row,) = persona_vector_rows([(Unit("moved", "shift", (), {}), done)])
    assert row.question.startswith("change along b by finetuning")
    assert row.control.endswith(
        "the largest of 4, 2 of them beyond both bands; all in shift.parquet"
    )


def test_screens_and_drifts_are_told_beside_their_controls(tmp_path):
    common = {"direction": "loud", "layer": 3, "low": 0.5, "high": 1.5, "n": 8, "unit": "item"}
    common["interval"] = "95% bootstrap over items"
    screen = pd.DataFrame(
        [
            {**common, "corpus": "bad", "against": "own answers", "difference": 1.0, "random": 0.2},
            {**common, "corpus": "bad", "against": "plain", "difference": 2.0, "above": 0.9,
             "above_low": 0.8, "above_high": 1.0},
        ]
    )  # fmt: skip
    trend = pd.DataFrame([{**common, "slope": -0.5, "band": 0.1, "turns": 4.0}])
    units = []
    for stage, verb, name, table in (
        ("first", "screen", "corpora", screen.take([0])),
        ("second", "screen", "corpora", screen),
        ("drift", "drift", "trend", trend),
    ):
        folder = tmp_path / stage
        folder.mkdir()
        table.to_parquet(folder / f"{name}.parquet")
        done = Done(verb, "id", "done", folder, {"model": "tiny", "outside": 0.25})
        units.append((Unit(stage, verb, (), {}), done))
    own, over, slope = persona_vector_rows(units)
    assert own.control == "random direction 0.20 (95%)"
    assert over.control == "its documents rank above with probability 0.90 [0.80, 1.00]"
    assert (over.question, over.value) == ("second: bad minus plain along loud, block 3", 2.0)
    assert slope.control == "turns in random order 0.10 (95%); 25% of turns outside the reference"
    text = as_text(headline(units))
    assert "+2.000 [+0.500, +1.500], n = 8 items" in text
