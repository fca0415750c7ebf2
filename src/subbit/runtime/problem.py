"""A problem: a module, the clients' data and a test set, from a configuration or the Python API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from subbit.config.schema import GIVEN, RunConfig
from subbit.core.errors import ConfigError
from subbit.core.randomness import derive_key
from subbit.data import Examples, SplitSummary, load_dataset, partition, summarise_split
from subbit.models import load_classifier
from subbit.models.load_model import is_small


@dataclass(frozen=True)
class Problem:
    module: nn.Module
    train: Examples
    parts: tuple[NDArray[np.int64], ...]
    """Indices of each client's training examples. A client may have none."""
    test: Examples
    classes: int
    pretrained: bool
    model_name: str
    dataset_name: str

    @property
    def clients(self) -> int:
        return len(self.parts)

    def client_data(self, client: int) -> Examples:
        return self._numbered[0].select(self.parts[client])

    def test_data(self, examples: NDArray[np.int64]) -> Examples:
        return self._numbered[1].select(examples)

    @cached_property
    def _numbered(self) -> tuple[Examples, Examples]:
        """The training and the test examples, numbered one after the other."""
        train, test = len(self.train), len(self.test)
        rows = torch.arange(train + test)
        return replace(self.train, rows=rows[:train]), replace(self.test, rows=rows[train:])

    def own_test(self, client: int) -> NDArray[np.int64]:
        """The client's own test set.

        If all its examples have one owner, and that owner has test examples: those; otherwise all test examples of the
        client's classes.
        """
        held = self.parts[client]
        if self.train.owners is not None and len(held):
            owners = {self.train.owners[example] for example in held}
            own = self._tests_of_owners.get(owners.pop()) if len(owners) == 1 else None
            if own is not None:
                return own
        classes = np.unique(self.train.labels.numpy()[held])
        return np.flatnonzero(np.isin(self.test.labels.numpy(), classes))

    @cached_property
    def _tests_of_owners(self) -> dict[str, NDArray[np.int64]]:
        positions: dict[str, list[int]] = {}
        for position, owner in enumerate(self.test.owners or ()):
            positions.setdefault(owner, []).append(position)
        return {owner: np.array(own, dtype=np.int64) for owner, own in positions.items()}

    def clients_with_data(self) -> list[int]:
        return [client for client, part in enumerate(self.parts) if len(part)]

    def split_summary(self) -> SplitSummary:
        return summarise_split(self.train.labels, list(self.parts), self.classes)


def build_problem(run: RunConfig) -> Problem:
    if GIVEN in (run.model, run.dataset):
        raise ConfigError(
            "the module and the data of this run were given to subbit.fine_tune, no configuration names them: go on "
            "with fine_tune(module, clients, test, ..., folder=FOLDER, resume=True) and the same arguments"
        )
    dataset = load_dataset(run.dataset, limit=run.limit, test_limit=run.test_limit, seed=run.seed)
    parts = partition(
        dataset.train,
        run.clients,
        run.partition,
        alpha=run.alpha,
        classes_per_client=run.classes_per_client,
        class_balance=run.class_balance,
        seed=run.seed,
    )
    module = load_classifier(
        run.model,
        dataset.classes,
        key=derive_key(run.seed, "model"),
        pretrained=run.pretrained,
        pooling=run.pooling,
        revision=run.revision,
        input_shape=tuple(dataset.train.inputs.shape[1:]),
    )
    return Problem(
        module=module,
        train=dataset.train,
        parts=tuple(parts),
        test=dataset.test,
        classes=dataset.classes,
        pretrained=run.pretrained and not is_small(run.model),
        model_name=run.model,
        dataset_name=dataset.name,
    )
