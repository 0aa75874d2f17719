"""PyTorch files from elsewhere, read without running what they hold."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.errors import FormatError

_BROKEN = (
    *(RuntimeError, EOFError, IndexError, KeyError, ValueError, TypeError, AttributeError),
    *(AssertionError, OverflowError, MemoryError, struct.error, zipfile.BadZipFile),
)
"""What PyTorch and zipfile raise where the bytes make no sense."""
_PLAIN = ("torch.", "collections.OrderedDict")
"""What a file of tensors names; PyTorch makes it without running anything."""


def load_pickled(path: Path) -> Any:
    """Read tensors, numbers, texts, lists and dicts; a pickle that names anything else is refused.

    Raises:
        FormatError: it would run code, or is damaged.
    """
    import torch

    _check_zip(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that another pickle protocol may fail
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        named = next((name for name in named_objects(path) if not name.startswith(_PLAIN)), None)
        if named is None:
            raise _damaged(path, "it is no PyTorch file of tensors") from None
        raise FormatError(
            f"{path} holds the Python object {named}, which only running its pickle could make; "
            "nothing was run. Where you trust it, load it elsewhere and save its tensors alone "
            "(torch.save of a tensor, or safetensors)"
        ) from None
    except _BROKEN as error:
        raise _damaged(path, type(error).__name__) from None


def _check_zip(path: Path) -> None:
    """Check the checksums of a newer file, which PyTorch passes over."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as file:
            wrong = file.testzip()
    except _BROKEN as error:
        raise _damaged(path, type(error).__name__) from None
    if wrong is not None:
        raise _damaged(path, f"wrong checksum of {wrong}")


def _damaged(path: Path, what: str) -> FormatError:
    return FormatError(f"{path} is truncated or damaged ({what}); copy it again")


def named_objects(path: Path) -> Iterator[str]:
    """Yield the Python objects that a pickle names: its instructions are read, not run."""
    for stream in _pickles(path):
        texts = ["", ""]
        try:
            for op, value, _ in pickletools.genops(stream):
                if op.name == "GLOBAL":
                    yield str(value).replace(" ", ".")
                elif op.name == "STACK_GLOBAL":
                    yield ".".join(texts)
                elif "UNICODE" in op.name:
                    texts = [texts[1], str(value)]
        except _BROKEN:  # cut, or what follows the pickles of an older file
            return


def _pickles(path: Path) -> Iterator[io.BytesIO]:
    """Yield the pickles of a file: one in a zip, or one after another."""
    data = path.read_bytes()
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            names = [name for name in file.namelist() if name.endswith("data.pkl")]
            yield from (io.BytesIO(file.read(name)) for name in names)
        return
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        yield stream
