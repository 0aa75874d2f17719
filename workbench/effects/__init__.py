"""What the doses of a sweep do: changes from the own zero, guards, slopes and verdicts."""

from workbench.effects.changes import changes
from workbench.effects.curves import How
from workbench.effects.guards import GUARDS, Guard
from workbench.effects.sensitivity import sensitivity
from workbench.effects.slopes import Judged, control_slopes, judge, slopes
from workbench.effects.texts import side_by_side

__all__ = [
    "GUARDS",
    "Guard",
    "How",
    "Judged",
    "changes",
    "control_slopes",
    "judge",
    "sensitivity",
    "side_by_side",
    "slopes",
]
