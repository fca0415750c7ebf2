"""One base in memory for many tasks: applying a task's mask turns the base into the network of that task.

    model = subbit.load("subbit/vit-micro", "digits.mask")      builds and verifies the base
    letters = model.read("letters.mask")                        verifies and decodes, does not apply
    model.switch(letters)                                       one pass over memory: weights = base * bits

The base is stored once, in addition to the module's current weights. Each loaded task takes one bit per selected weight
and the values of its head.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subbit.codecs import Bits
from subbit.core.errors import ModelError
from subbit.core.jit import njit
from subbit.export.frozen import prepared_weights
from subbit.export.mask_container import read_file
from subbit.export.mask_file import MaskDescription, MaskFile, decode_bits, digest, masked_base
from subbit.models import FlatModel, find_head


@dataclass(frozen=True)
class TaskMask:
    """A mask that was verified against a resident base."""

    description: MaskDescription
    bits: Bits
    values: dict[str, Tensor]


MaskSource = str | Path | bytes | MaskFile


class MaskedModel:
    """A base with the mask of a task applied. Calling it calls the module, in evaluation mode."""

    def __init__(self, module: nn.Module, mask: MaskSource) -> None:
        """The module is not copied; from now on its weights are those of a task."""
        self.module = module
        self.task: TaskMask | None = None
        self._replaced: dict[str, Tensor] = {}
        self._digests: dict[frozenset[str], str] = {}
        first = open_mask(mask)
        self._flat = FlatModel(module, first.description.selection, first.description.batchnorm, even_frozen=True)
        if first.description.preparation is not None:
            self._flat.initial = prepared_weights(first.description.preparation, self._flat)
        self.switch(first)

    def __call__(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            outputs: Tensor = self.module(inputs)
        return outputs

    def read(self, mask: MaskSource) -> TaskMask:
        """Verify and decode a mask for later use; the module is unchanged."""
        file, flat = open_mask(mask), self._flat
        description = file.description
        if (description.template, description.batchnorm) != (flat.template.digest().hex(), flat.batchnorm):
            raise ModelError(
                f"the mask of {description.run!r} is over {description.selection!r} of {description.model} with "
                f"batchnorm={description.batchnorm}: here, other {flat.template.size} values are masked, with "
                f"batchnorm={flat.batchnorm}; load it on a base of its own"
            )
        values = {name: torch.from_numpy(value) for name, value in file.values.items()}
        self._check_values(values)
        found = self._base_digest(frozenset(values))
        if found != description.base:
            raise ModelError(
                f"the mask of {description.run!r} belongs to a base {description.model} of SHA-256 "
                f"{description.base[:16]}, this one has {found[:16]}: a mask means nothing on other weights"
            )
        return TaskMask(description, decode_bits(file, flat.template), values)

    @torch.no_grad()
    def switch(self, mask: MaskSource | TaskMask) -> None:
        """Switch to the network of that task. A mask that does not fit raises and changes nothing."""
        task = mask if isinstance(mask, TaskMask) else self.read(mask)
        flat = self._flat
        for name, value in self._replaced.items():
            self._tensor(name).data = value
        self._replaced = {}
        write_masked(flat.initial.numpy(), task.bits, flat.weights.numpy())
        for name, value in task.values.items():
            if name in flat.template.names:
                self._tensor(name).copy_(value)
            else:
                # Replaces the base's tensor instead of writing to it: the head of another task may have more classes.
                self._replaced[name] = self._tensor(name).data
                self._tensor(name).data = value
        flat.evaluation_mode()
        self.task = task

    def _tensor(self, name: str) -> Tensor:
        owner, _, own_name = name.rpartition(".")
        tensor: Tensor = getattr(self.module.get_submodule(owner), own_name)
        return tensor

    def _base(self) -> dict[str, Tensor]:
        """The original tensors of the base, regardless of the current task."""
        return masked_base(self.module, self._flat, self._flat.initial) | self._replaced

    def _base_digest(self, without: frozenset[str]) -> str:
        """Computed once, since the base does not change."""
        if without not in self._digests:
            self._digests[without] = digest(self._base(), without)
        return self._digests[without]

    def _check_values(self, values: dict[str, Tensor]) -> None:
        base = self._base()
        head = find_head(self.module) + "." if values else ""
        for name, value in values.items():
            if name not in base:
                raise ModelError(f"the mask brings values for {name}, which the base does not have")
            # The number of classes of a head may differ.
            free = int(name.startswith(head) and name not in self._flat.template.names)
            if base[name].dtype != value.dtype or base[name].shape[free:] != value.shape[free:] or not value.dim():
                raise ModelError(
                    f"the mask brings {value.dtype} {list(value.shape)} for {name}, the base has {base[name].dtype} "
                    f"{list(base[name].shape)}"
                )


def load(base: str | nn.Module, mask: MaskSource) -> MaskedModel:
    """The network of a task: a base by name, or as a module (which is modified), with a mask file.

    A named base with random weights, such as `mlp`, is drawn again as in the run.
    """
    file = open_mask(mask)
    recipe = file.description
    if isinstance(base, nn.Module):
        return MaskedModel(base, file)
    if base != recipe.model:
        raise ModelError(f"the mask of {recipe.run!r} belongs to a base {recipe.model!r}, not to {base!r}")
    return MaskedModel(recipe.make(), file)


def open_mask(mask: MaskSource) -> MaskFile:
    if isinstance(mask, MaskFile):
        return mask
    return MaskFile.from_bytes(mask if isinstance(mask, bytes) else read_file(mask))


@njit
def write_masked(base: NDArray[np.float32], bits: Bits, weights: NDArray[np.float32]) -> None:
    """weights = base * bits in one pass. A product, so that zeros have the same sign as in training."""
    for place in range(base.size):
        weights[place] = base[place] * np.float32((bits[place >> 3] >> np.uint8(place & 7)) & np.uint8(1))
