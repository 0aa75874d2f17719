"""A button that saves a table on show as CSV, in full precision."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pandas as pd
import panel_material_ui as pmui


def csv_button(table: Callable[[], pd.DataFrame], filename: str) -> Any:
    """Return the button; ``table`` is asked when it is pressed: what is shown then is saved.

    The variant is set afterwards: given at once it is passed on twice, under a deprecated name too
    (panel-material-ui 0.16.6).
    """

    def write() -> io.StringIO:
        return io.StringIO(table().to_csv(index=False))

    button = pmui.FileDownload(
        callback=write,
        filename=filename,
        label="Download CSV",
        size="small",
        margin=(4, 8, 8, 0),
    )
    button.variant = "outlined"
    return button
