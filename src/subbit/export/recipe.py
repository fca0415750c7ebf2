"""How to rebuild the network of a run: a name, a key and a few numbers, from an untrusted file."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from torch import Tensor, nn

from subbit.core.errors import FrameError, ModelError, SubbitError
from subbit.core.imported import is_imported
from subbit.core.randomness import derive_key
from subbit.core.values import build, require
from subbit.models import load_classifier
from subbit.runtime.workplace import Workplace

# Limits on what an untrusted file can make us allocate. For larger networks the base must be given as a module.
MOST_CLASSES, MOST_INPUTS = 1 << 16, 1 << 18

Described = TypeVar("Described")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    model: str
    model_key: int
    classes: int
    input_shape: str
    """Shape of one input, e.g. 1x28x28."""
    pretrained: bool
    pooling: str
    revision: str = "main"

    def __post_init__(self) -> None:
        require(0 <= self.model_key < 1 << 64, f"model_key={self.model_key}: needs 64 bits")
        require(1 <= self.classes <= MOST_CLASSES, f"classes={self.classes}: needs 1 to {MOST_CLASSES}")
        size = prod(self.shape)
        require(1 <= size <= MOST_INPUTS, f"input_shape={self.input_shape}: needs at most {MOST_INPUTS} values")

    @property
    def shape(self) -> tuple[int, ...]:
        sides = self.input_shape.split("x")
        plausible = len(sides) <= 4 and all(side.isascii() and side.isdigit() and len(side) <= 6 for side in sides)
        require(plausible, f"input_shape={self.input_shape[:40]!r}: needs up to four numbers, e.g. 1x28x28")
        return tuple(int(side) for side in sides)

    def make(self) -> nn.Module:
        """The network as it was before the run."""
        # A file from anywhere must not say which code is run.
        if is_imported(self.model):
            raise ModelError(f"a mask of {self.model}: give the module that it builds, subbit.load(module, mask)")
        return load_classifier(
            self.model,
            self.classes,
            key=self.model_key,
            pretrained=self.pretrained,
            pooling=self.pooling,
            input_shape=self.shape,
            revision=self.revision,
        )


def recipe_values(workplace: Workplace) -> dict[str, Any]:
    """The fields of a `Recipe` for the run's network."""
    run, problem = workplace.settings.run, workplace.problem
    return {
        "model": problem.model_name,
        "model_key": derive_key(run.seed, "model"),
        "classes": problem.classes,
        "input_shape": "x".join(str(side) for side in problem.form.single.shape),
        "pretrained": run.pretrained,
        "pooling": run.pooling,
        "revision": run.revision,
    }


def build_description(schema: type[Described], values: dict[str, Any]) -> Described:
    """The description in a file, with every field checked; raises `FrameError` if invalid."""
    try:
        return build(schema, values)
    except (SubbitError, TypeError, ValueError) as error:
        raise FrameError("value", f"the file's description does not fit: {error}") from None


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers in the module's order, including non-persistent ones (e.g. a pixel mean).

    What is tied appears once, under its first name.
    """
    return dict([*module.named_parameters(), *module.named_buffers()])
