"""How to make the network of a run again: a name, a key and a few numbers, from a file that nobody vouches for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from torch import Tensor, nn

from subbit.core.errors import FrameError, SubbitError
from subbit.core.randomness import derive_key
from subbit.core.values import build, require
from subbit.models import load_classifier
from subbit.runtime.workplace import Workplace

# What is built from a file must not be as large as the file likes. Beyond, a base is given as a module.
MOST_CLASSES, MOST_INPUTS = 1 << 16, 1 << 18

Described = TypeVar("Described")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    model: str
    model_key: int
    classes: int
    input_shape: str
    """Of one input, e.g. 1x28x28."""
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
        """The network as the run was given it."""
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
        "input_shape": "x".join(str(side) for side in problem.train.inputs.shape[1:]),
        "pretrained": run.pretrained,
        "pooling": run.pooling,
        "revision": run.revision,
    }


def build_description(schema: type[Described], values: dict[str, Any]) -> Described:
    """The description in a file, every field checked; what does not fit is the file's fault."""
    try:
        return build(schema, values)
    except (SubbitError, TypeError, ValueError) as error:
        raise FrameError("value", f"the file's description does not fit: {error}") from None


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers, in the order of the module: what is no state (a mean of pixels) counts, too."""
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
