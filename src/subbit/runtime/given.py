"""What was given to `subbit.fine_tune`, as a problem; and its fingerprints, since no configuration names it and a
resumed run needs the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.config.schema import GIVEN
from subbit.core.errors import DataError, SubbitError
from subbit.data import Data, Examples
from subbit.data.form import different
from subbit.data.own_data import as_data, form_of_data, join_data
from subbit.data.stored import Collate, StoredData
from subbit.models.untrained import is_untrained
from subbit.objectives import Objective, logits_of
from subbit.runtime.problem import Problem

SOME = 16
WIDTH = 13  # Of the names in split.txt.


@dataclass(frozen=True)
class Given:
    """How data that users give are read."""

    objective: Objective
    collate: Collate | None = None
    in_memory: bool | None = None

    def read(self, dataset: Any) -> Data:
        return as_data(dataset, self.objective.prepare, self.collate, self.in_memory)

    def problem(
        self,
        module: nn.Module,
        clients: Sequence[Any],
        test: Any,
        client_tests: Sequence[Any] | None,
        classes: int | None,
        pretrained: bool,
    ) -> Problem:
        if (test is None) == (client_tests is None):
            raise DataError("give either test, one data set for all, or client_tests, one for each client")
        data = [self.read(dataset) for dataset in clients]
        tests = [self.read(dataset) for dataset in ([test] if client_tests is None else client_tests)]
        if client_tests is not None and len(tests) != len(data):
            raise DataError(f"found {len(tests)} client_tests for {len(data)} clients; need one for each")
        if not any(map(len, data)) or not any(map(len, tests)):
            raise DataError("no client has any data, or the test set is empty")
        train, held_out = join_data(data, "clients"), join_data(tests, "client_tests")
        found, needed = form_of_data(held_out), form_of_data(train)
        if self.collate is not None:
            found, needed = found.without_sizes(), needed.without_sizes()
        if different((found, needed)):
            what = f"inputs {found}" if str(found) != str(needed) else f"labels {found.labels}"
            held = needed if str(found) != str(needed) else needed.labels
            raise DataError(f"test: found {what}, but the clients hold {held}; one is needed")
        classes = self._classes(module, train, held_out, classes)
        return Problem(
            module=module,
            train=_checked(train, self.objective, classes),
            parts=_consecutive(data),
            test=_checked(held_out, self.objective, classes),
            classes=classes,
            pretrained=pretrained and not is_untrained(module),
            model_name=type(module).__name__,
            dataset_name=GIVEN,
            objective=self.objective,
            own_tests=None if client_tests is None else _consecutive(tests),
        )

    def _classes(self, module: nn.Module, train: Data, test: Data, declared: int | None) -> int:
        """As declared; else as the labels tell or, where they are read later, the number of the module's outputs."""
        read = [data.labels for data in (train, test) if isinstance(data, Examples)]
        if len(read) < 2 and declared is None and self.objective.labels_are_classes:
            declared = _count_outputs(self.objective, module, train.batch(np.arange(min(2, len(train)))))
        found = max((self.objective.classes(labels) for labels in read), default=1)
        if declared is not None and found > declared:
            raise DataError(f"found the label {found - 1}; there are {declared} classes, from 0 to classes - 1")
        return declared or found


@dataclass(frozen=True)
class WithinClasses:
    """Gives labels their form. What is read later may hold a class that nothing so far has shown."""

    objective: Objective
    classes: int

    def __call__(self, batch: Examples) -> Examples:
        batch = self.objective.prepare(batch)
        found = self.objective.classes(batch.labels)
        if found > self.classes:
            raise DataError(f"found the label {found - 1}; there are {self.classes} classes, from 0 to classes - 1")
        return batch


def _checked(data: Data, objective: Objective, classes: int) -> Data:
    if not isinstance(data, StoredData) or not objective.labels_are_classes:
        return data
    return data.checked_by(WithinClasses(objective, classes))


def _count_outputs(objective: Objective, module: nn.Module, batch: Examples) -> int | None:
    mode = module.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            shape = logits_of(objective.outputs(module.eval(), batch)).shape
    except SubbitError:
        raise
    except Exception:  # Trying the module later says why.
        return None
    finally:
        module.train(mode)
    return int(shape[1]) if len(shape) > 1 else None


def _consecutive(data: Sequence[Data]) -> tuple[NDArray[np.int64], ...]:
    ends = np.cumsum([len(part) for part in data])
    return tuple(np.arange(end - len(part), end, dtype=np.int64) for part, end in zip(data, ends, strict=True))


def fingerprints(problem: Problem) -> dict[str, str]:
    state = {name: value for name, value in problem.module.state_dict().items() if isinstance(value, Tensor)}
    return {
        "module": _digest([*state], state.values()),
        "data": _of_data(problem.train),
        "test": _of_data(problem.test),
    }


def as_lines(found: dict[str, str]) -> str:
    return "\n".join(f"{name:<{WIDTH}}{digest}" for name, digest in found.items())


def differing(recorded: str, split: str, found: dict[str, str]) -> list[str]:
    """What differs from the text recorded at the start of the run. Runs of earlier versions recorded only the split."""
    if recorded == split:
        return []
    if not recorded.startswith(f"{split}\n"):
        return ["the split"]
    lines = recorded.removeprefix(f"{split}\n").splitlines()
    return [f"the {name}" for name, digest in found.items() if as_lines({name: digest}) not in lines]


def _of_data(data: Data) -> str:
    """Of a data set that is read batch by batch: its length, and a few examples from its beginning to its end."""
    if isinstance(data, Examples):
        return _digest([*data.tensors(), *(data.owners or ())], [*data.tensors().values(), data.labels])
    some = data.batch(np.unique(np.linspace(0, len(data) - 1, SOME).astype(np.int64)))
    return _digest([str(len(data)), *some.tensors()], [*some.tensors().values(), some.labels])


def _digest(names: list[str], tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=16)
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
