"""The headline of a study on tables with planted answers."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from workbench.pipelines.report import as_text, belief_rows, sweep_rows, trust_rows, truth_rows
from workbench.results import table
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
    (row,) = sweep_rows(pd.concat(frames))
    assert row.value == pytest.approx(2.0)
    assert row.control == "random slopes -0.20 to +0.10 (n = 2)"
    (bare,) = sweep_rows(frames := pd.concat(frames).query("control == 'none'"))
    assert bare.control == "no random control was run"


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
    numbers = {"auc": 0.7, "low": 0.6, "high": 0.8, "n_facts": 50, "gate": 0.9, "usable": False}
    nulls = {"null_shuffled": 0.61, "null_random": 0.58, "interval": "95% bootstrap over facts"}
    (row,) = truth_rows(pd.DataFrame([{**told, **numbers, **nulls, "model": "m"}]))
    assert row.question == "truth AUC, block 3, unseen topics, negated"
    assert row.control == "nulls 0.61 shuffled, 0.58 random; not usable (gate 0.9)"
