"""Image folders and the two layouts of CIFAR-10."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from data_writers import random_images, write_cifar_binary, write_cifar_png, write_image_folder
from PIL import Image

from subbit.core.errors import DataError
from subbit.data import load_dataset
from subbit.data.images import decode_image


def test_image_folder(tmp_path: Path) -> None:
    """The classes are the sorted names: ant is 0, cat is 1."""
    content = write_image_folder(tmp_path, ("cat", "ant"))
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == 2
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.test.inputs.shape == (4, 3, 6, 6)
    assert np.array_equal(dataset.train.inputs[3].numpy(), content["train/cat/0"].transpose(2, 0, 1))


def test_image_folder_reads_only_what_the_limit_leaves(tmp_path: Path) -> None:
    """Every image that the limit leaves out is broken afterwards: nobody opens it."""
    write_image_folder(tmp_path)
    dataset = load_dataset(str(tmp_path), limit=2, test_limit=2)
    chosen = {array.tobytes() for array in dataset.train.inputs.numpy()}
    for path in (tmp_path / "train").rglob("*.png"):
        if np.asarray(Image.open(path)).transpose(2, 0, 1).tobytes() not in chosen:
            path.write_bytes(b"broken")
    again = load_dataset(str(tmp_path), limit=2, test_limit=2)
    assert torch.equal(again.train.inputs, dataset.train.inputs)
    assert again.train.labels.tolist() == [0, 1]
    with pytest.raises(DataError, match="cannot be read as an image"):
        load_dataset(str(tmp_path))


def test_grey_images_stay_grey_and_mixed_ones_become_coloured(tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    for path in tmp_path.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert load_dataset(str(tmp_path)).train.inputs.shape == (6, 1, 6, 6)
    for split in ("train", "test"):
        Image.fromarray(random_images(1, 6, 6, 3)[0]).save(tmp_path / split / "ant" / "0.png")
    inputs = load_dataset(str(tmp_path)).train.inputs
    assert inputs.shape == (6, 3, 6, 6)
    assert torch.equal(inputs[1, 0], inputs[1, 2])


def test_image_folder_errors(tmp_path: Path) -> None:
    write_image_folder(tmp_path)
    odd = tmp_path / "train" / "cat" / "1.png"
    Image.fromarray(random_images(1, 6, 7, 3)[0]).save(odd)
    with pytest.raises(DataError, match=r"1\.png: found height and width \(6, 7\) after \(6, 6\)"):
        load_dataset(str(tmp_path))
    Image.fromarray(np.zeros((6, 6), dtype=np.uint16)).save(odd)
    with pytest.raises(DataError, match="need 8 bits per channel"):
        load_dataset(str(tmp_path))
    odd.unlink()
    (tmp_path / "test" / "dog").mkdir()
    with pytest.raises(DataError, match="found class 'dog', which train does not have; need ant, cat"):
        load_dataset(str(tmp_path))
    (tmp_path / "train" / "dog").mkdir()
    with pytest.raises(DataError, match="dog: found no image"):
        load_dataset(str(tmp_path))
    (tmp_path / "test").rename(tmp_path / "held-out")
    with pytest.raises(DataError, match="found train without test"):
        load_dataset(str(tmp_path))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_image_that_claims_too_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    """A black 1-bit PNG of 10,000 x 10,000 pixels is 12 KB; decoded to RGB it would be 300 MB."""
    path = tmp_path / "large.png"
    Image.new("1", (10_000, 10_000)).save(path)
    with pytest.raises(DataError, match="10000 x 10000; need at most"):
        decode_image(path, str(path))


def test_cifar_png_layout(tmp_path: Path) -> None:
    images, labels = write_cifar_png(tmp_path, rows=3)
    dataset = load_dataset(str(tmp_path))
    assert np.array_equal(dataset.train.inputs.numpy(), images.transpose(0, 3, 1, 2))
    assert dataset.train.labels.tolist() == labels
    assert dataset.test.labels.tolist() == [3, 8]
    few = load_dataset(str(tmp_path), limit=4, seed=3).train
    assert len(few) == 4
    for image, label in zip(few.inputs.numpy(), few.labels.tolist(), strict=True):
        position = next(
            number for number, other in enumerate(images.transpose(0, 3, 1, 2)) if np.array_equal(other, image)
        )
        assert labels[position] == label


def test_cifar_png_errors(tmp_path: Path) -> None:
    write_cifar_png(tmp_path)
    labels = tmp_path / "train_lables.json"
    for content, message in (
        (json.dumps([0] * 14), "found 15 images .* and 14 labels"),
        ("[0, 1.5]", "JSON list of integers"),
        ("[true]", "JSON list of integers"),
        ("[" * 100_000, "cannot be read"),
        ("[0,", "cannot be read"),
        (json.dumps([10] * 15), "JSON list of integers|found label 10"),
    ):
        labels.write_text(content)
        with pytest.raises(DataError, match=message):
            load_dataset(str(tmp_path), classes=10)
    labels.write_text(json.dumps([0] * 15))
    Image.fromarray(random_images(3, 1000, 3)).save(tmp_path / "data_batch_2.png")
    with pytest.raises(DataError, match="need rows of 1024 RGB pixels"):
        load_dataset(str(tmp_path))
    (tmp_path / "data_batch_2.png").unlink()
    with pytest.raises(DataError, match=r"data_batch_2\.png: cannot be read"):
        load_dataset(str(tmp_path))


def test_cifar_binary_layout(tmp_path: Path) -> None:
    records = write_cifar_binary(tmp_path)
    dataset = load_dataset(str(tmp_path))
    assert np.array_equal(dataset.train.inputs.numpy().reshape(15, 3072), records[:, 1:])
    assert dataset.train.labels.tolist() == records[:, 0].tolist()
    (tmp_path / "data_batch_4.bin").write_bytes(records[:2].tobytes()[:-1])
    with pytest.raises(DataError, match="found 6145 bytes; need a multiple of 3073"):
        load_dataset(str(tmp_path))
