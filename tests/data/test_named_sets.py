"""Every named data set, from a small copy in the true format: found, read, and when damaged refused in words."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from paper_writers import WRITERS

from subbit.core.errors import ConfigError, DataError, SubbitError
from subbit.data import StoredData, dataset_names, load_dataset, partition
from subbit.runtime.problem import Problem
from subbit.sets.layouts import LAYOUTS
from subbit.sets.named import NAMED

SMALL = {"food101": "?size=8", "cars196": "?size=8", "ucf101": "?size=8&frames=2", "hmdb51": "?size=8&frames=2"}
PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all sets; the one that needs another library is in it where that library is there."""
    root = tmp_path_factory.mktemp("sets")
    for name, write in WRITERS.items():
        if name != "pcam" or find_spec("h5py"):
            write(root / name)
    return root


@pytest.fixture
def root(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBBIT_DATA", str(written))
    return written


def present(root: Path, name: str) -> str:
    if not (root / name).exists():
        pytest.skip("needs h5py")
    return name + SMALL.get(name, "")


def test_every_name_has_a_writer_and_every_layout_a_name() -> None:
    assert set(NAMED) - set(WRITERS) == {"digits"}
    assert set(LAYOUTS) - {layout for named in NAMED.values() for layout in named.layouts} == {"image folder"}


@pytest.mark.parametrize("name", WRITERS)
def test_each_set_is_found_and_read(root: Path, name: str) -> None:
    text = present(root, name)
    assert {info.name: info.found for info in dataset_names()}[name]
    dataset = load_dataset(text)
    named = NAMED[name]
    assert dataset.classes == (named.classes or 62)
    assert dataset.train.inputs.dtype in (torch.uint8, torch.float32, torch.int64)
    assert (dataset.train.owners is not None) == bool(named.owners)
    if named.owners:
        assert len(set(dataset.train.owners)) > 1
        parts = partition(dataset.train, 2, "natural")
        assert all(len({dataset.train.owners[position] for position in part}) == 1 for part in parts)


@pytest.mark.parametrize("name", ["emnist", "femnist", "har?split=own", "shakespeare"])
def test_a_device_is_judged_on_the_examples_of_its_own_writer_person_or_role(root: Path, name: str) -> None:
    dataset = load_dataset(name)
    clients = len(set(dataset.train.owners or ()))
    parts = partition(dataset.train, clients, "natural")
    problem = Problem(
        module=torch.nn.Identity(),
        train=dataset.train,
        parts=tuple(parts),
        test=dataset.test,
        classes=dataset.classes,
        pretrained=False,
        model_name="none",
        dataset_name=name,
    )
    assert clients > 1
    judged = [problem.own_test(client) for client in range(clients)]
    for client, own in enumerate(judged):
        (owner,) = set(problem.client_data(client).owners or ())
        assert own.size
        assert {(dataset.test.owners or ())[position] for position in own} == {owner}
    assert sum(own.size for own in judged) == len(dataset.test)


@pytest.mark.parametrize("name", WRITERS)
def test_a_limit_gives_the_same_examples_as_the_whole_set(root: Path, name: str) -> None:
    """What is read for a few positions is what the whole set has there."""
    text = present(root, name)
    whole, few = load_dataset(text).train, load_dataset(text, limit=2, test_limit=1).train
    assert len(few) == 2
    for inputs, label in zip(few.inputs, few.labels, strict=True):
        same = [position for position, other in enumerate(whole.inputs) if torch.equal(other, inputs)]
        assert label in whole.labels[same]


@pytest.mark.parametrize("name", WRITERS)
def test_a_set_that_is_missing_says_where_from_and_where_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SUBBIT_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if NAMED[name].system_folder and Path(NAMED[name].system_folder).is_dir():
        pytest.skip("installed on this machine")
    with pytest.raises(DataError) as refusal:
        load_dataset(name)
    for part in (NAMED[name].origin, str(tmp_path / name), LAYOUTS[NAMED[name].layouts[0]].files):
        assert part in str(refusal.value)


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in ("mnist", "fashion-mnist", "femnist")])
def test_the_folder_itself_is_enough(root: Path, name: str) -> None:
    """A path needs no name: the layout is seen. Not of sets whose archive has a folder of its own: the path is that."""
    present(root, name)
    layouts = [LAYOUTS[layout] for layout in NAMED[name].layouts]
    folder = next(
        place for place in (root / name, *sorted((root / name).iterdir())) if any(one.fits(place) for one in layouts)
    )
    first = next(layout for layout in LAYOUTS.values() if layout.fits(folder))
    assert first in layouts
    assert len(load_dataset(f"{folder}{SMALL.get(name, '')}", limit=2).train) == 2


def damaged(data: bytes, how: int) -> bytes:
    """Truncated, with bytes changed, doubled, emptied."""
    middle = len(data) // 2
    generator = np.random.default_rng(how)
    if how == 0:
        return b""
    if how == 1:
        return data[:middle]
    if how == 2:
        return data[:-1]
    if how == 3:
        return data + data
    array = np.frombuffer(data, np.uint8).copy()
    places = generator.integers(0, len(array), max(1, len(array) // (1000 if how < 8 else 20)))
    array[places] = generator.integers(0, 256, len(places))
    return array.tobytes()


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files_are_data_errors(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever happens to one file at a time: the set is read or refused in words, never by another error."""
    text = present(root, name)
    shutil.copytree(root / name, tmp_path / name)
    monkeypatch.setenv("SUBBIT_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    refused = 0
    files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
    documents = [path for path in files if path.suffix.lower() not in (".jpg", ".jpeg", ".png")]
    for path in documents + [path for path in files if path not in documents][:2]:
        data = path.read_bytes()
        for how in range(10):
            path.write_bytes(damaged(data, how))
            try:
                load_dataset(text)
            except SubbitError:
                refused += 1
        path.unlink()
        try:
            load_dataset(text)
        except SubbitError:
            refused += 1
        path.write_bytes(data)
    assert refused
    load_dataset(text)


def test_options_that_do_not_exist_or_fit(root: Path) -> None:
    for text, message in (
        ("food101?sise=8", "the options are size"),
        ("food101?size=0", "integer from 1 to 4096"),
        ("food101?size=1e3", "integer from 1 to 4096"),
        ("food101?size=99999999999999999999", "integer from 1 to 4096"),
        ("food101?size", "found size=;"),
        ("cifar100?size=8", "this set has no options"),
        ("digits?size=8", "this set has none"),
        ("har?split=mine", "there are official, own"),
        ("ucf101?split=4", "there are 1 to 3"),
        ("emnist?variant=byhand", "there are byclass, bymerge"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_dataset(text)


def test_more_than_the_machine_holds_is_refused_before_it_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four images of 64 x 64 x 3 bytes are 49,152; the machine has one page of 4096 here."""
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 4096}.__getitem__)
    with pytest.raises(DataError, match=r"4 examples of 12288 bytes .* need fewer \(limit=...\) or smaller"):
        load_dataset("food101?size=64&stored=false")
    later = load_dataset("food101?size=64")
    assert isinstance(later.train, StoredData)
    assert later.train.batch(np.arange(2)).inputs.shape == (2, 3, 64, 64)


def test_the_page_has_a_row_for_every_name() -> None:
    table = PAGE.partition("## Your own data")[0]
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| `")}
    assert [name.strip("`") for name in rows] == list(NAMED)
    for name, named in NAMED.items():
        row = rows[f"`{name}`"]
        assert named.what in row
        assert named.owners in row
        for layout in named.layouts:
            assert LAYOUTS[layout].files in row
            for option in LAYOUTS[layout].options():
                assert f"`{option}`" in row, f"{name}: {option}"
