"""The transfer grid shows every pair of topics, and only what beats both nulls is filled."""

import pandas as pd
import pytest

from workbench.figures import DARK, LIGHT, transfer_grid, world_projections
from workbench.figures.theme import contrast
from workbench.figures.transfer import grid_cells

TOPICS = ("animals", "elements", "geography")


def evidence(weak=("elements", "animals")):
    rows = []
    for row in TOPICS:
        for column in TOPICS:
            for layer in (3, 4):
                for polarity in (1, -1, 0):
                    value = 0.55 if (row, column) == weak else 0.8 + 0.1 * (row == column)
                    rows.append(
                        {
                            "split": "transfer", "fitted_on": row, "topic": column, "layer": layer,
                            "polarity": polarity, "auc": value, "low": value - 0.05,
                            "high": value + 0.05, "n": 80, "n_facts": 40, "null_shuffled": 0.6,
                            "null_random": 0.65, "beats_nulls": value > 0.65, "chosen": layer == 4,
                        }
                    )  # fmt: skip
    other = pd.DataFrame([{**rows[0], "split": "unseen topic", "fitted_on": "other topics"}])
    return pd.concat([pd.DataFrame(rows), other], ignore_index=True)


def boxes(figure):
    return figure.renderers[0].data_source.data


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cells_that_beat_both_nulls_are_filled_and_every_number_can_be_read(theme):
    look = LIGHT if theme == "light" else DARK
    data = boxes(transfer_grid(evidence(), theme=theme))
    cells = dict(zip(zip(data["fitted_on"], data["topic"], strict=True), data["fill"], strict=True))
    assert len(cells) == 9
    empty = [pair for pair, fill in cells.items() if fill == look.surface]
    assert empty == [("elements", "animals")]
    for ink, fill in zip(data["ink"], data["fill"], strict=True):
        assert contrast(ink, fill) >= 4.5
    assert set(data["text"]) == {"0.55", "0.80", "0.90"}


def test_the_header_counts_and_names_the_polarity():
    figure = transfer_grid(evidence(), polarity=-1, title="ttpd")
    said = figure.html_attributes["aria-label"]
    assert said == "ttpd: 8 of 9 cells beat both nulls (negated)."
    assert list(figure.y_range.factors) == sorted(TOPICS, reverse=True)


def test_only_the_chosen_layer_and_the_split_are_drawn():
    cells = grid_cells(evidence())
    assert set(cells["layer"]) == {4}
    assert set(cells["fitted_on"]) == set(TOPICS)


def test_no_grid_and_two_grids_at_once_are_refused():
    table = evidence()
    with pytest.raises(ValueError, match="no rows of the split 'transfer'"):
        transfer_grid(table[table["split"] != "transfer"])
    with pytest.raises(ValueError, match="choose one method"):
        transfer_grid(pd.concat([table, table]))


def test_models_in_which_truth_is_not_read_are_grayed_and_named_in_the_header():
    rows = [
        {"organism": model, "world": world, "mean": 1.0, "low": 0.5, "high": 1.5, "n": 9,
         "unit": "proposition"}
        for model in ("base", "P") for world in "PSNA"
    ]  # fmt: skip
    summary = pd.DataFrame(rows)
    figure = world_projections(summary, {"P": "P"}, reads={"base": 0.95, "P": 0.7})
    notes = " ".join(note.text for note in figure.above if hasattr(note, "text"))
    said = notes.replace("\n", " ")
    assert "Held-out truth AUC: base 0.95, P 0.70; not usable below 0.90: P" in said
    data = figure.renderers[0].data_source.data
    assert data["color"][0] == LIGHT.palette[0]
    assert data["color"][1] != LIGHT.palette[0]
    plain = world_projections(summary, {"P": "P"})
    assert set(plain.renderers[0].data_source.data["color"]) == {LIGHT.palette[0]}
