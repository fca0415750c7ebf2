"""Partitions and their summary."""

from __future__ import annotations

import hashlib
import random
import tempfile
from pathlib import Path
from typing import Any

import datasets
import flwr_datasets.partitioner as flower
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import derive_key, numpy_generator
from subbit.data import PARTITIONS, Examples, partition, summarise_split

OPTIONS = {"iid": {}, "dirichlet": {"alpha": 0.3}, "classes": {"classes_per_client": 2}, "classes-starved": {}}


def labelled(count: int, classes: int = 10, owners: tuple[str, ...] | None = None) -> Examples:
    labels = torch.from_numpy(np.random.default_rng(count).permutation(np.arange(count) % classes))
    return Examples(torch.zeros(count, 1), labels, owners)


@pytest.mark.parametrize("how", OPTIONS)
def test_disjoint_sorted_repeatable_and_keyed(how: str) -> None:
    examples = labelled(400)
    parts = partition(examples, 12, how, **OPTIONS[how], seed=3)
    assert len(parts) == 12
    together = np.concatenate(parts)
    assert together.dtype == np.int64
    assert len(np.unique(together)) == len(together)
    assert all(np.all(np.diff(part) > 0) for part in parts)
    again = partition(examples, 12, how, **OPTIONS[how], seed=3)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))
    other = partition(examples, 12, how, **OPTIONS[how], seed=4)
    assert not all(np.array_equal(one, two) for one, two in zip(parts, other, strict=True))


@pytest.mark.parametrize("how", ["iid", "dirichlet", "classes"])
def test_nothing_is_lost(how: str) -> None:
    """The first class of 12 clients goes round the 10 classes, so that the class partition uses all of them too."""
    parts = partition(labelled(400), 12, how)
    assert sorted(np.concatenate(parts).tolist()) == list(range(400))


def test_iid_sizes_differ_by_one_at_most() -> None:
    assert sorted(len(part) for part in partition(labelled(103), 10, "iid")) == [10] * 7 + [11] * 3


@given(
    count=st.integers(60, 200),
    clients=st.integers(1, 60),
    alpha=st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 1000.0]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_dirichlet_loses_nothing_whatever_alpha(count: int, clients: int, alpha: float, seed: int) -> None:
    parts = partition(labelled(count), clients, "dirichlet", alpha=alpha, seed=seed)
    assert len(parts) == clients
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))


def test_dirichlet_with_small_alpha_leaves_clients_empty() -> None:
    examples = labelled(60)
    summary = summarise_split(examples.labels, partition(examples, 50, "dirichlet", alpha=0.1), 10)
    assert summary.empty > 0
    assert summary.examples == 60
    assert min(summary.sizes) == 0


def test_dirichlet_alpha_orders_coverage() -> None:
    examples = labelled(5000)
    coverage = [
        summarise_split(examples.labels, partition(examples, 20, "dirichlet", alpha=alpha), 10).coverage
        for alpha in (0.01, 0.1, 10.0)
    ]
    assert coverage[0] < coverage[1] < coverage[2]
    assert coverage[2] == 1.0


def test_balanced_dirichlet_is_more_even() -> None:
    """A client beyond its fair share (100) gets no further class, so that it ends below 100 + one class (200)."""
    examples = labelled(2000)
    balanced = partition(examples, 20, "dirichlet", alpha=0.3, balance=True)
    free = partition(examples, 20, "dirichlet", alpha=0.3)
    assert sum(map(len, balanced)) == 2000
    assert max(map(len, balanced)) <= 300
    assert np.std([len(part) for part in balanced]) < np.std([len(part) for part in free])


def test_balancing_that_has_nobody_left_is_an_error() -> None:
    """With alpha 1e-300 one client draws a whole class; if it is full already, what is left to share is 0 / 0."""
    with pytest.raises(DataError, match="alpha 1e-300 is too small for balance"):
        partition(labelled(200, classes=20), 3, "dirichlet", alpha=1e-300, balance=True)


@pytest.mark.parametrize("classes_per_client", [1, 2, 5, 10])
def test_classes_per_client(classes_per_client: int) -> None:
    examples = labelled(500)
    parts = partition(examples, 15, "classes", classes_per_client=classes_per_client)
    assert {len(np.unique(examples.labels[part])) for part in parts} == {classes_per_client}


def test_unbalanced_classes_by_hand() -> None:
    """100 examples of 10 classes, 10 clients of 2 classes: where a client has n of a class, 0.25 n of one of the two
    stay, rounded, and at least one; the other is as it was."""
    examples = labelled(100)
    whole = partition(examples, 10, "classes", seed=5)
    parts = partition(examples, 10, "classes", class_balance=0.25, seed=5)
    for before, after in zip(whole, parts, strict=True):
        assert set(after) <= set(before)
        assert np.all(np.diff(after) > 0)
        had, has = (np.unique(examples.labels[part], return_counts=True)[1] for part in (before, after))
        cut = [max(1, round(0.25 * count)) for count in had]
        assert has.tolist() in ([had[0], cut[1]], [cut[0], had[1]])
    assert [part.tolist() for part in parts] == [
        part.tolist() for part in partition(examples, 10, "classes", class_balance=0.25, seed=5)
    ]


def test_natural_keeps_owners_apart_and_takes_the_largest() -> None:
    """ann 3, bob 2, cy 2, bob\\0 1: three clients are ann, bob, cy. A zero byte is part of a name."""
    owners = ("bob", "ann", "cy", "ann", "bob\0", "cy", "ann", "bob")
    examples = labelled(8, owners=owners)
    parts = partition(examples, 3, "natural")
    assert [part.tolist() for part in parts] == [[1, 3, 6], [0, 7], [2, 5]]
    assert [part.tolist() for part in partition(examples, 4, "natural", seed=9)][3] == [4]


def test_natural_errors() -> None:
    with pytest.raises(DataError, match="needs an owner for each example; found none"):
        partition(labelled(4), 2, "natural")
    with pytest.raises(DataError, match="over 3 clients needs as many owners; found 2"):
        partition(labelled(4, owners=("a", "b", "a", "b")), 3, "natural")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"how": "dirichlett"}, ConfigError, "did you mean 'dirichlet'"),
        ({"how": "zzz"}, ConfigError, "there are: classes, classes-equal, classes-starved, dirichlet, iid, natural"),
        ({"clients": 0}, ConfigError, "found 0 clients"),
        ({"clients": 21}, DataError, "found 20 examples for 21 clients"),
        ({"how": "dirichlet", "alpha": 0.0}, ConfigError, "found alpha 0.0"),
        ({"how": "dirichlet", "alpha": float("nan")}, ConfigError, "found alpha nan"),
        ({"how": "classes", "classes_per_client": 11}, ConfigError, "need 1 to 10"),
        ({"how": "classes", "class_balance": 0.0}, ConfigError, "found class_balance 0.0"),
        ({"how": "classes", "class_balance": 1.5}, ConfigError, "found class_balance 1.5"),
        ({"how": "classes", "classes_per_client": 9}, DataError, "partition 'classes' of 20 examples over 5 clients"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        partition(**({"examples": labelled(20), "clients": 5, "how": "iid"} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize("how", PARTITIONS)
def test_no_global_state_no_files_no_noise(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    examples = labelled(40, owners=tuple("abcd" * 10))
    np_state, py_state, torch_state = np.random.get_state(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    partition(examples, 4, how)
    assert np_state[2] == np.random.get_state()[2]  # noqa: NPY002
    assert np.array_equal(np_state[1], np.random.get_state()[1])  # noqa: NPY002
    assert random.getstate() == py_state
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert list(tmp_path.rglob("*")) == []
    assert capfd.readouterr() == ("", "")


def test_coverage_by_hand() -> None:
    """Of four classes the clients hold 2, 1, 4 and none: C_p = (2/4 + 1/4 + 4/4 + 0) / 4 = 7/16."""
    labels = torch.tensor([0, 1, 1, 2, 2, 0, 1, 2, 3])
    parts = [np.array(part, dtype=np.int64) for part in ([0, 1, 2], [3, 4], [5, 6, 7, 8], [])]
    summary = summarise_split(labels, parts, classes=4)
    assert (summary.clients, summary.examples, summary.empty) == (4, 9, 1)
    assert summary.sizes == [3, 2, 4, 0]
    assert summary.classes_per_client == [2, 1, 4, 0]
    assert summary.coverage == 7 / 16
    text = summary.as_text()
    assert "4 (1 empty)" in text
    assert "0 / 2.5 / 4 examples" in text
    assert "0 / 1.5 / 4 classes, C_p = 0.438" in text
    assert summary.fingerprint in text


def test_fingerprint_by_hand() -> None:
    """Little-endian 64-bit integers; the order inside a client does not matter, that of the clients does."""
    labels = torch.tensor([0, 0, 0])
    one, two = np.array([2, 0]), np.array([1])
    data = b"".join(number.to_bytes(8, "little") for number in (2, 0, 2, 1, 1))
    assert summarise_split(labels, [one, two], 1).fingerprint == hashlib.sha256(data).hexdigest()[:16]
    assert summarise_split(labels, [two, one], 1).fingerprint != summarise_split(labels, [one, two], 1).fingerprint
    # Without the counts, [2, 0 | 1] and [2 | 0, 1] would be the same bytes.
    moved = summarise_split(labels, [np.array([0]), np.array([1, 2])], 1).fingerprint
    assert moved != summarise_split(labels, [np.array([0, 1]), np.array([2])], 1).fingerprint


def test_a_starved_client_has_two_classes_and_one_of_a_hundred_examples_of_each() -> None:
    """Paper 001's notebook: 40,000 images of 100 classes over 100 clients leave each client 2 * (400 // 100) = 8
    images, 800 in all. A class is drawn by nobody with chance 0.98^100 = 0.133: 13 of 100 are expected, give or take 3.
    """
    examples = labelled(40_000, classes=100)
    parts = partition(examples, 100, "classes-starved", classes_per_client=2)
    labels = examples.labels.numpy()
    assert {len(part) for part in parts} == {8}
    assert {len(np.unique(labels[part])) for part in parts} == {2}
    absent = 100 - len(np.unique(labels[np.concatenate(parts)]))
    assert 3 <= absent <= 24


def test_a_class_of_fewer_examples_than_clients_starves_altogether() -> None:
    parts = partition(labelled(50), 12, "classes-starved")
    assert [len(part) for part in parts] == [0] * 12


@pytest.mark.parametrize(("classes", "clients", "each"), [(100, 100, 400), (10, 30, 600), (10, 7, 31)])
def test_equal_clients_of_two_classes_share_everything(classes: int, clients: int, each: int) -> None:
    """100 classes in 200 pieces of 200: clients of 400. 10 in 60 of 100: 200. 10 in 14 of 31, or of 15 and 16."""
    labels = np.repeat(np.arange(classes), each)
    examples = Examples(torch.zeros(len(labels), 1), torch.from_numpy(labels))
    parts = partition(examples, clients, "classes-equal", classes_per_client=2, seed=3)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert {len(np.unique(labels[part])) for part in parts} == {2}
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= (0 if clients % classes == 0 else 2 * (each - each // 2))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("clients", [1, 7, 30])
def test_iid_and_dirichlet_are_those_of_flower(alpha: float, clients: int) -> None:
    """On the table of rows in our shuffled order, as the partitioners of flwr-datasets divide it."""
    examples = labelled(997, classes=11)
    order = numpy_generator(derive_key(3, "partition-order")).permutation(len(examples))
    key = derive_key(3, "partition")
    named: dict[str, Any] = {"min_partition_size": 0, "shuffle": False, "seed": key}
    table = datasets.Dataset.from_dict({"index": order, "label": examples.labels.numpy()[order]})
    for how, balance, partitioner in (
        ("iid", False, flower.IidPartitioner(clients)),
        ("dirichlet", False, flower.DirichletPartitioner(clients, "label", alpha, self_balancing=False, **named)),
        ("dirichlet", True, flower.DirichletPartitioner(clients, "label", alpha, self_balancing=True, **named)),
    ):
        partitioner.dataset = table
        ours = partition(examples, clients, how, alpha=alpha, balance=balance, seed=3)
        for client, part in enumerate(ours):
            theirs = partitioner.load_partition(client).with_format("numpy")["index"][:]
            np.testing.assert_array_equal(part, np.sort(theirs))
