"""The truth page's cards on an apply run: the gate in every model, beliefs, the transfer grid."""

import pandas as pd
import pytest
from runs_root import claim_rows, evidence, write_claims, write_fit
from workbench_apps import frozen, tables
from workbench_apps.catalogue import read_catalogue
from workbench_apps.page_states import TruthState
from workbench_apps.pages.truth import TruthView

from workbench.results import write_results
from workbench.runs import open_run

MODELS = ("tiny", "tiny+P-s0")


def grid_rows():
    cell = evidence().query("split == 'within:topic' and topic != 'all'")
    topics = cell["topic"].unique()
    parts = [cell.assign(split="transfer", fitted_on=topic) for topic in topics]
    return pd.concat(parts).assign(beats_nulls=True)


def gate_rows():
    rows = []
    for model in MODELS:
        for turn in ("bare", "chat"):
            value = 0.95 if (model, turn) != ("tiny+P-s0", "chat") else 0.7
            for polarity in (1, -1, 0):
                rows.append(
                    {"model": model, "rendering": turn, "polarity": polarity, "topic": "all",
                     "n": 100, "auc": value, "low": value - 0.04, "high": value + 0.03,
                     "usable": value > 0.9, "gate": 0.9, "interval": "95% bootstrap over facts",
                     "layer": 3, "chosen": True}
                )  # fmt: skip
    return pd.DataFrame(rows)


def belief_rows():
    told = {"model": "tiny+P-s0", "own": "P", "low": 1.0, "high": 3.0, "n": 9, "layer": 3}
    more = {"unit": "proposition", "interval": "95% t over propositions", "n_random": 200}
    return pd.DataFrame(
        [
            {**told, **more, "contrast": contrast, "rendering": turn, "set": "propositions",
             "value": 2.0, "percentile_random": 99.5, "percentile_shuffled": 97.0,
             "gate_auc": 0.7 if turn == "chat" else 0.95, "usable": turn == "bare"}
            for contrast in frozen.CONTRASTS for turn in ("bare", "chat")
        ]
    )  # fmt: skip


def write_apply(root, fit):
    config = {"directions": str(fit), "held_out": [], "claims": []}
    with open_run("apply", config, root=root, inputs=[fit]) as run:
        gate_rows().to_parquet(run.path / "evidence.parquet")
        belief_rows().to_parquet(run.path / "beliefs.parquet")
        parts = []
        for organism in (None, "P"):
            for shift, turn in enumerate(("bare", "chat")):
                rows = claim_rows(organism).query("readout == 'projection'")
                told = rows["extra"].str.replace("{", f'{{"rendering": "{turn}", ', n=1)
                parts.append(rows.assign(extra=told, value=rows["value"] + 100 * shift))
        write_results(pd.concat(parts), run.path / "results.parquet", run=run.id)
        run.finish({}, models=list(MODELS))
    return run.path


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    fit = write_fit(root)
    file = fit / "evidence.parquet"
    pd.concat([pd.read_parquet(file), grid_rows()]).to_parquet(file)
    write_apply(root, fit)
    return TruthState(read_catalogue(root))


def text_of(parts):
    return " ".join(str(getattr(part, "object", "")) for part in parts)


def test_an_apply_run_is_no_fit_and_its_claims_belong_to_its_fit(state):
    assert len(state.options("fit")) == 1
    assert list(state.options("claims")) == [state.fit]
    assert state.options("turn") == {"bare": "bare", "chat": "chat"}
    assert "transfer" not in state.options("split")


def test_renderings_of_the_claims_are_never_averaged(state):
    def means(turn):
        state.choose(turn=turn)
        rows = state.projections()
        return tables.claim_summary(tables.claim_values(rows, "claim"), "proposition")["mean"]

    assert means("bare").max() < 50
    assert means("chat").min() > 50
    state.choose(turn="bare")


def test_every_model_and_rendering_has_its_verdict_and_nothing_is_left_out(state):
    gate = frozen.gate_of(state.claim_runs())
    rows = frozen.gate_rows(gate)
    assert [(row[0], row[4]) for row in rows] == [(m, t) for m in MODELS for t in ("bare", "chat")]
    assert [row[1] for row in rows] == ["usable", "usable", "usable", "not usable"]
    reads = frozen.reads_of(gate, "chat", state.projections())
    assert reads == {"base": 0.95, "P": 0.7}


def test_the_cards_name_both_nulls_and_the_header_says_what_is_not_usable(state):
    view = TruthView(state)
    state.choose(turn="chat")
    shown = text_of(view.models())
    assert "percentile among 200 random unit directions" in shown
    assert "99.5" not in shown
    assert shown.count("propositions") >= len(frozen.CONTRASTS)
    figure = view.claims()[1].object
    notes = " ".join(part.text for part in figure.above if hasattr(part, "text"))
    assert "not usable below 0.90: P" in notes.replace("\n", " ")
    state.choose(turn="bare")


def test_the_grid_has_a_card_where_the_fit_was_checked_from_topic_to_topic(state, tmp_path):
    card = TruthView(state).grid()
    assert "of 9 cells beat both nulls" in card[0].object.html_attributes["aria-label"]
    write_claims(tmp_path, write_fit(tmp_path))
    other = TruthView(TruthState(read_catalogue(tmp_path)))
    assert other.grid() == []
    assert other.models() == []
