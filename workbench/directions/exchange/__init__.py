"""Directions from and for other programs: what a file means is stated, never guessed."""

from workbench.directions.exchange.assistant_axis import released_caps
from workbench.directions.exchange.table import (
    FORMATS,
    Format,
    describe_foreign,
    export_directions,
    import_directions,
    recognise,
)

__all__ = [
    "FORMATS",
    "Format",
    "describe_foreign",
    "export_directions",
    "import_directions",
    "recognise",
    "released_caps",
]
