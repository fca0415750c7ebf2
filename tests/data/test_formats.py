"""idx and npz, in the true formats and damaged."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from data_writers import idx_bytes, random_images, write_idx_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subbit.core.errors import DataError
from subbit.data import load_dataset
from subbit.data.formats import read_idx, read_npz


@pytest.mark.parametrize("packed", [False, True])
def test_idx_folder(tmp_path: Path, packed: bool) -> None:
    content = write_idx_folder(tmp_path, packed=packed)
    dataset = load_dataset(str(tmp_path))
    assert dataset.train.inputs.dtype == torch.uint8
    assert np.array_equal(dataset.train.inputs.numpy()[:, 0], content["train-images-idx3-ubyte"])
    assert np.array_equal(dataset.test.labels.numpy(), content["t10k-labels-idx1-ubyte"])
    assert dataset.classes == 3
    assert dataset.train.inputs.shape == (20, 1, 5, 4)


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "float32", "float64"])
def test_idx_types_are_big_endian(tmp_path: Path, kind: str) -> None:
    array = np.array([[1, 2, 3], [4, 5, 100]], dtype=kind)
    (tmp_path / "x").write_bytes(idx_bytes(array))
    found = read_idx(tmp_path / "x")
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_idx_bytes_by_hand(tmp_path: Path) -> None:
    """Type 0x0B is 16 bits, rank 1, two values: 00 01 is 1 and 01 02 is 258."""
    (tmp_path / "x").write_bytes(bytes.fromhex("00000b01 00000002 0001 0102"))
    assert read_idx(tmp_path / "x").tolist() == [1, 258]


@pytest.mark.parametrize("packed", [False, True])
def test_every_truncation_of_an_idx_file_is_refused(tmp_path: Path, packed: bool) -> None:
    data = idx_bytes(random_images(3, 2, 2))
    path = tmp_path / ("x.gz" if packed else "x")
    for length in range(len(data)):
        path.write_bytes(gzip.compress(data[:length]) if packed else data[:length])
        with pytest.raises(DataError, match="x"):
            read_idx(path)
    if packed:
        whole = gzip.compress(data)
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            with pytest.raises(DataError):
                read_idx(path)


def test_idx_with_bytes_left_over_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(idx_bytes(random_images(3, 2, 2)) + b"!")
    with pytest.raises(DataError, match=r"promises 12 bytes .* holds more"):
        read_idx(tmp_path / "x")


@pytest.mark.parametrize("packed", [False, True])
def test_idx_header_that_lies_allocates_nothing(tmp_path: Path, packed: bool) -> None:
    """A header that promises 2**93 bytes over a file of 1 KiB: memory follows the file."""
    data = bytes([0, 0, 8, 3]) + struct.pack(">3I", *[0x7FFFFFFF] * 3) + bytes(1024)
    path = tmp_path / ("x.gz" if packed else "x")
    path.write_bytes(gzip.compress(data) if packed else data)
    tracemalloc.start()
    with pytest.raises(DataError, match="holds only 1024"):
        read_idx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_gzip_bomb_stops_at_the_header(tmp_path: Path) -> None:
    """200 MB of zeros behind a header that promises 12 bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as stream:
        stream.write(idx_bytes(random_images(3, 2, 2)))
        for _ in range(200):
            stream.write(bytes(1 << 20))
    (tmp_path / "x.gz").write_bytes(packed.getvalue())
    tracemalloc.start()
    with pytest.raises(DataError, match="holds more"):
        read_idx(tmp_path / "x.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@given(data=st.binary(max_size=64))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_bytes_give_an_array_or_a_data_error(tmp_path: Path, data: bytes) -> None:
    for name in ("x", "x.gz", "x.npz"):
        path = tmp_path / name
        path.write_bytes(data)
        with contextlib.suppress(DataError):
            _ = read_npz(path, "x_train") if name == "x.npz" else read_idx(path)


def test_idx_missing_file_names_what_is_there_and_what_is_needed(tmp_path: Path) -> None:
    write_idx_folder(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"labels of the test split .*found t10k-images.*need t10k-labels-idx1-ubyte"):
        load_dataset(str(tmp_path))


def test_idx_two_candidates_are_refused_and_a_gzip_twin_is_not(tmp_path: Path) -> None:
    content = write_idx_folder(tmp_path)
    write_idx_folder(tmp_path, packed=True)
    assert len(load_dataset(str(tmp_path)).train) == 20
    (tmp_path / "emnist-train-labels-idx1-ubyte").write_bytes(idx_bytes(content["train-labels-idx1-ubyte"]))
    with pytest.raises(DataError, match="found both"):
        load_dataset(str(tmp_path))


def test_idx_images_without_a_label_each(tmp_path: Path) -> None:
    write_idx_folder(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(19, dtype=np.uint8)))
    with pytest.raises(DataError, match=r"inputs \[20, 5, 4\] for 19 labels"):
        load_dataset(str(tmp_path))


def arrays(**changes: object) -> dict[str, np.ndarray]:
    content: dict[str, object] = {
        "x_train": random_images(6, 1, 4, 4),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": random_images(3, 1, 4, 4, seed=1),
        "y_test": np.array([0, 1, 2]),
    }
    return {name: np.asarray(value) for name, value in (content | changes).items() if value is not None}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path: Path, save: object) -> None:
    content = arrays(owners_train=["ann", "bob", "ann", "cy", "bob", "ann"])
    save(tmp_path / "d.npz", **content)  # type: ignore[operator]
    dataset = load_dataset(str(tmp_path / "d.npz"))
    assert np.array_equal(dataset.train.inputs.numpy(), content["x_train"])
    assert dataset.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.train.owners == ("ann", "bob", "ann", "cy", "bob", "ann")
    assert dataset.test.owners is None
    assert dataset.classes == 3


def test_npz_shapes_and_types(tmp_path: Path) -> None:
    """Keras stores channels last and labels as a column; features may be big-endian float64 in Fortran order."""
    images = random_images(6, 4, 5, 3)
    np.savez(tmp_path / "a.npz", **arrays(x_train=images, x_test=images[:3], y_train=np.arange(6)[:, None] % 3))
    dataset = load_dataset(str(tmp_path / "a.npz"))
    assert np.array_equal(dataset.train.inputs.numpy(), images.transpose(0, 3, 1, 2))

    features = np.asfortranarray(np.arange(12, dtype=">f8").reshape(6, 2))
    np.savez(tmp_path / "b.npz", **arrays(x_train=features, x_test=features[:3].astype(np.float16)))
    dataset = load_dataset(str(tmp_path / "b.npz"))
    assert dataset.train.inputs.dtype == torch.float32
    assert dataset.train.inputs.tolist() == features.tolist()

    tokens = np.arange(12, dtype=np.int16).reshape(6, 2)
    np.savez(tmp_path / "c.npz", **arrays(x_train=tokens, x_test=tokens[:3]))
    dataset = load_dataset(str(tmp_path / "c.npz"))
    assert dataset.train.inputs.dtype == torch.int64
    assert dataset.train.inputs.tolist() == tokens.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "x_test is missing; found x_train, y_train, y_test"),
        ({"y_train": [0.0, 1, 2, 0, 1, 2]}, "found float64 labels"),
        ({"y_train": [0, 1, 2, 0, 1, -1]}, "found labels from -1 to 2; need 0 or more"),
        (
            {"y_train": np.array([0, 1, 2, 0, 1, 2**64 - 1], dtype=np.uint64)},
            "found labels from 0 to 18446744073709551615",
        ),
        ({"y_train": [0, 1, 2]}, r"found inputs \[6, 1, 4, 4\] for 3 labels"),
        ({"y_train": np.zeros((6, 2), dtype=int)}, r"labels \[6, 2\]"),
        ({"x_train": np.zeros((6, 4), dtype=np.uint8)}, "uint8 means images"),
        ({"x_train": np.zeros((6, 4, 4), dtype=np.int64)}, "images need the type uint8"),
        ({"x_train": np.zeros((6, 4), dtype=bool)}, "found bool inputs"),
        ({"x_train": np.full((6, 4), np.nan)}, "24 features that are not finite"),
        ({"x_train": np.zeros((6, 0))}, "at least one value per example"),
        ({"x_train": np.zeros((6, 4)), "x_test": np.zeros((3, 5))}, "need the same shape and type in both"),
        ({"x_train": random_images(0, 4, 4), "y_train": np.zeros(0, dtype=int)}, "no examples in the train split"),
        ({"owners_train": ["a", "b"]}, "need 6 strings or integers"),
        ({"x_train": np.array([{}] * 6, dtype=object)}, "need pickle"),
    ],
)
def test_npz_that_does_not_fit(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays(**changes))
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path / "d.npz"))


def test_labels_out_of_range_of_the_declared_classes(tmp_path: Path) -> None:
    """The last example carries the label 2 and a limit leaves it out: it is refused all the same."""
    np.savez(tmp_path / "d.npz", **arrays(y_train=[0, 0, 0, 0, 0, 2], y_test=[0, 0, 1]))
    assert load_dataset(str(tmp_path / "d.npz"), classes=7).classes == 7
    with pytest.raises(DataError, match="found label 2; need labels below 2"):
        load_dataset(str(tmp_path / "d.npz"), classes=2, limit=1)
    with pytest.raises(DataError, match="-1 classes declared"):
        load_dataset(str(tmp_path / "d.npz"), classes=-1)


def test_every_truncation_of_an_npz_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", **arrays())
    whole = (tmp_path / "d.npz").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "d.npz").write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"d\.npz"):
            load_dataset(str(tmp_path / "d.npz"))


def test_damaged_npz_bytes_are_refused_or_read(tmp_path: Path) -> None:
    """One byte changed anywhere: the zip checksum sees it, or it is in a place that nobody reads."""
    np.savez_compressed(tmp_path / "d.npz", **arrays())
    whole = bytearray((tmp_path / "d.npz").read_bytes())
    expected = load_dataset(str(tmp_path / "d.npz"))
    refused = 0
    for place in range(0, len(whole), 5):
        damaged = bytearray(whole)
        damaged[place] ^= 0x15
        (tmp_path / "d.npz").write_bytes(damaged)
        try:
            found = load_dataset(str(tmp_path / "d.npz"))
        except DataError:
            refused += 1
        else:
            assert torch.equal(found.train.inputs, expected.train.inputs)
            assert torch.equal(found.test.labels, expected.test.labels)
    assert refused > 50


def test_npy_header_that_lies_allocates_nothing(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 8, 8)})
    np.savez(tmp_path / "d.npz", **arrays(x_train=None))
    with zipfile.ZipFile(tmp_path / "d.npz", "a") as archive:
        archive.writestr("x_train.npy", header.getvalue() + bytes(100))
    with pytest.raises(DataError, match=r"promises 70368744177664 bytes .* holds 100"):
        load_dataset(str(tmp_path / "d.npz"))
