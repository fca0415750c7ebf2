"""Sets of images and videos: which file is which example, and how pixels lie."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from paper_writers import (
    write_cars,
    write_cifar100,
    write_class_folders,
    write_emnist,
    write_emnist_idx,
    write_food101,
    write_frames,
    write_hmdb51,
    write_pcam,
    write_svhn,
    write_text,
    write_tiny_imagenet,
    write_ucf101,
)
from PIL import Image
from scipy.io import savemat

from subbit.core.errors import DataError
from subbit.data import load_dataset
from subbit.data.frames import _chosen_frames
from subbit.data.images import decode_image


def pixels(path: Path, size: int | None = None) -> np.ndarray:
    return decode_image(path, str(path), size).transpose(2, 0, 1)


def test_cifar100_has_the_fine_label_and_channels_first(tmp_path: Path) -> None:
    """A record is the coarse label (7), the fine one (0, 11, 22, ...), 1024 red, 1024 green and 1024 blue bytes."""
    records = write_cifar100(tmp_path)["train"]
    train = load_dataset(str(tmp_path / "cifar-100-binary")).train
    assert train.labels.tolist() == [0, 11, 22, 33, 44, 55]
    assert train.inputs[2, 1, 0, 5] == records[2, 2 + 1024 + 5]


def test_svhn_counts_ten_as_zero_and_its_last_axis_is_the_image(tmp_path: Path) -> None:
    images = write_svhn(tmp_path / "svhn")["train"]
    train = load_dataset(str(tmp_path / "svhn")).train
    assert train.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert train.inputs[7, 2, 30, 4] == images[30, 4, 2, 7]


def test_svhn_errors(tmp_path: Path) -> None:
    write_svhn(tmp_path / "svhn")
    path = tmp_path / "svhn" / "train_32x32.mat"
    whole = path.read_bytes()
    images = np.zeros((32, 32, 3, 2), dtype=np.uint8)
    for content, message in (
        ({"X": images, "y": np.array([[0], [1]])}, "found labels from 0 to 1; need 1 to 10"),
        ({"X": images, "y": np.array([[1], [2], [3]])}, r"found uint8 \[32, 32, 3, 2\]; need .* 3\]"),
        ({"X": images.astype(np.float32), "y": np.array([[1], [2]])}, "found float32"),
        ({"X": images}, "found X; need y"),
        ({"X": images, "y": "text"}, "need integers"),
    ):
        savemat(path, content)
        with pytest.raises(DataError, match=message):
            load_dataset(str(tmp_path / "svhn"))
    path.write_bytes(b"MATLAB 7.3 MAT-file" + bytes(105) + b"\0\2IM" + whole)
    with pytest.raises(DataError, match="need a MATLAB file of version 5"):
        load_dataset(str(tmp_path / "svhn"))


def test_a_matlab_header_that_promises_more_than_the_file_can_hold(tmp_path: Path) -> None:
    """Stored without compression, the size of the last axis is a number in the file: 2 becomes 2**30."""
    folder = tmp_path / "svhn"
    write_svhn(folder)
    path = folder / "train_32x32.mat"
    savemat(path, {"y": np.array([[1], [2]]), "X": np.zeros((32, 32, 3, 2), dtype=np.uint8)})
    sizes = np.array([32, 32, 3, 2], dtype="<i4").tobytes()
    data = path.read_bytes()
    assert sizes in data
    path.write_bytes(data.replace(sizes, np.array([32, 32, 3, 1 << 30], dtype="<i4").tobytes()))
    with pytest.raises(DataError, match="X claims"):
        load_dataset(str(folder))


def test_emnist_is_turned_upright_and_knows_its_writers(tmp_path: Path) -> None:
    """Row 3, column 5 of an image is value 5 * 28 + 3 of its row: columns are stored one after the other."""
    content = write_emnist(tmp_path)["train"]
    train = load_dataset(str(tmp_path)).train
    assert train.inputs.shape == (9, 1, 28, 28)
    assert train.inputs[4, 0, 3, 5] == content["images"][4, 5 * 28 + 3]
    assert train.owners is not None
    assert train.owners[:4] == ("writer 100", "writer 101", "writer 102", "writer 100")


def test_emnist_idx_and_the_letters_that_count_from_one(tmp_path: Path) -> None:
    images = write_emnist_idx(tmp_path, "letters")["train"]
    write_emnist_idx(tmp_path, "digits")
    letters = load_dataset(f"{tmp_path}?variant=letters")
    assert letters.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert letters.classes == 26
    assert letters.train.inputs[1, 0, 3, 5] == images[1, 5, 3]
    assert letters.train.owners is None
    assert load_dataset(f"{tmp_path}?variant=digits").train.labels.tolist() == [1, 2, 3, 1, 2, 3]
    with pytest.raises(DataError, match=r"found emnist-digits.*; need emnist-byclass.mat or the idx files of byclass"):
        load_dataset(str(tmp_path))


def test_class_folders_give_every_fifth_to_the_test(tmp_path: Path) -> None:
    """Of River_1 ... River_5, sorted by name, the fifth."""
    write_class_folders(tmp_path, ("River", "Forest"), 5)
    dataset = load_dataset(str(tmp_path))
    assert dataset.train.labels.tolist() == [0] * 4 + [1] * 4
    assert dataset.test.labels.tolist() == [0, 1]
    assert np.array_equal(dataset.test.inputs[1], pixels(tmp_path / "River" / "River_5.jpg"))


def test_class_folders_with_published_lists(tmp_path: Path) -> None:
    """Names without folder, and with the suffix of another form of the set."""
    write_class_folders(tmp_path, ("River", "Forest"), 5)
    write_text(tmp_path / "eurosat-train.txt", "Forest_2.tif\nRiver_1.tif\n")
    write_text(tmp_path / "eurosat-test.txt", "River/River_3.jpg\n")
    dataset = load_dataset(str(tmp_path))
    assert dataset.train.labels.tolist() == [0, 1]
    assert np.array_equal(dataset.test.inputs[0], pixels(tmp_path / "River" / "River_3.jpg"))
    write_text(tmp_path / "eurosat-test.txt", "River_9.jpg\n")
    with pytest.raises(DataError, match="found 'River_9', and no image of that name"):
        load_dataset(str(tmp_path))


def test_food101_stretches_to_one_size(tmp_path: Path) -> None:
    """apple_pie is class 0 although waffles come first in the list."""
    write_food101(tmp_path)
    dataset = load_dataset(f"{tmp_path / 'food-101'}?size=10")
    assert dataset.train.labels.tolist() == [1, 1, 0, 0]
    assert np.array_equal(dataset.train.inputs[0], pixels(tmp_path / "food-101/images/waffles/1000.jpg", 10))
    lists = tmp_path / "food-101" / "meta" / "test.txt"
    for line, message in (
        ("../../secret", "class '..', which train"),
        ("waffles/../../x", "stays inside"),
        ("pie/1", "'pie'"),
    ):
        write_text(lists, line)
        with pytest.raises(DataError, match=message):
            load_dataset(f"{tmp_path / 'food-101'}?size=10")


def test_cars_count_from_one_and_grey_ones_become_coloured(tmp_path: Path) -> None:
    write_cars(tmp_path)
    train = load_dataset(f"{tmp_path}?size=6").train
    assert train.labels.tolist() == [0, 65, 130, 195]
    assert train.inputs.shape == (4, 3, 6, 6)
    assert torch.equal(train.inputs[0, 0], train.inputs[0, 2])
    savemat(tmp_path / "devkit" / "cars_train_annos.mat", {"annotations": np.zeros((1, 1), dtype=[("fname", object)])})
    with pytest.raises(DataError, match="found fname; need structs with class, fname"):
        load_dataset(f"{tmp_path}?size=6")


def test_tiny_imagenet_is_judged_on_its_validation_split(tmp_path: Path) -> None:
    """n01443537 sorts before n02124075."""
    write_tiny_imagenet(tmp_path)
    root = tmp_path / "tiny-imagenet-200"
    dataset = load_dataset(str(root))
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.test.labels.tolist() == [1, 0, 1]
    assert np.array_equal(dataset.test.inputs[1], pixels(root / "val" / "images" / "val_1.JPEG"))


def test_pcam(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    write_pcam(tmp_path / "pcam")
    dataset = load_dataset(str(tmp_path / "pcam"))
    assert dataset.train.inputs.shape == (6, 3, 96, 96)
    assert dataset.train.labels.tolist() == [0, 1, 0, 1, 0, 1]
    (tmp_path / "pcam" / "camelyonpatch_level_2_split_test_x.h5").rename(
        tmp_path / "pcam" / "camelyonpatch_level_2_split_test_x.h5.gz"
    )
    with pytest.raises(DataError, match="unpack it with gunzip"):
        load_dataset(str(tmp_path / "pcam"))


def test_pcam_without_the_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    for split in ("train", "test"):
        for part in "xy":
            (tmp_path / f"camelyonpatch_level_2_split_{split}_{part}.h5").write_bytes(b"\x89HDF")
    with pytest.raises(DataError, match=r"pip install 'subbit\[hdf5\]'"):
        load_dataset(str(tmp_path))


def test_frames_are_those_in_the_middles_of_equal_pieces(tmp_path: Path) -> None:
    """Ten frames in two pieces 0-4 and 5-9: the middles are 2 and 7. Three frames as six: each of them twice.

    Unpadded names: 10 comes after 9.
    """
    for number in range(1, 11):
        path = tmp_path / "clip" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(path)
    Image.new("RGB", (4, 4)).save(tmp_path / "clip" / "flow_x_1.jpg")
    assert [path.stem for path in _chosen_frames(tmp_path, "A/clip.avi", 2, "")] == ["3", "8"]
    assert [path.stem for path in _chosen_frames(tmp_path, "A/clip.avi", 10, "")] == [str(n) for n in range(1, 11)]
    for number in range(4, 11):
        (tmp_path / "clip" / f"{number}.jpg").unlink()
    assert [path.stem for path in _chosen_frames(tmp_path, "clip", 6, "")] == ["1", "1", "2", "2", "3", "3"]


def test_ucf101_split_and_frames(tmp_path: Path) -> None:
    write_ucf101(tmp_path)
    dataset = load_dataset(f"{tmp_path}?frames=5&size=12")
    assert dataset.train.inputs.shape == (2, 5, 3, 12, 12)
    assert dataset.train.labels.tolist() == [0, 1]
    expected = pixels(tmp_path / "YoYo" / "v_YoYo_g01_c01" / "frame000002.jpg", 12)
    assert np.array_equal(dataset.test.inputs[1, 1], expected)
    with pytest.raises(DataError, match="trainlist02"):
        load_dataset(f"{tmp_path}?split=2")
    write_text(tmp_path / "ucfTrainTestlist" / "testlist01.txt", "Archery/v_missing.avi\n")
    with pytest.raises(DataError, match=r"found no frames of Archery/v_missing.avi; need images in one of"):
        load_dataset(f"{tmp_path}?frames=2&size=8")


def test_hmdb51_leaves_out_what_the_split_does(tmp_path: Path) -> None:
    """run is class 0; clips marked 0 are in neither part."""
    write_hmdb51(tmp_path)
    write_frames(tmp_path / "frames", "wave_two", 7, grey=True)
    dataset = load_dataset(f"{tmp_path}?frames=3&size=8")
    assert dataset.train.labels.tolist() == dataset.test.labels.tolist() == [0, 1]
    assert torch.equal(dataset.test.inputs[1, :, 0], dataset.test.inputs[1, :, 1])
    assert np.array_equal(dataset.train.inputs[0, 1], pixels(tmp_path / "frames/run_one/frame000003.jpg", 8))
