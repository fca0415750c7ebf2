"""The form of examples: names, types and shapes of inputs and labels, without their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from subbit.core.errors import ConfigError, DataError
from subbit.data.examples import Examples


@dataclass(frozen=True)
class TensorForm:
    dtype: torch.dtype
    shape: tuple[int, ...]
    """Of one example."""

    def zeros(self, count: int) -> Tensor:
        return torch.zeros((count, *self.shape), dtype=self.dtype)

    def __str__(self) -> str:
        sizes = ", ".join("any" if size < 0 else str(size) for size in self.shape)
        return f"{str(self.dtype).removeprefix('torch.')} [{sizes}]"

    def without_sizes(self) -> TensorForm:
        return TensorForm(self.dtype, (-1,) * len(self.shape))


@dataclass(frozen=True)
class Form:
    inputs: tuple[tuple[str, TensorForm], ...]
    """By name, in order; inputs that are one tensor have the name ''."""
    labels: TensorForm

    @property
    def single(self) -> TensorForm:
        """The form of the inputs, where they are one tensor."""
        if len(self.inputs) != 1 or self.inputs[0][0]:
            raise DataError(f"found inputs {self}; this needs inputs that are one tensor")
        return self.inputs[0][1]

    @property
    def is_single(self) -> bool:
        return [name for name, _ in self.inputs] == [""]

    def zeros(self, count: int) -> Examples:
        """So many examples of this form."""
        tensors = {name: form.zeros(count) for name, form in self.inputs}
        return Examples(tensors[""] if self.is_single else tensors, self.labels.zeros(count))

    def __str__(self) -> str:
        return ", ".join(f"{name} {form}".strip() for name, form in self.inputs)

    def without_sizes(self) -> Form:
        """As batches of a collate function have in common, which may pad each batch to a length of its own."""
        return Form(
            tuple((name, form.without_sizes()) for name, form in sorted(self.inputs)), self.labels.without_sizes()
        )


def different(forms: Iterable[Form]) -> str:
    """The forms that are not the same, to be shown; "" if all are."""
    forms = list(forms)
    for shown in (sorted({str(form) for form in forms}), sorted({f"labels {form.labels}" for form in forms})):
        if len(shown) > 1:
            return " and ".join(shown[:3])
    return ""


DTYPES = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}


def read_inputs(text: str) -> tuple[tuple[str, TensorForm], ...]:
    """The form of inputs as in the configuration.

    >>> [str(form) for _, form in read_inputs("uint8 3x32x32")]
    ['uint8 [3, 32, 32]']
    >>> [name for name, _ in read_inputs("input_ids int64 64, attention_mask int64 64")]
    ['input_ids', 'attention_mask']
    """
    found = []
    for part in text.split(","):
        *name, dtype, shape = ["", *part.split()][-3:] if part.split() else ["", "", ""]
        sides = shape.split("x")
        if dtype not in DTYPES or not all(side.isascii() and side.isdigit() and int(side[:9]) > 0 for side in sides):
            raise ConfigError(
                f'input={text!r}: needs a type and the shape of one example, e.g. "uint8 3x32x32", or several with '
                'names, e.g. "input_ids int64 64, attention_mask int64 64"'
            )
        found.append(("".join(name), TensorForm(DTYPES[dtype], tuple(map(int, sides)))))
    names = [name for name, _ in found]
    if len(set(names)) != len(names) or ("" in names and len(names) > 1):
        raise ConfigError(f"input={text!r}: several inputs need names, each its own")
    return tuple(found)


def form_of(examples: Examples) -> Form:
    def form(tensor: Tensor) -> TensorForm:
        return TensorForm(tensor.dtype, tuple(tensor.shape[1:]))

    return Form(tuple((name, form(tensor)) for name, tensor in examples.tensors().items()), form(examples.labels))
