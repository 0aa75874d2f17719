"""Where a run's figures go beside its log: TensorBoard's files, where the settings ask for it."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench_training import processes
from workbench_training.settings import TrainConfig

from workbench.errors import ConfigError

FOLDER = "tensorboard"

Board = Callable[[str, float, int], None]
"""Takes a name, a value, and the update that it belongs to."""


def no_board(name: str, value: float, step: int) -> None:
    """Drop a figure."""


def check_board(config: TrainConfig) -> None:
    """Refuse a log that cannot be written, before anything is trained.

    Raises:
        ConfigError: the package that writes it is not installed.
    """
    if config.log == "tensorboard" and importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            'log = "tensorboard" needs the package tensorboard, which is not installed; '
            "pip install tensorboard, or leave log out: train_log.jsonl has the same figures"
        )


@contextlib.contextmanager
def open_board(config: TrainConfig, folder: Path, step: int) -> Iterator[Board]:
    """Give what figures are handed to; it drops them where nothing was asked for.

    Args:
        config: ``log`` counts.
        folder: the organism's.
        step: the update that training goes on from; later figures of an earlier try are dropped.
    """
    if config.log != "tensorboard" or not processes.is_first():
        yield no_board
        return
    from torch.utils.tensorboard import SummaryWriter

    purge = step + 1 if step else None
    with SummaryWriter(str(folder / FOLDER), purge_step=purge) as writer:
        yield lambda name, value, at: writer.add_scalar(name, value, at)
