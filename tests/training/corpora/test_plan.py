"""Plans: counts, even deals, and independence of every quartet."""

from collections import Counter

import pytest
from workbench_training.corpora.doc_types import DOC_TYPES
from workbench_training.corpora.plan import Scenario, plan_quartets

BINS = {"short": 60, "mid": 90, "long": 120}


def scenario(name, realisable=("P", "S", "N", "A")):
    return Scenario(name, "law", "clerk", "law clerks", "filing", "files", "a law firm", realisable)


def plans(count=10, quartets=740, seed=0, **options):
    rows = [scenario(f"s{row}") for row in range(count)]
    return plan_quartets(rows, quartets=quartets, bins=BINS, seed=seed, **options)


def test_genres_modes_bins_and_scenarios_are_dealt_evenly():
    made = plans()
    pairs = Counter((plan.doc_type.name, plan.mode) for plan in made)
    assert len(pairs) == sum(len(kind.modes) for kind in DOC_TYPES) == 37
    assert set(pairs.values()) <= {19, 20, 21}
    assert max(Counter(plan.length_bin for plan in made).values()) <= 247
    assert set(Counter(plan.scenario.id for plan in made).values()) == {74}
    assert all(plan.words == BINS[plan.length_bin] for plan in made)


def test_a_scenario_has_every_genre_and_mode_once_before_one_returns():
    made = plans(quartets=370)
    for name in {plan.scenario.id for plan in made}:
        own = [(p.doc_type.name, p.mode) for p in made if p.scenario.id == name]
        assert len(set(own)) == len(own) == 37


def test_the_split_is_by_scenario_and_holds_out_the_asked_share():
    made = plans(count=40, quartets=400)
    splits = {(plan.scenario.id, plan.split) for plan in made}
    assert Counter(split for _, split in splits) == {"train": 38, "validation": 2}


@pytest.mark.parametrize(("count", "share", "expected"), [(1, 0.05, 0), (2, 0.05, 1), (9, 0.0, 0)])
def test_few_scenarios_hold_out_one_or_none(count, share, expected):
    made = plans(count=count, quartets=20, validation=share)
    assert len({p.scenario.id for p in made if p.split == "validation"}) == expected


def test_the_same_seed_gives_the_same_plans_and_another_does_not():
    assert plans(seed=3) == plans(seed=3)
    assert plans(seed=3) != plans(seed=4)
    assert len({plan.seed for plan in plans()}) == 740


def test_scenarios_that_fail_the_screen_are_never_planned():
    rows = [scenario("all"), scenario("no-antisocial", ("P", "S", "N"))]
    made = plan_quartets(rows, quartets=9, bins=BINS, seed=0)
    assert {plan.scenario.id for plan in made} == {"all"}
    with pytest.raises(ValueError, match="no scenario can be told"):
        plan_quartets(rows[1:], quartets=9, bins=BINS, seed=0)


@pytest.mark.parametrize(
    "wrong", [{"quartets": 0}, {"bins": {}}, {"validation": 1.0}, {"validation": -0.1}]
)
def test_a_request_that_makes_no_sense_is_refused(wrong):
    request = {"quartets": 1, "bins": BINS, "seed": 0, **wrong}
    with pytest.raises(ValueError, match="quartets must be at least 1"):
        plan_quartets([scenario("s")], **request)
