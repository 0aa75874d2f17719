"""Where edits act: on what a block puts out."""

from __future__ import annotations

from workbench.errors import MismatchError
from workbench.types import DirectionsLike

SITE = "resid_post"


def refuse_other_site(directions: DirectionsLike) -> None:
    """Refuse directions of states that no edit touches, such as an attention layer's output.

    Raises:
        MismatchError: they were fitted elsewhere.
    """
    if directions.site != SITE:
        names = ", ".join(map(repr, directions.names))
        raise MismatchError(
            f"{names} was fitted at site {directions.site}, but edits act on {SITE}, what a block "
            "puts out; fit it there"
        )
