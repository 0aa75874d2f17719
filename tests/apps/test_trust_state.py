"""The trust page's state and tables, without a browser."""

import numpy as np
import pandas as pd
import pytest
from trust_runs import DOSES, FACETS, ITEMS, SLOPES, write_trust
from workbench_apps import trust_lines, trusts
from workbench_apps.catalogue import read_catalogue
from workbench_apps.state import EVERY
from workbench_apps.trust_state import TrustState

from workbench.errors import FormatError


@pytest.fixture
def state(tmp_path):
    write_trust(tmp_path)
    return TrustState(read_catalogue(tmp_path))


def test_it_opens_with_the_first_method_at_the_dose_of_training(state):
    assert (state.method, state.facet, state.dose, state.item) == ("bipo", EVERY, "1", "")
    assert set(state.options("dose")) == {f"{dose:g}" for dose in DOSES if dose}
    assert state.search() == ""


def test_items_come_with_the_margin_before_and_after(state):
    table = state.items()
    assert len(table) == len(FACETS) * ITEMS
    assert (table["after"] - table["before"]).to_numpy() == pytest.approx(SLOPES["bipo", "none"])
    state.choose(method="mean_difference", dose="-2", facet="integrity")
    table = state.items()
    assert set(table["facet"]) == {"integrity"}
    assert (table["after"] - table["before"]).to_numpy() == pytest.approx(-0.1)


def test_steps_go_through_the_pairs_by_margin_and_stop_at_the_ends(state):
    order = list(state.items()["item"])
    state.step(1)
    assert state.item == order[0]
    state.step(1)
    assert state.item == order[1]
    for _ in range(3):
        state.step(-1)
    assert state.item == order[0]
    state.choose(item="")
    state.step(-1)
    assert state.item == order[-1]


def test_a_pair_goes_when_its_facet_is_left(state):
    state.choose(item="ability-03")
    state.choose(facet="integrity")
    assert state.item == ""


def test_every_field_comes_back_from_its_address(state, tmp_path):
    state.choose(method="mean_difference", facet="ability", dose="2", item="ability-03")
    other = TrustState(read_catalogue(tmp_path))
    assert other.settle(state.query()) == []
    assert other.search() == state.search() != ""


def test_a_pair_is_read_with_its_conversation_and_both_replies(state):
    found = trusts.pair_of(state.entry(), "benevolence-02")
    assert found["prompt"][0]["content"].startswith("I checked the benevolence figures")
    assert found["chosen"] != found["rejected"]
    assert trusts.pair_of(state.entry(), "benevolence-99") is None
    table = trusts.item_by_dose(
        state.entry(), "benevolence-02", ["mean_difference", "bipo", "ghost"]
    )
    assert list(table.columns) == ["mean_difference", "bipo"]
    assert list(table.index) == list(DOSES)


def test_every_method_is_judged_over_all_facets_and_the_one_on_show_by_facet(state):
    table = trusts.monotone_of(state.entry())
    heads, lines = trust_lines.rises(table, "bipo")
    assert heads == [
        "method",
        "control",
        "facet",
        "slope",
        "over shuffled",
        "smallest step",
        "scenarios",
    ]
    shown = [(method, control, facet) for method, control, facet, *_ in lines]
    assert ("bipo", "—", "ability") in shown
    assert ("mean difference", "—", "all facets") in shown
    assert ("mean difference", "—", "ability") not in shown
    (own,) = (line for line in lines if line[:3] == ("bipo", "shuffled", "all facets"))
    assert own[4] == "—"
    assert own[3] == "+0.01 [+0.006, +0.014]"


@pytest.mark.parametrize(
    ("method", "words"), [("bipo", "above shuffled labels"), ("mean_difference", "not beyond")]
)
def test_the_verdict_names_the_side_of_the_interval(state, method, words):
    assert words in trust_lines.verdict(trusts.monotone_of(state.entry()), method)


def test_a_slope_that_one_random_matrix_reaches_is_not_beyond_them(state):
    table = trusts.monotone_of(state.entry())
    (over,) = table.query(
        "method == 'bipo' and statistic == 'slope_minus_shuffled' and facet == 'all'"
    ).to_dict("records")
    for reach, words in ((0.19, "above random"), (0.21, "not beyond random")):
        drawn = over | {"control": "random:0", "statistic": "slope", "value": reach}
        mean = over | {"statistic": "slope_minus_random"}
        more = pd.concat([table, pd.DataFrame([drawn, mean])])
        assert words in trust_lines.verdict(more, "bipo")


def test_a_slope_without_controls_is_said_to_stand_alone(state):
    table = trusts.monotone_of(state.entry())
    alone = table[table["statistic"] == "slope"]
    assert trust_lines.verdict(alone, "bipo").endswith("nothing stands beside it.")
    assert trust_lines.verdict(table, "prayer") == ""


def test_costs_have_a_column_for_each_side_that_was_measured(state):
    heads, lines = trust_lines.displacements(trusts.displacement_of(state.entry()), "bipo")
    assert heads[2:] == ["trusting reply", "distrusting reply", "text without a pole", "scenarios"]
    assert [(line[1], line[-1]) for line in lines] == [
        (dose, "36") for dose in ("-2", "-1", "+1", "+2")
    ]
    assert trust_lines.displacements(trusts.displacement_of(state.entry()), "prayer")[1] == []


def test_transfer_leaves_the_zero_dose_out_and_says_what_is_beyond_and_what_has_low_mass(state):
    _, lines = trust_lines.transfers(trusts.transfer_of(state.entry()), "bipo")
    told = [(*line[1:3], "beyond" in str(line[4]), "low" in str(line[5])) for line in lines]
    assert told == [
        ("—", "-2", True, True), ("—", "-1", False, False),
        ("—", "+1", False, False), ("—", "+2", True, True),
        ("shuffled", "-2", False, True), ("shuffled", "-1", False, False),
        ("shuffled", "+1", False, False), ("shuffled", "+2", False, True),
    ]  # fmt: skip


def test_all_facets_come_first(state):
    assert trusts.facets_of(state.margins()) == ["all", *FACETS]
    assert set(state.margins()["control"]) == {
        "none",
        "shuffled",
        "random:0",
        "random:1",
        "random:2",
    }


def test_a_run_without_items_or_blocks_still_opens(tmp_path):
    write_trust(
        tmp_path,
        without=("items", "pairs", "blocks", "facets", "monotone", "displacement", "transfer"),
    )
    bare = TrustState(read_catalogue(tmp_path))
    assert (bare.method, bare.facet, bare.dose, bare.item) == ("bipo", "", "", "")
    assert bare.items().empty
    assert trusts.blocks_of(bare.entry()).empty
    bare.step(1)


def test_a_table_without_a_column_is_named_with_what_to_do(state):
    path = state.entry().path / "margin.parquet"
    pd.read_parquet(path).drop(columns="facet").to_parquet(path)
    with pytest.raises(FormatError, match=r"margin.parquet has no column 'facet'"):
        state.margins()


def test_a_margin_that_stands_twice_is_refused(tmp_path):
    """A mean of two sweeps stood in the table of a pair before."""
    path = write_trust(tmp_path)
    items = pd.read_parquet(path / "items.parquet")
    pd.concat([items, items]).to_parquet(path / "items.parquet", index=False)
    (entry,) = read_catalogue(tmp_path).usable("trust")
    with pytest.raises(FormatError, match="under bipo at dose -2 twice"):
        trusts.items_of(entry)


def test_a_share_of_steps_has_its_p_or_says_why_there_is_none():
    row = {"method": "bipo", "control": "none", "facet": "all", "statistic": "steps",
           "value": 1.0, "low": 1.0, "high": 1.0, "p": 0.002, "n": 12, "unit": "scenario",
           "test": "sign flips over scenarios"}  # fmt: skip
    few = {**row, "control": "shuffled", "p": np.nan, "n": 4, "test": "too few scenarios"}
    heads, lines = trust_lines.rises(pd.DataFrame([row, few]), "bipo")
    assert heads[3:] == ["steps that rise", "scenarios"]
    assert [line[3:] for line in lines] == [("100%, p 0.002", 12), ("100%, too few scenarios", 4)]
