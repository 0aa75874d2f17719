"""CRC-32 of a whole from that of its rows, so that rows may come in any order."""

from __future__ import annotations

import functools

import numpy as np
from jaxtyping import UInt32

POLYNOMIAL = 0xEDB88320
"""Of zlib's CRC-32, lowest bit first."""


def join_rows(
    crc32: UInt32[np.ndarray, "l n"], rows: int, row_bytes: int
) -> UInt32[np.ndarray, "l c"]:
    """Return the CRC-32 of every chunk of so many rows.

    A CRC moves through later bytes linearly: that of a chunk is the exclusive or of its rows' CRCs,
    each moved past the rows after it. So a run of rows may have its CRC at its last row, and zeros
    before.

    Args:
        crc32: of each row.
        rows: of a chunk; the last chunk may have fewer.
        row_bytes: length of a row.
    """
    layers, n = crc32.shape
    number = -(-n // rows)
    places = 1 << (rows - 1).bit_length()
    found = np.zeros((layers, number, places), np.uint32)
    for chunk in range(number):
        held = crc32[:, chunk * rows : (chunk + 1) * rows]
        found[:, chunk, places - held.shape[1] :] = held
    mover = _mover(8 * row_bytes)
    while found.shape[2] > 1:
        found = _apply(mover, found[..., ::2]) ^ found[..., 1::2]
        mover = _apply(mover, mover)
    return found[..., 0]


@functools.cache
def _mover(bits: int) -> UInt32[np.ndarray, " b"]:
    """Return what becomes of each bit of a CRC where so many bits follow."""
    found = np.uint32(1) << np.arange(32, dtype=np.uint32)
    step = np.concatenate([np.array([POLYNOMIAL], np.uint32), found[:-1]])
    while bits:
        if bits & 1:
            found = _apply(step, found)
        step = _apply(step, step)
        bits >>= 1
    return found


def _apply(
    mover: UInt32[np.ndarray, " b"], crc32: UInt32[np.ndarray, "*any"]
) -> UInt32[np.ndarray, "*any"]:
    """Move CRCs past later bytes."""
    moved = np.zeros_like(crc32)
    for bit, image in enumerate(mover):
        moved ^= ((crc32 >> np.uint32(bit)) & np.uint32(1)) * image
    return moved
