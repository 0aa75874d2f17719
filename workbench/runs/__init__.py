"""Run folders: ids that follow from settings and inputs, manifests, units, who works there."""

from workbench.plain import differing as differing
from workbench.plain import plain as plain
from workbench.runs.identity import HASHES as HASHES
from workbench.runs.identity import hash_path as hash_path
from workbench.runs.identity import plan_run as plan_run
from workbench.runs.identity import run_id as run_id
from workbench.runs.manifest import FORMAT as FORMAT
from workbench.runs.manifest import VERSION as VERSION
from workbench.runs.manifest import list_runs as list_runs
from workbench.runs.manifest import read_result as read_result
from workbench.runs.manifest import read_run as read_run
from workbench.runs.opening import OpenRun as OpenRun
from workbench.runs.opening import first_line as first_line
from workbench.runs.opening import foresee as foresee
from workbench.runs.opening import kept_in as kept_in
from workbench.runs.opening import open_run as open_run
from workbench.runs.opening import parse_part as parse_part
from workbench.runs.units import Units as Units
from workbench.runs.units import discard_units as discard_units
