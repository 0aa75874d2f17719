"""The ledger: what shared rows did is brought to each arm and each of its edits."""

import pytest
import torch

from workbench.engine.edits import LiveEdits
from workbench.engine.ledger import Ledger, fresh_log
from workbench.interventions import EditLog


def test_counts_of_a_context_reach_the_right_edit_of_every_arm(tiny_subject, make_edit):
    early = make_edit("add", 1, 2.0)
    late = make_edit("ablate", 1, 1.0, "last")
    arms = [(early,), (late, early)]  # in the second arm it is the second edit of its block
    log = EditLog()
    live = LiveEdits(tiny_subject, arms, log)
    ledger = Ledger(log, live, arms)
    shared = LiveEdits(tiny_subject, [(early,)], EditLog())
    part = fresh_log(shared)
    (group,) = shared.groups[1]
    part.add(group.key, torch.tensor([[10.0, 5.0, 20.0]]))
    ledger.credit(part, {0: [(0, 1), (1, 3)]}, True)
    rows = {(row.arm, row.edit): row for row in log.rows}
    assert (rows[0, "add"].n, rows[1, "add"].n, rows[1, "ablate"].n) == (10, 30, 0)
    assert rows[1, "add"].engaged == pytest.approx(0.5)
    assert rows[1, "add"].realised == pytest.approx(2.0)
    assert [row.edit for row in log.idle()] == ["ablate"]
