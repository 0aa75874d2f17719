"""The CRC-32 of a chunk from those of its rows is that of its bytes."""

import zlib

import numpy as np
import pytest

from workbench.activations.crc import join_rows


@pytest.mark.parametrize("row_bytes", [1, 16, 1152, 10240])
@pytest.mark.parametrize(("n", "rows"), [(1, 1), (5, 5), (9, 4), (16, 8), (23, 9)])
def test_joined_rows_sum_to_what_their_bytes_do(row_bytes, n, rows):
    data = np.random.default_rng(n).integers(0, 256, (3, n, row_bytes), np.uint8)
    crc32 = np.array([[zlib.crc32(row) for row in layer] for layer in data], np.uint32)
    starts = range(0, n, rows)
    expected = [[zlib.crc32(layer[a : a + rows].tobytes()) for a in starts] for layer in data]
    np.testing.assert_array_equal(join_rows(crc32, rows, row_bytes), expected)


def test_a_run_of_rows_may_stand_at_its_last_row():
    data = np.random.default_rng(0).integers(0, 256, (1, 11, 24), np.uint8)
    crc32 = np.zeros((1, 11), np.uint32)
    for start, stop in [(0, 1), (1, 6), (6, 7), (7, 11)]:
        crc32[0, stop - 1] = zlib.crc32(data[0, start:stop].tobytes())
    expected = [[zlib.crc32(data[0, :7].tobytes()), zlib.crc32(data[0, 7:].tobytes())]]
    np.testing.assert_array_equal(join_rows(crc32, 7, 24), expected)


def test_a_changed_row_changes_the_sum():
    crc32 = np.arange(1, 9, dtype=np.uint32)[None]
    other = crc32.copy()
    other[0, 3] ^= 1
    assert join_rows(crc32, 8, 100) != join_rows(other, 8, 100)
