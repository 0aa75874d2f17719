"""The log: sums become means by arm and layer, and an edit that never fired is seen."""

import math

import torch

from workbench.interventions.log import EditKey, EditLog


def key(layer, arms=(0, 1), edit="add"):
    return EditKey(layer, 0, edit, "all", arms)


def test_counts_add_up_over_passes_and_layers():
    log = EditLog()
    for layer in (5, 2):
        log.expect(key(layer))
    log.add(key(2), torch.tensor([[4.0, 2, 8], [4, 4, -4]]))
    log.add(key(2), torch.tensor([[4.0, 0, 0], [4, 4, -4]]))
    log.add(key(5), torch.tensor([[8.0, 6, 24], [8, 8, 8]]))
    first = log.rows[0]
    assert [row.layer for row in log.rows] == [2, 2, 5, 5]
    assert (first.arm, first.n, first.engaged, first.realised) == (0, 8, 0.25, 1.0)
    assert log.realised(0) == (8 + 24) / 16
    assert log.engaged(1) == 1.0


def test_an_arm_without_edits_moved_nothing():
    log = EditLog()
    assert (log.realised(3), log.engaged(3)) == (0.0, 0.0)


def test_an_edit_that_never_fired_is_idle_and_has_no_mean():
    log = EditLog()
    log.expect(key(1, arms=(0,)))
    assert [row.layer for row in log.idle()] == [1]
    assert math.isnan(log.rows[0].realised)


def test_the_table_has_a_row_for_each_arm_and_edit():
    log = EditLog()
    log.expect(key(1, arms=(0, 2)))
    frame = log.table()
    assert list(frame.columns) == [
        "arm", "layer", "order", "edit", "scope", "n", "engaged", "realised",
    ]  # fmt: skip
    assert frame["arm"].tolist() == [0, 2]
