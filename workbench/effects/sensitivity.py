"""The larger change at two opposite doses, intervention by readout."""

from __future__ import annotations

import pandas as pd

from workbench.effects.curves import INTERVENTION
from workbench.errors import ConfigError


def sensitivity(found: pd.DataFrame, endpoint: float | int) -> pd.DataFrame:
    """Return the larger absolute change at the doses -endpoint and +endpoint.

    One row for each intervention, one column for each readout, measure and condition, in the form
    of Table 15 of the social-priors paper. Guarded or not: these are descriptive sensitivities,
    not mediation estimates, and equal nominal doses need not be equal realised shifts. NaN where a
    curve has a number at one of the two doses alone.

    Args:
        found: what `workbench.effects.changes` returned.
        endpoint: a dose above 0 that was swept with both signs.

    Raises:
        ConfigError: no such doses.
    """
    own = found[(found["control"] == "none") & (found["dose"].abs() == endpoint)]
    if own["dose"].nunique() != 2:
        known = ", ".join(f"{dose:g}" for dose in sorted(found["dose"].dropna().unique()))
        raise ConfigError(
            f"doses -{endpoint:g} and {endpoint:g} were not both swept; doses: {known}"
        )
    columns = ["readout", "measure", "condition"]
    sizes = own.assign(size=own["change"].abs()).groupby([*INTERVENTION, *columns], sort=False)
    found = sizes["size"].agg(["max", "count"])
    return found["max"].where(found["count"] == 2).unstack(columns)
