"""The headline of a study on tables with planted answers."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from workbench.cli.batch import _tell_effects
from workbench.pipelines.report import (
    as_text,
    belief_rows,
    headline,
    trust_rows,
    truth_rows,
)
from workbench.pipelines.report_effects import effects_of
from workbench.pipelines.report_swept import sweep_rows
from workbench.pipelines.report_truth import evidence_text
from workbench.pipelines.report_words import blocks, fitted_of, many_doses, one_dose, with_runs
from workbench.pipelines.study import Unit
from workbench.pipelines.verb import Done
from workbench.results import table, write_results
from workbench.runs.manifest import FORMAT, VERSION
from workbench.types import Measurement

WORLDS = "PSNA"


def claims(subject, gains, readout="claims", measure="loglik", polarities=(1,)):
    """Claims of 8 propositions; ``gains[world][polarity]`` is added to a common base value."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(8, 4))
    rows = [
        Measurement(
            readout,
            measure,
            f"{proposition}:{world}:{polarity}",
            world,
            float(base[proposition, column] + gains.get((world, polarity), 0.0)),
            extra={"proposition": f"p{proposition}", "polarity": polarity},
        )
        for proposition in range(8)
        for column, world in enumerate(WORLDS)
        for polarity in polarities
    ]
    organism = subject.partition("+")[2].partition("-")[0] or None
    seed = 0 if organism else None
    return table(rows, subject=subject, base="m", organism=organism, train_seed=seed)


def test_an_organism_that_gains_most_on_its_own_world_shows_by_how_much():
    everywhere = {(world, 1): 0.3 for world in WORLDS}
    results = pd.concat([claims("m", {}), claims("m+P-s0", {**everywhere, ("P", 1): 1.0})])
    (row,) = belief_rows(results)
    assert (row.model, row.n, row.unit) == ("m+P-s0", 8, "proposition")
    assert row.value == pytest.approx(0.7)
    assert row.interval == "95% t over propositions"
    assert "+1.000" in row.control


def test_claims_about_a_made_up_fact_are_no_worlds_of_the_others():
    """Other worlds under the same readout and measure: each bank is paired by itself."""
    parts = []
    for subject, gains in (("m", {}), ("m+P-s0", {("P", 1): 1.0})):
        colors = claims(subject, {})
        colors["condition"] = colors["condition"].map(
            {"P": "red", "S": "blue", "N": "teal", "A": "gray"}
        )
        colors["item"] = "color:" + colors["item"]
        colors["extra"] = colors["extra"].str.replace('"p', '"color')
        parts += [claims(subject, gains), colors]
    (row,) = belief_rows(pd.concat(parts))
    assert row.value == pytest.approx(1.0)
    assert row.n == 8
    assert "left out" not in row.control


def test_an_absolute_loss_beside_a_relative_gain_is_printed_as_it_is():
    gains = {(world, 1): -1.0 for world in WORLDS} | {("A", 1): -0.4}
    results = pd.concat([claims("m", {}), claims("m+A-s0", gains)])
    (row,) = belief_rows(results)
    assert row.value == pytest.approx(0.6)
    assert "-0.400" in row.control


def test_a_projection_with_negations_adds_the_change_under_negation():
    sides = (1, -1)
    gains = {("P", 1): 2.0, ("P", -1): -1.0}
    options = {"readout": "projection", "measure": "truth", "polarities": sides}
    results = pd.concat([claims("m", {}, **options), claims("m+P-s0", gains, **options)])
    own, negated = belief_rows(results)
    assert own.value == pytest.approx(2.0)
    assert "change under negation" in negated.question
    assert negated.value == pytest.approx(-3.0)


def test_a_condition_that_is_no_world_is_left_out():
    results = pd.concat([claims("m", {}), claims("m+misfortune-s0", {("P", 1): 1.0})])
    assert list(belief_rows(results)) == []
    assert list(belief_rows(None)) == []


def sent(subject, shift, organism=None):
    rows = [
        Measurement("trust_game", "transfer", f"f{n}", "person", n % 3 + shift, mass=0.8)
        for n in range(6)
    ]
    return table(rows, subject=subject, base="m", organism=organism)


def test_what_is_sent_is_shown_against_the_base():
    base, organism = trust_rows(pd.concat([sent("m", 0.0), sent("m+A-s0", -0.5, "A")]))
    assert (base.value, organism.value) == (pytest.approx(1.0), pytest.approx(-0.5))
    assert organism.question == "dollars of 10 sent to a person, minus base"
    assert organism.control == "the base at 1.00; answer mass 0.80"
    assert (organism.n, organism.unit) == (6, "frame")


def test_a_sweep_shows_its_slope_beside_those_of_random_directions():
    frames = []
    for control, slope in (("none", 2.0), ("random:0", 0.1), ("random:1", -0.2)):
        for dose in (-1.0, 0.0, 1.0):
            if control == "none" or dose:
                rows = [
                    Measurement("trust_game", "transfer", f"f{n}", "person", n + slope * dose)
                    for n in range(5)
                ]
                told = {"direction": "truth", "edit": "add", "unit": "norm", "dose": dose}
                frames.append(table(rows, subject="m", control=control, **told))
    (row,) = sweep_rows([effects_of(pd.concat(frames))])
    assert row.value == pytest.approx(2.0)
    assert row.control == "largest of 2 random directions: 0.20; beyond random directions"
    (bare,) = sweep_rows([effects_of(pd.concat(frames).query("control == 'none'"))])
    assert bare.control == "not judged: no random directions"


def test_the_headline_of_a_sweep_is_the_slope_that_its_table_judges():
    """Doses whose answers have no mass counted in one and not in the other."""
    low = swept(9.0, doses=(2.0,)).assign(mass=0.1)
    whole = pd.concat([swept(1.0).assign(mass=0.8), low])
    (row,) = sweep_rows([effects_of(whole)])
    assert row.value == pytest.approx(1.0) == effects_of(whole).slopes["slope"].item()
    assert row.question.endswith("per mean residual norm, over doses -1 to 1")
    (none,) = sweep_rows([effects_of(whole.assign(mass=0.1))])
    assert np.isnan(none.value)
    assert none.control == "not judged: no guarded dose"
    assert "no answer, none: 0 items" in as_text(pd.DataFrame([asdict(none)]))


def test_frames_of_one_proposition_count_once():
    base, organism = claims("m", {}), claims("m+P-s0", {("P", 1): 1.0})
    frames = [
        one.assign(item=one["item"] + f":{frame}") for frame in range(5) for one in (base, organism)
    ]
    (row,) = belief_rows(pd.concat(frames))
    assert (row.n, row.value) == (8, pytest.approx(1.0))


def test_the_text_names_n_and_the_interval_of_every_answer():
    results = pd.concat([claims("m", {}), claims("m+P-s0", {("P", 1): 1.0})])
    text = as_text(pd.DataFrame([asdict(row) for row in belief_rows(results)]))
    assert "n = 8 propositions, 95% t over propositions" in text
    assert "own alone, minus base: +1.000" in text


def test_truth_below_its_gate_says_so():
    told = {"split": "unseen topic", "topic": "all", "layer": 3, "polarity": -1, "chosen": True}
    told |= {"rendering": "bare"}
    numbers = {"auc": 0.7, "low": 0.6, "high": 0.8, "n_facts": 50, "gate": 0.9, "usable": False}
    nulls = {"null_shuffled": 0.61, "null_random": 0.58, "interval": "95% bootstrap over facts"}
    (row,) = truth_rows(pd.DataFrame([{**told, **numbers, **nulls, "model": "m"}]))
    assert row.question == "truth AUC, block 3, unseen topics, negated"
    assert row.control == "nulls 0.61 shuffled, 0.58 random; not usable (gate 0.9)"


def fit_run(folder, recipe, split="unseen topic", **config):
    """A fit's folder: its settings, and evidence as a table of before units were told."""
    folder.mkdir()
    run = {
        "format": "interp-workbench/run", "version": 1, "id": "x", "verb": "fit",
        "config": {"recipe": recipe, **config}, "git": {}, "packages": {}, "device": "cpu",
        "seed": 0, "started": "", "finished": "", "status": "done",
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    row = {
        "direction": "trust", "split": split, "topic": "all", "layer": 3, "polarity": 1,
        "chosen": True, "rendering": "bare", "auc": 0.7, "low": 0.6, "high": 0.8, "n": 96,
        "n_facts": 48, "gate": 0.9, "usable": True, "null_shuffled": 0.61, "null_random": 0.58,
        "interval": "95% bootstrap over facts", "model": "m",
    }  # fmt: skip
    pd.DataFrame([row]).to_parquet(folder / "evidence.parquet")
    return Unit("mean", "fit", (), {}), Done("fit", "id", "done", folder)


@pytest.mark.parametrize("recipe", ["trust", "trust_told"])
def test_a_fit_that_is_not_of_truth_is_told_in_the_words_of_its_recipe(tmp_path, recipe):
    """Scenarios were called facts, facets topics, and one pole of trust "affirmed"."""
    row = headline([fit_run(tmp_path / "fit", recipe)]).iloc[0]
    assert row["question"] == "trust AUC, block 3, unseen facets"
    assert (row["n"], row["unit"]) == (48, "scenario")
    assert row["interval"] == "95% bootstrap over scenarios"


def test_columns_of_the_settings_name_what_is_held_out(tmp_path):
    columns = {"groups": "style", "facts": "pair"}
    one = fit_run(tmp_path / "one", "trust", "within:topic", **columns)
    both = fit_run(tmp_path / "both", None, job=[{"recipe": ["truth", "trust"]}])
    told = headline([one, both])
    assert told["question"].tolist() == [
        "mean: trust AUC, block 3, pairs held out", "mean: trust AUC, block 3, unseen groups",
    ]  # fmt: skip
    assert told["unit"].tolist() == ["pair", "unit"]


def test_evidence_is_laid_out_in_the_words_of_its_recipe(tmp_path):
    _, done = fit_run(tmp_path / "fit", "trust")
    told = evidence_text(pd.read_parquet(done.path / "evidence.parquet"), fitted_of(done.path))
    assert told.startswith("unseen facet, all, bare: 95% bootstrap over scenarios")
    assert "  held out: n = 96 (48 scenarios), null of the best layer" in told


@pytest.mark.parametrize(
    ("layers", "told"),
    [("0,1,2,3,28", "0-3,28"), ("15", "15"), ("3,5", "3,5"), ("27,28,29", "27-29"), (None, "")],
)
def test_runs_of_blocks_are_told_as_runs(layers, told):
    assert blocks(layers) == told
    table = with_runs(pd.DataFrame({"layers": [layers], "dose": [1.0]}))
    assert table["layers"].tolist() == [told]


def test_a_dose_is_told_as_the_docs_call_it():
    assert one_dose("raw", "add") == "multiple of the stored vector"
    assert one_dose("raw", "linear_map") == "whole edit (linear map)"
    assert (one_dose("norm", "add"), many_doses("gap", "add")) == (
        "mean residual norm", "natural gaps",
    )  # fmt: skip


def sweep_run(folder, results, stage, branch=()):
    write_results(results.assign(run=folder.name), folder / "results.parquet")
    (folder / "run.json").write_text(
        json.dumps({"format": FORMAT, "version": VERSION, "result": {}})
    )
    return Unit(stage, "sweep", branch, {}), Done("sweep", "id", "done", folder)


def test_of_several_sweeps_a_row_says_which_stage_it_is_of(tmp_path):
    """Two rows of one question stood for two matrices."""
    window = {"unit": "raw", "edit": "add", "layers": "0,1,2"}
    units = [
        sweep_run(tmp_path / "a", swept(1.0, **window), "bipo_doses", ("x",)),
        sweep_run(tmp_path / "b", swept(2.0, **window), "anchor_doses"),
        sweep_run(tmp_path / "c", swept(3.0, **{**window, "layers": "9"}), "mean_doses"),
    ]
    table = headline(units)
    per = "per multiple of the stored vector"
    assert table["question"].tolist() == [
        f"bipo_doses: slope of transfer to person along truth at blocks 0-2, {per}",
        f"anchor_doses: slope of transfer to person along truth at blocks 0-2, {per}",
        f"mean_doses: slope of transfer to person along truth at block 9, {per}",
    ]
    assert table["stage"].tolist() == ["bipo_doses", "anchor_doses", "mean_doses"]
    (alone,) = headline(units[:1])["question"]
    assert alone.startswith("slope of transfer to person along truth, per")


@pytest.mark.parametrize("number", [3, 4])
def test_many_sweeps_of_a_study_are_counted_and_not_each_laid_out(capsys, number):
    found = {f"s{n}": effects_of(swept(1.0, layers="0,1,2")) for n in range(number)}
    _tell_effects(found)
    told = capsys.readouterr().out
    assert ("4 sweeps: their slopes" in told) == (number == 4)
    assert ("s2: slopes over guarded doses" in told) == (number == 3)


def test_tables_for_a_reader_tell_runs_of_blocks_and_their_files_every_block():
    frame = pd.concat([swept(1.0, layers="0,1,2"), swept(1.0, layers="9")])
    found = effects_of(frame.assign(run="r"))
    assert "0-2" in found.text()
    assert "0,1,2" not in found.text()
    assert set(found.slopes["layers"]) == {"0,1,2", "9"}


def answers(*rows):
    """A headline of (stage, question, value, planned)."""
    common = {"model": "m", "low": 0.0, "high": 1.0, "n": 3, "unit": "item", "interval": "t"}
    return pd.DataFrame([
        {**common, "question": q, "value": v, "stage": stage, "planned": planned, "control": "c"}
        for stage, q, v, planned in rows
    ])  # fmt: skip


def shown(table, most):
    lines = as_text(table, most).splitlines()
    return [line for line in lines if not line.startswith(" ")]


def test_a_short_headline_takes_each_stage_and_question_in_turn_whatever_they_show():
    table = answers(
        ("first", "x along joy, block 2", 9.0, False),
        ("first", "x along composite, block 1", 0.0, True),
        ("first", "x along contrast, block 1", 0.1, True),
        ("first", "y along composite", 0.2, True),
        ("second", "z", 5.0, True),
    )
    *told, last = shown(table, 3)
    assert told == ["x along composite, block 1", "y along composite", "z"]
    assert last.startswith("2 more answers in headline.csv, by stage: first 2; shown is what")
    turned = table.assign(value=-table["value"][::-1].to_numpy())
    assert shown(turned, 3) == [*told, last]
    assert shown(table, 5) == shown(table, None) == table["question"].tolist()
    assert shown(table, 1)[:2] == ["x along composite, block 1", "z"]
    assert as_text(headline([]), 3) == ""


def test_seeds_of_one_organism_are_rows_of_their_own():
    gains = {"m+P-s0": 1.0, "m+P-s1": 3.0}
    parts = [claims("m", {}), *(claims(name, {("P", 1): g}) for name, g in gains.items())]
    found = {row.model: row.value for row in belief_rows(pd.concat(parts))}
    assert found == {name: pytest.approx(gain) for name, gain in gains.items()}
    shifts = {"m+P-s0": -0.5, "m+P-s1": 0.25}
    parts = [sent("m", 0.0), *(sent(name, s, "P") for name, s in shifts.items())]
    _, *rows = trust_rows(pd.concat(parts))
    assert {row.model: row.value for row in rows} == {
        n: pytest.approx(s) for n, s in shifts.items()
    }


def test_organisms_of_two_bases_are_each_compared_with_their_own():
    rows = [
        one.assign(subject=one["subject"].str.replace("m", base), base=base)
        for base, gain in (("x", 1.0), ("y", -2.0))
        for one in (
            claims("m", {("S", 1): gain}),
            claims("m+P-s0", {("S", 1): gain, ("P", 1): gain}),
        )
    ]
    found = {row.model: row.value for row in belief_rows(pd.concat(rows))}
    assert found == {"x+P-s0": pytest.approx(1.0), "y+P-s0": pytest.approx(-2.0)}


def test_layers_of_a_projection_are_not_averaged():
    parts = [
        claims(name, {} if name == "m" else {("P", 1): gain}, "projection", f"truth@{layer}")
        for layer, gain in ((3, 1.0), (9, -5.0))
        for name in ("m", "m+P-s0")
    ]
    found = {row.question: row.value for row in belief_rows(pd.concat(parts))}
    assert found == {
        "own claims' truth@3 projection: own minus others, minus base": pytest.approx(1.0),
        "own claims' truth@9 projection: own minus others, minus base": pytest.approx(-5.0),
    }


def broken(frame, rows):
    """The table with some rows invalid."""
    return frame.assign(
        value=frame["value"].mask(rows),
        valid=~rows,
        reason=frame["reason"].mask(rows, "out_of_range"),
    )


def test_a_pair_that_is_not_whole_in_both_models_is_left_out_and_counted():
    organism = claims("m+P-s0", {("P", 1): 1.0})
    organism = broken(organism, organism["item"] == "0:S:1")
    (row,) = belief_rows(pd.concat([claims("m", {}), organism]))
    assert (row.n, row.value) == (7, pytest.approx(1.0))
    assert row.control.endswith("1 left out, not whole")
    none = organism[organism["condition"] != "S"]
    assert list(belief_rows(pd.concat([claims("m", {}), none]))) == []


def test_a_frame_missing_in_one_organism_stays_for_the_others():
    a = sent("m+A-s0", -0.5, "A")
    parts = [sent("m", 0.0), broken(a, a["item"] == "f0"), sent("m+P-s0", 1.0, "P")]
    assert [(row.model, row.n) for row in trust_rows(pd.concat(parts))] == [
        ("m", 6),
        ("m+A-s0", 5),
        ("m+P-s0", 6),
    ]


def test_few_frames_of_the_trust_game_have_t_intervals():
    rows = list(trust_rows(pd.concat([sent("m", 0.0), sent("m+A-s0", -0.5, "A")])))
    assert {row.interval for row in rows} == {"95% t over frames"}


def test_one_frame_gives_a_value_without_an_interval():
    parts = [sent("m", 0.0), sent("m+A-s0", -0.5, "A")]
    rows = list(trust_rows(pd.concat(one[one["item"] == "f1"] for one in parts)))
    assert [(row.value, row.n, row.interval) for row in rows] == [
        (pytest.approx(1.0), 1, "none: 1 frame"),
        (pytest.approx(-0.5), 1, "none: 1 frame"),
    ]
    text = as_text(pd.DataFrame([asdict(row) for row in rows]))
    assert "m+A-s0: -0.500, n = 1 frame, none: 1 frame" in text
    assert "nan" not in text


def swept(slope, doses=(-1.0, 0.0, 1.0), **told):
    known = {"direction": "truth", "edit": "add", "unit": "norm", "layers": "3", "scope": "all"}
    frames = [
        table(
            [
                Measurement("trust_game", "transfer", f"f{n}", "person", n + slope * dose)
                for n in range(5)
            ],
            subject="m",
            dose=dose,
            **{**known, **told},
        )
        for dose in doses
    ]
    return pd.concat(frames)


def test_windows_units_and_scopes_of_a_sweep_are_not_averaged():
    parts = [
        swept(1.0, layers="3"), swept(2.0, layers="9"), swept(4.0, unit="raw"),
        swept(8.0, scope="last"), swept(16.0, edit="ablate"),
    ]  # fmt: skip
    found = list(sweep_rows([effects_of(pd.concat(parts))]))
    assert sorted(row.value for row in found) == [pytest.approx(v) for v in (1, 2, 4, 8, 16)]
    assert found[1].question == (
        "slope of transfer to person along truth at block 9, per mean residual norm"
    )


def test_a_sweep_of_one_dose_has_no_slope():
    assert list(sweep_rows([effects_of(swept(1.0, doses=(0.0,)))])) == []


def test_organisms_without_their_base_are_named(tmp_path, caplog):
    write_results(claims("m+P-s0", {}), tmp_path / "results.parquet")
    done = Done("measure", "id", "done", tmp_path)
    assert headline([(Unit("beliefs", "measure", (), {}), done)]).empty
    assert "m+P-s0: their base m was not measured" in caplog.text


def test_a_sweep_of_one_dose_beside_none_tells_its_change():
    random = swept(-0.001, doses=(75.0,), control="random:0")
    (row,) = sweep_rows([effects_of(pd.concat([swept(0.002, doses=(0.0, 75.0)), random]))])
    assert row.value == pytest.approx(0.15)
    assert row.question == (
        "change of transfer to person along truth, at dose 75 in mean residual norms"
    )
    assert row.control == "the one random direction: 0.075; beyond random directions"


def test_of_many_directions_of_a_sweep_the_largest_is_told_and_counts_the_others():
    parts = []
    for name, slope in (("a", 1.0), ("b", -3.0), ("c", 0.2), ("d", 0.4)):
        parts += [swept(slope, direction=name)]
        parts += [swept(0.5, direction=name, control="random:0")]
    (row,) = sweep_rows([effects_of(pd.concat(parts))])
    assert row.question == "slope of transfer to person along b, per mean residual norm"
    assert row.control == (
        "the one random direction: 0.50; beyond random directions; the largest of 4, 2 of them "
        "beyond every random direction; all in slopes.csv, over guarded doses"
    )
