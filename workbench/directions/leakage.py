"""How much of a direction is polarity: its cosine with what tells negated statements apart."""

from __future__ import annotations

import numpy as np

from workbench.directions.container import Directions
from workbench.directions.evidence import Items
from workbench.directions.fit import read_layer
from workbench.directions.ttpd import Ttpd
from workbench.linalg import cosine
from workbench.types import ActivationsLike


def polarity_leakage(
    acts: ActivationsLike, directions: Directions, items: Items
) -> dict[int, float]:
    """Return the cosine of the direction with TTPD's polarity direction (affirmed minus negated).

    By layer; empty where all items are of one polarity.
    """
    if len(np.unique(items.sides)) < 2:
        return {}
    found = {}
    for layer in directions.layers:
        fitted = Ttpd().fit(read_layer(acts, layer), items.columns.y, polarity=items.sides)
        across = fitted.info_["polarity_direction"]
        found[layer] = float(cosine(directions.at(layer), across[None])[0, 0])
    return found
