"""Arrays in files that know their own checksum: what goes in comes out, and a changed bit is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from subbit.core.array_files import DamagedFileError, read_arrays, read_digest, write_arrays

ARRAYS = {
    "counts": np.arange(6, dtype=np.uint16).reshape(2, 3),
    "empty": np.zeros(0, dtype=np.float32),
    "flags": np.array([True, False]),
    "scalar": np.array(2.5),
}


def test_what_goes_in_comes_out_and_others_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    digest = write_arrays(path, ARRAYS, {"phase": "main"})
    arrays, metadata = read_arrays(path)
    assert metadata == {"phase": "main", "sha256": digest}
    assert read_digest(path) == digest
    for found in (arrays, load_file(path)):
        assert found.keys() == ARRAYS.keys()
        for name, value in ARRAYS.items():
            assert found[name].dtype == value.dtype
            assert np.array_equal(found[name], value)
    assert [other.name for other in tmp_path.iterdir()] == ["file.safetensors"]


def test_every_changed_bit_is_found(tmp_path: Path) -> None:
    """All bits of a small file, one after the other: refused, or (padding of the header) the same contents."""
    path = tmp_path / "file.safetensors"
    write_arrays(path, {"values": np.array([1.0, -2.0], dtype=np.float32)}, {"round": "3"})
    whole = path.read_bytes()
    refused = 0
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            arrays, metadata = read_arrays(path)
        except DamagedFileError:
            refused += 1
        else:
            assert arrays["values"].tolist() == [1.0, -2.0]
            assert metadata["round"] == "3"
    assert refused > 0.9 * 8 * len(whole)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\xff" * 100])
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match="cannot be read"):
        read_arrays(path)
    assert read_digest(path) is None
    with pytest.raises(DamagedFileError, match="cannot be read"):
        read_arrays(tmp_path / "missing")


def test_names_types_and_shapes_are_part_of_the_checksum(tmp_path: Path) -> None:
    values = np.arange(4, dtype=np.int32)
    variants = [{"a": values}, {"b": values}, {"a": values.reshape(2, 2)}, {"a": values.view(np.uint32)}]
    assert len({write_arrays(tmp_path / str(at), arrays, {}) for at, arrays in enumerate(variants)}) == 4
