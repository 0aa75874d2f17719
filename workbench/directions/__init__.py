"""Directions of a model: fitting, algebra, files and truth. Arrays only, no model needed."""

from workbench.directions.container import Directions, stack
from workbench.directions.io import open_directions, save_directions

__all__ = ["Directions", "open_directions", "save_directions", "stack"]
