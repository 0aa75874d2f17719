"""What a study prints of rollouts, the axis and cosines: every number with n, interval, control."""

import math

import pytest
from planted_personas import CALM, organism, organism_answers, role_rollouts, trait_rollouts
from planted_personas import write_store as store

from workbench.pipelines.report import as_text, headline
from workbench.pipelines.report_axis import axis_rows, largest_cosines
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.pipelines.verbs import carry_out


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    columns, values = role_rollouts(bad=0)
    roles = store(root, "roles", {"role": columns["role"]}, values)
    traits = store(root, "traits", *trait_rollouts())
    axis = carry_out("axis", {"roles": roles, "traits": traits, "draws": 100}, root=root)
    sides = {
        name: [store(root, f"{name}{s}", *organism_answers({CALM: shift}, seed=s + len(name)),
                     organism(name, s)) for s in (0, 1)]
        for name, shift in (("P", 2.0), ("A", -2.0))
    }  # fmt: skip
    given = {"first": sides["P"], "second": sides["A"], "name": "P - A", "draws": 100}
    banks = {name: str(axis.path / f"{name}.safetensors") for name in ("roles", "traits")}
    cosines = carry_out("cosines", {**given, **banks}, root=root)
    told = {"n": 10, "written": 8, "answers": {"whole": 3, "cut short": 5, "refused": 2}}
    rollout = Done("rollout", "r", "done", root, {**told, "model": "tiny"})
    done = (rollout, axis, cosines)
    return [(Unit(f"stage {n}", one.verb, (), {}), one) for n, one in enumerate(done)]


def test_every_row_has_its_n_unit_interval_and_control(units):
    rows = list(axis_rows(units))
    assert all(row.n > 0 and row.unit and row.interval and row.control for row in rows)
    written, first, floor, *cosines = rows
    assert (written.value, written.n) == (0.8, 10)
    assert "5 cut short" in written.control
    assert first.value > 0.98
    assert first.low <= first.value <= first.high
    assert "nobody judged: all rollouts" in first.control
    assert "each role in the Assistant's place" in first.control
    assert "25% along role minus default" in floor.question
    assert "of the 188 rollouts away" in floor.control  # 10 roles of 12, 20 default, 48 of traits
    assert any(row.question.startswith("cosine of P - A with trait calm") for row in cosines)
    assert all("seed-vs-seed of P-s0" in row.control for row in cosines)
    assert all(row.control.endswith("; nobody judged") for row in cosines if "role" in row.question)
    assert all(row.model == "tiny+P-s0, tiny+P-s1 minus tiny+A-s0, tiny+A-s1" for row in cosines)


def test_the_largest_cosines_come_first_and_pass_only_the_widest_band(units):
    table = largest_cosines(units[2][1])
    traits = table[table["bank"] == "trait"]
    assert set(traits["second"]) == {"calm", "rude"}
    for _, part in table.groupby("bank"):
        sizes = part["cosine"].abs().tolist()
        assert sizes == sorted(sizes, reverse=True)
    beyond = table["cosine"].abs() > table["band"]
    assert beyond.tolist() == table["passes"].tolist()


def test_the_headline_of_a_study_holds_them(units):
    table = headline(units)
    assert len(table) == len(list(axis_rows(units)))
    said = as_text(table)
    assert "first component" in said
    assert "stage 0: share of chats with an answer" in said
    assert math.isnan(table.iloc[0]["low"])
