"""The writer over a model that is loaded here."""

from __future__ import annotations

from workbench_training.corpora.registry import WRITERS
from workbench_training.corpora.writers import ModelWriter

from workbench.types import Subject


@WRITERS.register("local")
def local_writer(
    *,
    model: str,
    dtype: str = "auto",
    device: str = "auto",
    batch: int = 16,
    replies: str | None = None,
    rounds: int = 1,
    temperature: float | int = 0.8,
) -> ModelWriter:
    """Return a writer over a loaded model; it needs one that follows instructions well.

    Args:
        model: a hub id, a folder, or an organism's.
        dtype: as of ``wb.load``.
        device: as of ``wb.load``.
        batch: quartets that are written step by step together.
        replies: a file that keeps every reply, so that a stopped run generates nothing twice.
        rounds: reviews by the model.
        temperature: of everything but reviews.

    Raises:
        UnknownNameError: no such model.
        ConfigError: settings that make no sense.
    """
    from workbench.chat.local import LocalChat

    subject = open_writer(model, dtype, device)
    chat = LocalChat(subject, batch=batch, replies=replies)
    return ModelWriter(chat, rounds=rounds, temperature=temperature)


def open_writer(model: str, dtype: str = "auto", device: str = "auto") -> Subject:
    """Open a model that writes documents; it is not under study, so nothing is checked on it.

    Raises:
        UnknownNameError: no such model.
    """
    from workbench.models import read_checkpoint
    from workbench.registry import ENGINES

    subject = read_checkpoint(model, dtype=dtype, device=device)
    subject.runner = ENGINES.create("hooks")
    return subject
