"""What `show` and `verify` say of files."""

from pathlib import Path

import pytest

from workbench.errors import FormatError
from workbench.pipelines.catalogue import describe, verify_path

FIXTURE = Path(__file__).parent.parent / "fixtures" / "map_v1.safetensors"


def test_a_map_file_is_shown_and_verified_as_what_it_is(tmp_path):
    said = describe([str(FIXTURE)])
    assert (said["names"], said["kind"], said["model"]) == ("trust", "rank 2", "tiny")
    assert verify_path(FIXTURE) == {"format": "linear map", "name": "trust", "layers": 2}
    data = bytearray(FIXTURE.read_bytes())
    data[-3] ^= 1
    (tmp_path / "flipped.safetensors").write_bytes(data)
    with pytest.raises(FormatError, match="'sha256' does not agree"):
        verify_path(tmp_path / "flipped.safetensors")
