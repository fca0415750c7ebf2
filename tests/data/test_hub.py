"""Hugging Face `datasets` from local folders: nothing here needs a network."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from data_writers import random_images, write_image_folder
from PIL import Image

from subbit.core.errors import DataError
from subbit.data import load_dataset
from subbit.data.hub import Address, open_hub, parse_address, quiet_datasets
from subbit.data.needs import Reading
from subbit.objectives import find_objective


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write_parquet(folder: Path, test: str = "test", size: int = 4, **columns: Any) -> np.ndarray:
    """Six training and two test images under the names of CIFAR-100."""
    folder.mkdir()
    images = random_images(6, size, size, 3)
    label = datasets.ClassLabel(names=["a", "b", "c"])
    for split, count in (("train", 6), (test, 2)):
        content = {
            "img": [Image.fromarray(image) for image in images[:count]],
            "fine_label": [number % 3 for number in range(count)],
            "coarse_label": [0] * count,
            "writer": [f"w{number % 2}" for number in range(count)],
        } | {name: values[:count] for name, values in columns.items()}
        features = datasets.Features(
            {
                "img": datasets.Image(),
                "fine_label": label if "fine_label" not in columns else datasets.Value("int64"),
                "coarse_label": datasets.Value("int64"),
                "writer": datasets.Value("string"),
            }
        )
        datasets.Dataset.from_dict(content, features=features).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return images


def test_parquet_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    images = write_parquet(tmp_path / "set")
    capfd.readouterr()
    dataset = load_dataset(f"hf:{tmp_path / 'set'}")
    assert capfd.readouterr() == ("", "")
    assert np.array_equal(dataset.train.inputs.numpy(), images.transpose(0, 3, 1, 2))
    assert dataset.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.classes == 3
    assert len(dataset.test) == 2


def test_named_columns_owners_and_size(tmp_path: Path) -> None:
    write_parquet(tmp_path / "set", test="validation")
    dataset = load_dataset(f"hf:{tmp_path / 'set'}?image=img&label=coarse_label&owner=writer&size=8", limit=4)
    assert dataset.train.inputs.shape == (4, 3, 8, 8)
    assert dataset.classes == 1
    assert set(dataset.train.owners or ()) <= {"w0", "w1"}


def test_image_folder_through_datasets_agrees_with_our_own_reader(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "set")
    ours, theirs = load_dataset(str(tmp_path / "set")), load_dataset(f"hf:{tmp_path / 'set'}")
    assert ours.train.labels.tolist() == theirs.train.labels.tolist()
    assert (ours.train.inputs == theirs.train.inputs).all()
    assert ours.classes == theirs.classes == 2


def test_errors(tmp_path: Path) -> None:
    write_parquet(tmp_path / "set", fine_label=[0, 1, 2, 0, -1, 0])
    name = f"hf:{tmp_path / 'set'}"
    for text, message in (
        (f"{name}?label=labels_of_mine", "found the columns img, fine_label.*need labels_of_mine"),
        (f"{name}?image=writer", "need a column of images"),
        (f"{name}?label=img", "need integers"),
        (f"{name}", "found labels from -1 to 2"),
        (f"{name}?test=held-out", "there is no split 'held-out'; found t"),
        (f"{name}?colour=red", "the options are"),
        (f"{name}?size=0", "found size=0"),
        (f"{name}?size=99999999999999999999", "need an integer from 1 to 4096"),
        ("hf:", "the name is missing"),
        ("hf:nobody/no-such-set", "need a name on the Hugging Face hub"),
        (f"hf:{tmp_path / 'nowhere'}", "load_dataset failed"),
    ):
        with pytest.raises(DataError, match=message):
            load_dataset(text)


def test_broken_image_inside_a_table(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    for split, cell in (("train", {"bytes": b"no image", "path": None}), ("test", None)):
        rows = datasets.Dataset.from_dict({"image": [cell], "label": [0]}, features=features)
        rows.to_parquet(tmp_path / "set" / f"{split}.parquet")
    with pytest.raises(DataError, match="train, row 0: cannot be read as an image"):
        load_dataset(f"hf:{tmp_path / 'set'}")


def test_addresses(tmp_path: Path) -> None:
    assert parse_address("hf:zalando/fashion") == Address("zalando/fashion", None, {})
    assert parse_address("hf:glue:sst2?label=y") == Address("glue", "sst2", {"label": "y"})
    with pytest.raises(DataError, match="a local folder has no revisions"):
        parse_address(f"hf:{tmp_path}?revision=v1")
    (tmp_path / "a:b").mkdir()
    assert parse_address(f"hf:{tmp_path / 'a:b'}") == Address(str(tmp_path / "a:b"), None, {})


def test_quiet_puts_the_settings_back() -> None:
    before = datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()
    with contextlib.suppress(KeyError), quiet_datasets():
        assert datasets.are_progress_bars_disabled()
        raise KeyError
    assert (datasets.logging.get_verbosity(), datasets.are_progress_bars_disabled()) == before


def test_texts(tmp_path: Path) -> None:
    """Columns text and label, as in ag_news; "a" is byte 97, and what a checksum makes of a word is its own."""
    (tmp_path / "set").mkdir()
    for split, texts in (("train", ["a b", None, "b"]), ("test", ["a"])):
        table = {"text": texts, "label": list(range(len(texts)))}
        datasets.Dataset.from_dict(table).to_parquet(tmp_path / "set" / f"{split}.parquet")
    name = f"hf:{tmp_path / 'set'}"
    words = load_dataset(f"{name}?length=3").train.inputs
    assert words.shape == (3, 3)
    assert words[0, 1] == words[2, 0] > 0
    assert words[1].tolist() == [0, 0, 0]
    assert load_dataset(f"{name}?tokenizer=bytes&length=2&text=text").train.inputs.tolist() == [
        [97, 32],
        [0, 0],
        [98, 0],
    ]
    for options, message in (("text=label", "need a column of texts"), ("length=0", "found length=0")):
        with pytest.raises(DataError, match=message):
            load_dataset(f"{name}?{options}")


def test_classes_by_name_a_share_to_test_on_and_numbers(tmp_path: Path) -> None:
    rows = [f"{('bad', 'good')[at % 2]} text,{('neg', 'pos')[at % 2]},{at / 2},{at % 3}" for at in range(10)]
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "all.csv").write_text("\n".join(["text,label,stars,x", *rows]) + "\n")
    name = f"hf:{tmp_path / 'set'}?tokenizer=words&length=4"
    with pytest.raises(DataError, match=r"or hold out a share with .test_share=0\.2"):
        load_dataset(name)
    dataset = load_dataset(f"{name}&test_share=0.4")
    assert (len(dataset.train), sorted(dataset.test.labels.tolist())) == (6, [0, 0, 1, 1])
    assert dataset.notes == ("classes      0 neg, 1 pos",)
    for label, shape in (("stars", (8,)), ("stars,x", (8, 2))):
        numbers = load_dataset(f"{name}&test_share=0.2&label={label}", reading=Reading(find_objective("regression")))
        assert numbers.train.labels.dtype == torch.float32
        assert numbers.train.labels.shape == shape
    file = load_dataset(f"hf:{tmp_path / 'set' / 'all.csv'}?text=text&length=4")
    assert (len(file.train), len(file.test), file.classes) == (8, 2, 2)


def test_texts_in_csv_files(tmp_path: Path) -> None:
    """Columns of a CSV file have another type of string than those of a Parquet file."""
    for split in ("train", "test"):
        rows = [f"{('bad', 'good')[at % 2]} number {at},{at % 2}" for at in range(6)]
        (tmp_path / f"{split}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    train, test = open_hub(f"hf:{tmp_path}?text=text&label=label&tokenizer=words&length=4")
    assert train.labels.tolist() == test.labels.tolist() == [0, 1] * 3
    assert train.read(np.arange(6)).shape == (6, 4)
