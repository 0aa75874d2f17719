"""Dose sweeps: behaviour against the strength of an edit, controls in the same batches."""

from workbench.sweeps.controls import Steering
from workbench.sweeps.design import Baseline, Design
from workbench.sweeps.run import plan_sweep, sweep, sweep_run

__all__ = ["Baseline", "Design", "Steering", "plan_sweep", "sweep", "sweep_run"]
