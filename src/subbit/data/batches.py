"""Prepare batches: the order of an epoch, conversion of the user's own data sets, and preprocessing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import numpy_generator
from subbit.data.examples import Examples, as_inputs, as_labels

ClientDataset = Examples | tuple[Tensor, Tensor] | TorchDataset[Any]
ClientDatasets = Sequence[ClientDataset]
"""What the Python API accepts: one data set per client."""


def batches(count: int, batch_size: int, key: int) -> Iterator[NDArray[np.int64]]:
    """One epoch over `count` examples, in an order derived from the key.

    A remainder of one example is dropped if there are other batches: BatchNorm cannot train on a batch of one.
    """
    if batch_size < 1:
        raise ConfigError(f"found batch size {batch_size}; need at least 1")
    order = numpy_generator(key).permutation(count)
    for start in range(0, count, batch_size):
        batch = order[start : start + batch_size]
        if len(batch) > 1 or batch_size == 1 or count == 1:
            yield batch


def as_examples(dataset: ClientDataset) -> Examples:
    """Load into memory: a pair (inputs, labels) or a torch data set of (input, label) items."""
    if isinstance(dataset, Examples):
        return dataset
    if isinstance(dataset, tuple) and len(dataset) == 2:
        inputs, labels = (as_array(part, "a pair (inputs, labels)") for part in dataset)
        return Examples(as_inputs(inputs, "inputs"), torch.from_numpy(as_labels(labels, "labels")))
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"found {type(dataset).__name__}; need Examples, a pair (inputs, labels) or a torch data set "
            "with __len__ and __getitem__"
        )
    return _read_items(dataset)


def _read_items(dataset: Any) -> Examples:
    count = len(dataset)
    if not count:
        # A client without data is valid. The shape of its inputs is never used.
        return Examples(torch.empty((0, 0)), torch.empty(0, dtype=torch.int64))
    inputs: list[NDArray[Any]] = []
    labels: list[int] = []
    for number in range(count):
        item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"item {number}: found {type(item).__name__}; need a pair (input, label)")
        inputs.append(as_array(item[0], f"item {number}"))
        label = as_array(item[1], f"item {number}, label")
        if label.size != 1 or label.dtype.kind not in "iu":
            raise DataError(f"item {number}: found label {item[1]!r}; need one integer")
        labels.append(int(label.reshape(())))
        if inputs[number].shape != inputs[0].shape or inputs[number].dtype != inputs[0].dtype:
            raise DataError(
                f"item {number}: found {inputs[number].dtype} {list(inputs[number].shape)} after {inputs[0].dtype} "
                f"{list(inputs[0].shape)}; need inputs of one shape and type"
            )
    return Examples(as_inputs(np.stack(inputs), "inputs"), torch.from_numpy(as_labels(np.array(labels), "labels")))


def as_array(value: Any, where: str) -> NDArray[Any]:
    if isinstance(value, Tensor):
        # numpy has no bfloat16, and every floating type is converted to float32 anyway.
        tensor = value.detach().cpu()
        array: NDArray[Any] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        return array
    if isinstance(value, np.ndarray | np.generic | int) and not isinstance(value, bool):
        return np.asarray(value)
    raise DataError(
        f"{where}: found {type(value).__name__}; need tensors, arrays or integers (transform pictures to tensors first)"
    )


class Preprocess(nn.Module):
    """Convert uint8 images to network inputs: resize, repeat grey over the channels, (x / 255 - mean) / std.

    Features and tokens are not changed, except that floats of any width become float32.

        image_size  side of the square that the network takes; None keeps the size
        channels    number of channels that the network takes; None keeps them
        mean, std   one number, or one per channel
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        image_size: int | None = None,
        channels: int | None = None,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
    ) -> None:
        super().__init__()
        if (image_size is not None and image_size < 1) or (channels is not None and channels < 1):
            raise ConfigError(f"found image size {image_size} and {channels} channels; need at least 1")
        self.image_size = image_size
        self.channels = channels
        # Not part of the state: checkpoints hold only what training changes.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(-1, 1, 1), persistent=False)
        if not bool((self.std > 0).all()):
            raise ConfigError(f"found std {std}; need numbers above 0")
        self._shifts = bool((self.mean != 0).any()) or bool((self.std != 1).any())

    def by_value(self, inputs: Tensor) -> bool:
        """Whether the result, of images, depends on each value by itself and is new memory."""
        if inputs.dtype != torch.uint8 or inputs.dim() != 4:
            return False
        resized = self.image_size is not None and inputs.shape[2:] != (self.image_size, self.image_size)
        return not resized and self.channels in (None, inputs.shape[1])

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.dtype != torch.uint8:
            return inputs.float() if inputs.is_floating_point() else inputs
        if inputs.dim() != 4:
            raise DataError(f"found uint8 {list(inputs.shape)}; need images [n, channels, height, width]")
        images = inputs.float().div_(255)
        size = self.image_size
        if size is not None and images.shape[2:] != (size, size):
            shrinks = size < max(images.shape[2:])
            images = nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=shrinks)
        found, needed = images.shape[1], self.channels or images.shape[1]
        if found not in (1, needed):
            raise DataError(f"found images of {found} channels; need {needed}, or 1 to repeat")
        for numbers in (self.mean, self.std):
            if len(numbers) not in (1, needed):
                raise DataError(
                    f"found mean and std of {len(numbers)} channels for images of {needed}; need 1 or {needed}"
                )
        if found != needed:
            images = images.expand(-1, needed, -1, -1)
        if not self._shifts:
            return images
        # In place where the memory is ours: repeated channels share it.
        return (images.sub_(self.mean) if found == needed else images - self.mean).div_(self.std)
