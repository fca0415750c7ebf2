"""Tables of one's own: CSV, TSV, JSON lines and Parquet, with columns by name."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from data_writers import random_images
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from subbit.core.errors import ConfigError, DataError, SubbitError
from subbit.data import Examples, StoredData, load_dataset
from subbit.data.held_out import hold_out
from subbit.data.needs import Reading
from subbit.objectives import find_objective

REGRESSION = Reading(find_objective("regression"))
ROWS = [
    {"size": 1.5, "rooms": 2, "street": "a", "price": 10.5, "kind": "flat", "user": "ann"},
    {"size": 2.5, "rooms": 3, "street": "b", "price": 20.5, "kind": "house", "user": "bob"},
    {"size": 3.5, "rooms": 4, "street": "c", "price": 30.5, "kind": "flat", "user": "ann"},
    {"size": 4.5, "rooms": 5, "street": "d", "price": 40.5, "kind": "house", "user": "bob"},
]


def write(path: Path, rows: list[dict[str, object]]) -> str:
    names = list(rows[0])
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t")
            writer.writerows([names, *(list(row.values()) for row in rows)])
    elif path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return str(path)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_all_formats_say_the_same(tmp_path: Path, suffix: str) -> None:
    """Of two users with two rows each, one row of each is a test row; street is text and left out."""
    name = write(tmp_path / f"homes.{suffix}", ROWS)
    dataset = load_dataset(f"{name}?label=price&owner=user", reading=REGRESSION)
    assert sorted(dataset.train.owners or ()) == sorted(dataset.test.owners or ()) == ["ann", "bob"]
    rows = torch.cat([dataset.train.batch(np.arange(2)).tensor, dataset.test.batch(np.arange(2)).tensor])
    assert sorted(rows.tolist()) == [[1.5, 2], [2.5, 3], [3.5, 4], [4.5, 5]]
    assert dataset.train.labels is not None
    assert torch.equal(dataset.train.labels, dataset.train.batch(np.arange(2)).tensor[:, 0] * 10 - 4.5)
    assert dataset.notes == ("inputs       features: size, rooms",)
    classes = load_dataset(f"{name}?label=kind&features=rooms&test_share=0.5")
    assert classes.classes == 2
    assert classes.notes[1] == "classes      0 flat, 1 house"
    assert classes.train.labels is not None
    assert classes.train.labels.tolist() == [row % 2 for row in classes.train.batch(np.arange(2)).tensor[:, 0].int()]


def test_a_test_file_and_its_classes(tmp_path: Path) -> None:
    name = write(tmp_path / "train.csv", ROWS)
    write(tmp_path / "test.jsonl", ROWS[1:2])
    dataset = load_dataset(f"{name}?label=kind&features=size&test=test.jsonl")
    assert (len(dataset.train), dataset.test.labels.tolist()) == (4, [1])
    assert load_dataset(f"{name}?label=kind&features=size&test=test.jsonl", limit=2).train.labels.sum() == 1
    write(tmp_path / "test.jsonl", [ROWS[0], {**ROWS[0], "kind": "boat"}])
    with pytest.raises(DataError, match=r"test.jsonl, column 'kind', row 2: found the class 'boat'; .* flat, house"):
        load_dataset(f"{name}?label=kind&features=size&test=test.jsonl")
    write(tmp_path / "test.jsonl", [{"kind": "flat"}])
    with pytest.raises(DataError, match=r"there is no column 'size', which train.csv has; the columns are kind"):
        load_dataset(f"{name}?label=kind&features=size&test=test.jsonl")


def test_numbers_as_classes_several_labels_and_given_names(tmp_path: Path) -> None:
    name = write(tmp_path / "x.csv", [{"x": at, "y": at % 3, "z": 1 - at % 2, "w": "ba"[at % 2]} for at in range(9)])
    assert load_dataset(f"{name}?label=y&features=x").classes == 3
    several = load_dataset(f"{name}?label=z,y&features=x", reading=REGRESSION)
    assert several.classes == 2
    assert several.train.labels.dtype == torch.float32
    assert several.train.labels.shape == (7, 2)
    labels = load_dataset(f"{name}?label=w&features=x&classes=b,a").train
    assert labels.labels.tolist() == [int(x) % 2 for x in labels.tensor[:, 0]]
    with pytest.raises(ConfigError, match="objective=classification takes one"):
        load_dataset(f"{name}?label=y,z&features=x")
    with pytest.raises(DataError, match=r"objective=multi-label needs float32 \[n, labels\] of 0 and 1"):
        load_dataset(f"{name}?label=z,y&features=x", reading=Reading(find_objective("multi-label")))


def test_scaled_features_have_mean_zero_and_deviation_one(tmp_path: Path) -> None:
    name = write(tmp_path / "x.csv", [{"x": 1000 + at, "same": 5, "y": at % 2} for at in range(20)])
    train = load_dataset(f"{name}?label=y&scale=true").train.tensor
    assert torch.allclose(train.mean(0), torch.zeros(2), atol=1e-4)
    assert train.std(0, correction=0).tolist() == pytest.approx([1, 0], abs=1e-4)


def test_texts(tmp_path: Path) -> None:
    rows = [{"body": text, "label": at % 2} for at, text in enumerate(["ab", 'x,"y"\nz', "", "c"] * 2)]
    name = write(tmp_path / "x.csv", rows)
    train = load_dataset(f"{name}?text=body&tokenizer=bytes&length=3").train
    assert train.tensor.dtype == torch.int64
    assert [97, 98, 0] in train.tensor.tolist()
    language = load_dataset(f"{name}?text=body&tokenizer=bytes&length=3", reading=Reading(find_objective("language")))
    batch = language.train.batch(np.arange(len(language.train)))
    assert set(batch.tensors()) == {"input_ids", "attention_mask"}
    assert ((batch.labels == -100) == (batch.tensors()["attention_mask"] == 0)).all()


def write_images(folder: Path) -> str:
    (folder / "pictures").mkdir()
    for number, pixels in enumerate(random_images(10, 6, 6, 3)):
        Image.fromarray(pixels).save(folder / "pictures" / f"{number}.png")
    return write(
        folder / "x.csv", [{"image": f"pictures/{at}.png", "age": at / 2, "kind": "ab"[at % 2]} for at in range(10)]
    )


def test_images_in_memory_and_batch_by_batch(tmp_path: Path) -> None:
    name = write_images(tmp_path)
    here, later = load_dataset(f"{name}?label=kind"), load_dataset(f"{name}?label=kind&stored=true")
    assert isinstance(here.train, Examples)
    assert isinstance(later.train, StoredData)
    assert torch.equal(later.train.batch(np.arange(8)).tensor, here.train.tensor)
    assert torch.equal(later.train.batch(np.arange(8)).labels, here.train.labels)
    few = load_dataset(f"{name}?label=age&stored=true&size=4", limit=3, reading=REGRESSION).train
    assert few.batch(np.arange(3)).tensor.shape == (3, 3, 4, 4)
    assert few.batch(np.arange(3)).labels.dtype == torch.float32
    part = later.train.select(np.array([3, 1]))
    assert part.labels.tolist() == here.train.labels[[3, 1]].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("label=prize", "there is no column 'prize'; the columns are size, rooms, street, price, kind, user"),
        ("features=size", "need a column of labels; name it with .label="),
        ("label=kind&features=size,street", "column 'street', row 1: found 'a'; need a finite number"),
        ("label=price", "found numbers such as 10.5; .* use objective=regression"),
        ("label=kind&text=street&features=size", "found text and features; need one"),
        ("label=kind&text=street,user", "found text=street,user; need one column"),
        ("label=kind&colour=red", "the options are text, image, features"),
        ("label=", "each with a value"),
        ("label=kind&test_share=1", "need a share above 0 and below 1"),
        ("label=kind&test=nowhere.csv", "found test=nowhere.csv; need a file"),
        ("label=kind&image=street", r"row \d: there is no file '[a-d]'"),
        ("label=kind&features=size&stored=true", "stored=true is for images"),
        ("label=kind&features=size&scale=yes", "need true or false"),
        ("label=kind&features=size&classes=flat,boat", "found the class 'house'; the classes are flat, boat"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, options: str, message: str) -> None:
    name = write(tmp_path / "x.csv", ROWS)
    with pytest.raises(SubbitError, match=message):
        load_dataset(f"{name}?{options}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found no columns"),
        ("a,label\n", "found no rows"),
        ("a,a,label\n1,2,3\n", "found the column 'a' twice"),
        ("a,label\n1,0\n2\n", r"row 2 \(line 3\): found 1 values; need 2"),
        ("a,label\n1,0\n\n,0\n", "column 'a', row 2: found an empty cell"),
        ("a,label\n1,x\n2,\n", "column 'label', row 2: found an empty cell"),
        ("a,label\n1,0\nnan,0\n", "row 2: found 'nan'; need a finite number"),
        ('a,label\n1,0\n"2"3,1\n', "row 2: cannot be read"),
        ("a,label\n1,99999999999\n2,1\n", "found the class 99999999999; need numbers below 65536"),
        ("a,label\n1,0\n", "need test rows"),
        ("image,label\n../x.png,0\n../x.png,0\n", "found the name '../x.png'; need one that stays inside"),
    ],
)
def test_damaged_csv(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        load_dataset(str(tmp_path / "x.csv"))


def test_damaged_json_lines_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for content, message in (
        ('{"a": 1, "label": 0}\n[1]\n', "row 2: found a list; need one JSON object per line"),
        ('{"a": 1, "label": 0}\n{"a"\n', "row 2: cannot be read"),
        ("[" * 100_000, "row 1: cannot be read"),
        ('{"a": 1, "label": 0}\n{"label": 0}\n', "column 'a', row 2: found an empty cell"),
        ('{"a": [1], "label": 0}\n{"a": [2], "label": 0}\n', "none of the inputs has numbers"),
        ("", "found no rows"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            load_dataset(str(path))
    (tmp_path / "x.csv").write_bytes(b"a,label\n\xff\xfe,0\n")
    with pytest.raises(DataError, match="not text in UTF-8"):
        load_dataset(str(tmp_path / "x.csv"))


def test_every_truncation_of_a_parquet_file_is_refused(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "x.parquet", ROWS))
    whole = path.read_bytes()
    for length in range(0, len(whole), 11):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="cannot be read"):
            load_dataset(f"{path}?label=kind")


@given(data=st.binary(max_size=80))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    for suffix, start in ((".csv", b"a,label\n"), (".tsv", b""), (".jsonl", b'{"label": '), (".parquet", b"PAR1")):
        path = tmp_path / f"x{suffix}"
        path.write_bytes(start + data)
        try:
            assert len(load_dataset(str(path)).train)
        except SubbitError as error:
            assert str(path) in str(error)  # noqa: PT017


def test_a_table_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = write(tmp_path / "x.csv", ROWS * 100)
    other = write(tmp_path / "x.parquet", ROWS * 100)
    monkeypatch.setattr("subbit.data.tables.machine_memory", lambda: 10_000)
    for each in (name, other):
        with pytest.raises(DataError, match=r"take more than the 0.0 GB of memory"):
            load_dataset(f"{each}?label=kind")
    monkeypatch.setattr("subbit.data.tables.machine_memory", lambda: 1000)
    with pytest.raises(DataError, match="need at most 1000, the memory of this machine"):
        load_dataset(f"{name}?label=kind")


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=2, max_size=60),
    share=st.floats(0.05, 0.9),
    owned=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_held_out_rows(rows: list[tuple[int, str]], share: float, owned: bool) -> None:
    """Every group of two or more is on both sides, one alone is trained on; about the share is held out."""
    classes, owners = np.array([one for one, _ in rows]), [owner for _, owner in rows]
    groups = owners if owned else classes.tolist()
    if max(groups.count(group) for group in groups) < 2:
        with pytest.raises(DataError, match="need test rows"):
            hold_out(len(rows), share, classes, owners if owned else None, "here")
        return
    train, test = hold_out(len(rows), share, classes, owners if owned else None, "here")
    assert sorted([*train, *test]) == list(range(len(rows)))
    for group in set(groups):
        members = [at for at, each in enumerate(groups) if each == group]
        held = len(set(members) & set(test.tolist()))
        assert held == (min(max(1, round(share * len(members))), len(members) - 1))
