"""Activations: capture them, keep them on disk, read them one layer at a time."""

from workbench.activations.acts import Activations, open_activations
from workbench.activations.capture import capture
from workbench.activations.embedding import Embedding, save_embedding
from workbench.activations.packed import pack
from workbench.activations.store import verify

__all__ = [
    "Activations",
    "Embedding",
    "capture",
    "open_activations",
    "pack",
    "save_embedding",
    "verify",
]
