"""The batches of an epoch: taken together, they are what each would be alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subbit.data.batches import Preprocess, batches
from subbit.data.examples import Examples
from subbit.local import epoch
from subbit.local.epoch import ALIGNMENT, epoch_batches, preprocess_of
from subbit.models.flat import FlatModel
from subbit.models.small import Mlp, SmallNetwork
from subbit.models.task import Task
from subbit.objectives.classes import Classification
from subbit.runtime.workplace import Workplace
from tests.problems import digits_problem, settings

COUNT, KEY = 53, 7


def images(shape: tuple[int, ...] = (1, 5, 3)) -> Examples:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (COUNT, *shape), dtype=torch.uint8, generator=generator)
    owners = tuple(f"owner {number}" for number in range(COUNT))
    return Examples(inputs, torch.arange(COUNT), owners, torch.arange(COUNT) + 100)


def task_of(module: nn.Module, **others: Any) -> Task:
    task = Workplace(digits_problem(), settings(method="fedavg")).method("main").task
    return replace(task, flat=FlatModel(module, "all"), cache=None, augmentation=None, **others)


def mlp(preprocess: nn.Module | None = None, kind: type[Mlp] = Mlp) -> Mlp:
    module = kind((15, 4, 3))
    module.preprocess = preprocess or Preprocess(mean=0.5, std=0.5)
    return module


def drawn(task: Task, data: Examples, size: int, early: bool = True) -> list[Examples]:
    return list(epoch_batches(task, data, batches(COUNT, size, KEY), lambda step: step, 0, early))


@pytest.mark.parametrize("size", [1, 4, 16, 60])
@pytest.mark.parametrize("together", [1, 2000, 1 << 20])
def test_batches_taken_together_have_the_values_of_each_alone(
    size: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch, "TOGETHER", together)
    module, data = mlp(), images()
    found = drawn(task_of(module), data, size)
    expected = [data.select(chosen) for chosen in batches(COUNT, size, KEY)]
    assert len(found) == len(expected)
    for ours, alone in zip(found, expected, strict=True):
        assert torch.equal(ours.tensor, module.preprocess(alone.tensor))  # type: ignore[misc]
        assert ours.tensor.data_ptr() % ALIGNMENT == 0
        assert torch.equal(ours.labels, alone.labels)
        assert ours.owners == alone.owners
        assert ours.rows is not None
        assert alone.rows is not None
        assert torch.equal(ours.rows, alone.rows)
        assert torch.equal(module(ours.tensor), module(alone.tensor))


def test_inputs_that_are_named_and_floats_are_taken_together() -> None:
    data = images()
    named = replace(data, inputs={"pixels": data.tensor.float(), "more": torch.arange(COUNT)[:, None]})
    for ours, chosen in zip(drawn(task_of(mlp()), named, 4), batches(COUNT, 4, KEY), strict=True):
        assert all(torch.equal(ours.tensors()[name], named.tensors()[name][chosen]) for name in ("pixels", "more"))


class Brightness(Mlp):
    """Looks at the inputs a second time."""

    def features(self, inputs: Tensor) -> Tensor:
        return super().features(inputs) + inputs.float().mean()


class Twice(Preprocess):
    pass


class LooksAtInputs(Classification):
    """As that of a plugin: its module is this one, not one of subbit's."""


def test_where_something_else_may_see_the_inputs_they_stay_as_they_are() -> None:
    data, usual = images(), mlp()
    assert preprocess_of(task_of(usual), data) is usual.preprocess
    assert drawn(task_of(usual), data, 4, early=False)[0].tensor.dtype == torch.uint8
    watched = mlp()
    watched.register_forward_pre_hook(lambda *_: None)
    for module in (watched, mlp(kind=Brightness), mlp(Twice()), nn.Sequential(nn.Flatten(), nn.Linear(15, 3))):
        assert preprocess_of(task_of(module), data) is None
    for others in ({"objective": LooksAtInputs()}, {"precision": torch.bfloat16}):
        assert preprocess_of(task_of(usual, **others), data) is None


@pytest.mark.parametrize("preprocess", [Preprocess(image_size=6), Preprocess(channels=3)], ids=["resized", "repeated"])
def test_images_that_are_resized_or_repeated_are_left_to_the_network(preprocess: Preprocess) -> None:
    module: SmallNetwork = mlp(preprocess)
    assert preprocess_of(task_of(module), images()) is None
    assert preprocess_of(task_of(mlp()), replace(images(), inputs=images().tensor.float())) is None


def test_augmented_batches_have_the_key_of_their_step() -> None:
    keys: list[int] = []

    def note(batch: Examples, key: int) -> Examples:
        keys.append(key)
        return batch

    task = replace(task_of(mlp()), augmentation=note)  # type: ignore[arg-type]
    found = list(epoch_batches(task, images(), batches(COUNT, 10, KEY), lambda step: 1000 + step, 5, True))
    assert keys == [1005, 1006, 1007, 1008, 1009, 1010]
    assert all(batch.tensor.dtype == torch.uint8 for batch in found)
