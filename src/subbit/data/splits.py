"""Built-in partitions.

    iid        equal shares of a random order
    dirichlet  per class, shares ~ Dirichlet(alpha) (Yurochkin et al. 2019, arXiv:1905.12022)
    classes    a fixed number of classes per client (Li et al. 2021, arXiv:2102.02079); with fewer clients than
               classes some classes may stay unused. With `class_balance` below 1 a client's classes are unequal, as in
               LotteryFL (Li et al. 2020, arXiv:2008.03371): it has all examples of one and this share of the others
    classes-equal
               a fixed number of classes per client and clients of equal size, where the sizes under `classes` differ
               up to about three times. Every class is cut into pieces of equal size; each client gets one piece each of
               as many classes as it needs. Nothing is left over unless there are more classes than pieces
    classes-starved
               each client draws classes and gets 1 / clients of the examples of each, as a published notebook does
               where its paper says "two classes per client" (paper 001). Nearly all examples stay unused, and so do
               classes that no client draws. Only for showing what results on such a split are worth
    natural    one client per owner (writer, speaker, device)

The rows are first shuffled with the seed, so the order of a file, e.g. by writer, does not matter.

`iid`, `dirichlet`, `classes` and `natural` are the partitions of flwr-datasets. Only `classes` calls it: it takes
seconds to import, and the others are a few lines here. A test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import derive_key, numpy_generator
from subbit.data.examples import Data
from subbit.data.hub import quiet_datasets

Parts = list[NDArray[np.int64]]


@dataclass(frozen=True)
class Split:
    """Arguments of a partition. All random draws must derive from the seed (`subbit.core.randomness`)."""

    examples: Data
    clients: int
    alpha: float = 1.0
    classes_per_client: int = 2
    class_balance: float = 1.0
    """classes: share of the examples that a client keeps of all but one of its classes; the rest stays unused."""
    balance: bool = False
    """dirichlet: a client that has its fair share gets no more classes."""
    seed: int = 0

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each example."""
        found = self.examples.labels
        if found is None or found.dtype != torch.int64 or found.dim() != 1:
            raise ConfigError(
                "this partition needs one class per example, and these labels are none: use partition=iid, or "
                "partition=natural where examples have owners"
            )
        labels: NDArray[np.int64] = found.numpy()
        return labels


def iid(split: Split) -> Parts:
    """equal shares of a random order"""
    return [np.sort(part) for part in np.array_split(_order(split), split.clients)]


def dirichlet(split: Split) -> Parts:
    """label shares from Dirichlet(alpha); with 0.1 a client has few classes, with 10 almost all"""
    order, generator = _order(split), np.random.default_rng(derive_key(split.seed, "partition"))
    labels = split.labels[order]
    pieces: list[list[NDArray[np.int64]]] = [[] for _ in range(split.clients)]
    for label in np.unique(labels):
        members = order[labels == label]
        shares = generator.dirichlet(np.full(split.clients, float(split.alpha)))
        if split.balance:
            held = np.array([sum(map(len, own)) for own in pieces])
            shares = _balanced(shares, held > len(order) / split.clients, split.alpha)
        ends = (np.cumsum(shares) * len(members)).astype(int)[:-1]
        for own, piece in zip(pieces, np.split(members, ends), strict=True):
            own.append(piece)
    return [np.sort(np.concatenate(own)) for own in pieces]


def _balanced(shares: NDArray[np.float64], full: NDArray[np.bool_], alpha: float) -> NDArray[np.float64]:
    """Shares of the clients that may still get examples."""
    shares = np.where(full, 0.0, shares)
    total = sum(shares.tolist())  # In the order of the clients, as Flower adds them.
    if not total > 0:
        raise DataError(f"partition 'dirichlet': alpha {alpha} is too small for balance; need it larger")
    balanced: NDArray[np.float64] = shares / total
    return balanced


def classes(split: Split) -> Parts:
    """exactly classes_per_client classes per client"""
    key = derive_key(split.seed, "partition")
    parts = _by_label(
        split,
        "classes",
        lambda flower: flower.PathologicalPartitioner(
            split.clients, "label", split.classes_per_client, "first-deterministic", shuffle=False, seed=key
        ),
    )
    if split.class_balance == 1:
        return parts
    keys = [derive_key(split.seed, "partition-balance", 0, client) for client in range(split.clients)]
    return [
        _unbalanced(part, split.labels[part], split.class_balance, key) for part, key in zip(parts, keys, strict=True)
    ]


def classes_equal(split: Split) -> Parts:
    """exactly classes_per_client classes per client, and clients of equal size"""
    key = derive_key(split.seed, "partition-equal")
    return _equal(split.labels, split.clients, split.classes_per_client, key)


def classes_starved(split: Split) -> Parts:
    """classes_per_client drawn classes, 1 / clients of each; the rest stays unused"""
    key = derive_key(split.seed, "partition-starved")
    return _starved(split.labels, split.clients, split.classes_per_client, key)


def natural(split: Split) -> Parts:
    """one client per owner (writer, speaker, device), those with the most examples"""
    return _by_owner(split.examples, split.clients)


def _order(split: Split) -> NDArray[np.int64]:
    return numpy_generator(derive_key(split.seed, "partition-order")).permutation(len(split.examples))


def _by_label(split: Split, how: str, make: Callable[[Any], Any]) -> Parts:
    """Use a partitioner of flwr-datasets; `make` gets its module."""
    count, clients = len(split.examples), split.clients
    order = _order(split)
    table = {"index": order, "label": split.labels[order]}
    with quiet_datasets():
        import flwr_datasets.partitioner as flower

        partitioner = make(flower)
        try:
            return _parts(partitioner, table, range(clients))
        except ValueError as error:
            raise DataError(f"partition {how!r} of {count} examples over {clients} clients: {error}") from error


def _unbalanced(part: NDArray[np.int64], labels: NDArray[np.int64], share: float, key: int) -> NDArray[np.int64]:
    """Keep all examples of one random class and the given share, at least one example, of every other class."""
    generator = numpy_generator(key)
    held = np.unique(labels)
    whole = generator.choice(held)
    kept = [
        generator.permutation(part[labels == label])[: None if label == whole else _share_of(labels == label, share)]
        for label in held
    ]
    return np.sort(np.concatenate(kept))


def _share_of(members: NDArray[np.bool_], share: float) -> int:
    return max(1, round(share * np.count_nonzero(members)))


def _equal(labels: NDArray[np.int64], clients: int, classes_per_client: int, key: int) -> list[NDArray[np.int64]]:
    """Deal the pieces of all classes to the clients in turn. No class has more pieces than there are clients, so no
    client gets two pieces of one class.
    """
    generator = numpy_generator(key)
    wanted = clients * classes_per_client
    held = generator.permutation(np.unique(labels))[:wanted]
    members = np.array([np.count_nonzero(labels == label) for label in held])
    pieces = np.ones(len(held), dtype=np.int64)
    for _ in range(wanted - len(held)):  # Add a piece to the class whose pieces are largest.
        pieces[np.argmax(np.where(pieces < clients, members / pieces, -1.0))] += 1
    dealt = generator.permutation(clients)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    place = 0
    for label, count in zip(held, pieces, strict=True):
        for piece in np.array_split(generator.permutation(np.flatnonzero(labels == label)), count):
            parts[dealt[place % clients]].append(piece)
            place += 1
    return [np.sort(np.concatenate(part)).astype(np.int64) for part in parts]


def _starved(labels: NDArray[np.int64], clients: int, classes_per_client: int, key: int) -> list[NDArray[np.int64]]:
    generator = numpy_generator(key)
    # No class can run out: even if all clients draw it, they take no more than it has.
    unused = {label: list(generator.permutation(np.flatnonzero(labels == label))) for label in np.unique(labels)}
    share = {label: len(members) // clients for label, members in unused.items()}
    parts = []
    for _ in range(clients):
        drawn = generator.choice(list(unused), classes_per_client, replace=False)
        held = [unused[label].pop() for label in drawn for _ in range(share[label])]
        parts.append(np.sort(np.array(held, dtype=np.int64)))
    return parts


def _parts(partitioner: Any, columns: dict[str, NDArray[np.int64]], numbers: range) -> Parts:
    """Partition an in-memory table of integers. Nothing is written to disk."""
    import datasets

    partitioner.dataset = datasets.Dataset.from_dict(columns)
    parts = [partitioner.load_partition(number).with_format("numpy")["index"][:] for number in numbers]
    return [np.sort(np.asarray(part, dtype=np.int64)) for part in parts]


def _by_owner(examples: Data, clients: int) -> list[NDArray[np.int64]]:
    """The owners with the most examples, in descending order; ties are ordered by name."""
    if examples.owners is None:
        raise DataError(
            "partition 'natural' needs an owner for each example; found none (npz: owners_train; tables and hf:NAME: "
            "?owner=COLUMN)"
        )
    names = sorted(set(examples.owners))
    if len(names) < clients:
        raise DataError(f"partition 'natural' over {clients} clients needs as many owners; found {len(names)}")
    number_of = {name: number for number, name in enumerate(names)}
    owners = np.array([number_of[owner] for owner in examples.owners], dtype=np.int64)
    counts = np.bincount(owners)
    held = np.split(np.argsort(owners, kind="stable"), np.cumsum(counts)[:-1])
    return [held[number] for number in np.argsort(-counts, kind="stable")[:clients]]
