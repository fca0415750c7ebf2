"""A problem: a module, the clients' data and a test set, from a configuration or the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from subbit.config.schema import GIVEN, OWN, RunConfig
from subbit.core.busy import busy_with
from subbit.core.errors import ConfigError
from subbit.core.imported import is_imported
from subbit.core.machine import torch_threads
from subbit.core.randomness import derive_key
from subbit.data import Data, Examples, SplitSummary, load_dataset, partition, summarise_split
from subbit.data.form import Form, form_of
from subbit.data.needs import Reading
from subbit.models import load_classifier
from subbit.models.language import is_language_source, load_language_model
from subbit.models.load_model import is_small, own_tokenizer
from subbit.models.own_model import build_own
from subbit.models.ties import aligned
from subbit.models.untrained import is_untrained
from subbit.objectives import Objective, find_objective
from subbit.objectives.classes import Classification
from subbit.runtime.rearranged import rearranged


@dataclass(frozen=True)
class Problem:
    module: nn.Module
    train: Data
    parts: tuple[NDArray[np.int64], ...]
    """Indices of each client's training examples. A client may have none."""
    test: Data
    classes: int
    pretrained: bool
    model_name: str
    dataset_name: str
    objective: Objective = field(default_factory=Classification)
    own_tests: tuple[NDArray[np.int64], ...] | None = None
    """Positions of each client's own examples in the test set, where it is known whose they are."""
    nodes: dict[str, int] = field(default_factory=dict)
    """Names of nodes that bring their own data, and the client that each is. Grows as nodes connect."""
    notes: tuple[str, ...] = ()
    """Lines on how the data set's files were read."""
    class_names: tuple[str, ...] | None = None
    """Where the files name the classes."""

    @property
    def clients(self) -> int:
        return len(self.parts)

    @cached_property
    def sizes(self) -> Mapping[int, int]:
        """Number of training examples by client."""
        return {client: len(part) for client, part in enumerate(self.parts)}

    def client_data(self, client: int) -> Data:
        return self._numbered[0].select(self.parts[client])

    def test_batch(self, examples: NDArray[np.int64]) -> Examples:
        return self._numbered[1].batch(examples)

    @cached_property
    def _numbered(self) -> tuple[Data, Data]:
        """The training and the test examples; those in memory are numbered one after the other."""
        if not isinstance(self.train, Examples) or not isinstance(self.test, Examples):
            return self.train, self.test
        train, test = len(self.train), len(self.test)
        rows = torch.arange(train + test)
        return replace(self.train, rows=rows[:train]), replace(self.test, rows=rows[train:])

    @property
    def examples(self) -> Examples:
        """The training examples, where they are in memory."""
        if not isinstance(self.train, Examples):
            raise ConfigError("this needs a data set in memory, not one that is read batch by batch")
        return self.train

    def some(self, count: int) -> Examples:
        """The first examples, to try a module on."""
        return self.train.batch(np.arange(min(count, len(self.train))))

    def some_tests(self, count: int) -> Examples:
        return self.test_batch(np.arange(min(count, len(self.test))))

    @cached_property
    def form(self) -> Form:
        return form_of(self.some(1))

    def own_test(self, client: int) -> NDArray[np.int64]:
        """The client's own test set.

        Where it is known: its own examples. If all its examples have one owner, and that owner has test examples:
        those; otherwise all test examples of the client's classes.
        """
        if self.own_tests is not None:
            return self.own_tests[client]
        held, train, test = self.parts[client], self.train.labels, self.test.labels
        if self.train.owners is not None and len(held):
            owners = {self.train.owners[example] for example in held}
            own = self._tests_of_owners.get(owners.pop()) if len(owners) == 1 else None
            if own is not None:
                return own
        if train is None or test is None or not self.has_classes:
            raise ConfigError(
                "evaluate=personal: give each client's own test set (fine_tune: client_tests=[...]; files: owners in "
                "train and test, and partition=natural)"
            )
        return np.flatnonzero(np.isin(test.numpy(), np.unique(train.numpy()[held])))

    @cached_property
    def _tests_of_owners(self) -> dict[str, NDArray[np.int64]]:
        positions: dict[str, list[int]] = {}
        for position, owner in enumerate(self.test.owners or ()):
            positions.setdefault(owner, []).append(position)
        return {owner: np.array(own, dtype=np.int64) for owner, own in positions.items()}

    def clients_with_data(self) -> list[int]:
        return [client for client, part in enumerate(self.parts) if len(part)]

    def split_summary(self) -> SplitSummary:
        labels = self.train.labels if self.has_classes else None
        summary = summarise_split(labels, list(self.parts), self.classes)
        return replace(summary, notes=self.notes, class_names=self.class_names)

    @property
    def has_classes(self) -> bool:
        return isinstance(self.objective, Classification)


def build_problem(run: RunConfig) -> Problem:
    if GIVEN in (run.model, run.dataset):
        raise ConfigError(
            "the module and the data of this run were given to subbit.fine_tune, no configuration names them: go on "
            "with fine_tune(module, clients, test, ..., folder=FOLDER, resume=True) and the same arguments"
        )
    if run.dataset == OWN:
        raise ConfigError("dataset=own: every node of a deployment on Flower has its own data, see docs/own-nodes.md")
    objective = find_objective(run.objective)
    busy_with(f"reading {run.dataset}")
    dataset = load_dataset(
        run.dataset,
        limit=run.limit,
        test_limit=run.test_limit,
        classes=run.classes,
        seed=run.seed,
        reading=Reading(objective, own_tokenizer(run.model) or "words"),
    )
    parts = partition(
        dataset.train,
        run.clients,
        run.partition,
        alpha=run.alpha,
        classes_per_client=run.classes_per_client,
        class_balance=run.class_balance,
        seed=run.seed,
    )
    form = form_of(dataset.train.batch(np.arange(1)))
    busy_with(f"loading {run.model}")
    # As many threads as the run has: once there are more, they take turns in waiting for work.
    with torch_threads(run.threads):
        module = aligned(load_module(run, dataset.classes, _input_shape(run, form)))
    problem = Problem(
        module=module,
        train=dataset.train,
        parts=tuple(parts),
        test=dataset.test,
        classes=dataset.classes,
        pretrained=is_pretrained(run, module),
        model_name=run.model,
        dataset_name=dataset.name,
        objective=objective,
        notes=dataset.notes,
        class_names=dataset.class_names,
    )
    return rearranged(problem, run)


def _input_shape(run: RunConfig, form: Form) -> tuple[int, ...] | None:
    """Of one example, where inputs are one tensor, or tokens and their attention."""
    inputs = dict(form.inputs)
    if run.objective == "language" and "input_ids" in inputs:
        return inputs["input_ids"].shape
    return form.single.shape if form.is_single else None


def is_pretrained(run: RunConfig, module: nn.Module) -> bool:
    """Weights of somebody's own function may be random without a word of it."""
    return run.pretrained and not is_small(run.model) and not (is_imported(run.model) and is_untrained(module))


def load_module(run: RunConfig, classes: int, input_shape: tuple[int, ...] | None) -> nn.Module:
    """The model that the configuration names, before anything is trained. `input_shape`: where inputs are one
    tensor."""
    key = derive_key(run.seed, "model")
    if is_imported(run.model):
        for option in ("pooling", "revision"):
            if getattr(run, option) != getattr(RunConfig, option):
                raise ConfigError(f"{option}: has no effect on a model of your own, {run.model}; leave it out")
        return build_own(run.model, key, {"classes": classes, "input_shape": input_shape, "seed": run.seed})
    if run.objective == "language" and is_language_source(run.model):
        length = input_shape[0] if input_shape else None
        return load_language_model(run.model, key=key, pretrained=run.pretrained, length=length, revision=run.revision)
    return load_classifier(
        run.model,
        classes,
        key=key,
        pretrained=run.pretrained,
        pooling=run.pooling,
        revision=run.revision,
        input_shape=input_shape,
    )
