"""Random changes of training images: `augment="crop, flip"`, as in paper 003.

Drawn from the key of a step, so that the same step gets the same images whichever process takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from subbit.core.errors import ConfigError, DataError
from subbit.core.randomness import derive_key, torch_generator
from subbit.core.registry import nearest
from subbit.data.examples import Examples

SMALLEST_IMAGE = 4  # Values [n, channels, height, width].


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image with a chance of one half."""
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(mirrored.reshape(-1, *[1] * (images.dim() - 1)), images.flip(-1), images)


def crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image by up to an eighth of its side; the border that comes in is zero."""
    height, width = images.shape[-2:]
    down, right = max(1, height // 8), max(1, width // 8)
    padded = functional.pad(images, (right, right, down, down))
    tops = torch.randint(0, 2 * down + 1, (len(images),), generator=generator).tolist()
    lefts = torch.randint(0, 2 * right + 1, (len(images),), generator=generator).tolist()
    cut = [
        image[..., top : top + height, left : left + width]
        for image, top, left in zip(padded, tops, lefts, strict=True)
    ]
    return torch.stack(cut)


KINDS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {"crop": crop, "flip": flip}


class Augmentation:
    def __init__(self, text: str) -> None:
        self.names = [name.strip() for name in text.split(",")]
        for name in self.names:
            if name not in KINDS:
                raise ConfigError(f"augment={text!r}: {name!r} is unknown: {nearest(name, [*KINDS])}")

    def __call__(self, batch: Examples, key: int) -> Examples:
        """The changed batch. It has no row numbers: what is kept for an example is not valid for its changes."""
        images = batch.tensor
        if images.dim() < SMALLEST_IMAGE or images.dtype == torch.int64:
            raise DataError(f"augment: found inputs {list(images.shape)}; need images [n, channels, height, width]")
        for name in self.names:
            images = KINDS[name](images, torch_generator(derive_key(key, name)))
        return replace(batch, inputs=images, rows=None)
