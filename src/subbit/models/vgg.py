"""VGG16 as published (Simonyan and Zisserman, ICLR 2015), and a narrow one that a CPU can train.

Thirteen 3x3 convolutions with ReLU in five groups, each pooled by two, then two dense layers and the head; no
normalisation. `vgg16` has the dense layers of the ImageNet version, 512 * 7 * 7 -> 4096 -> 4096, for any image size:
the output of the last pooling is averaged or repeated to 7x7. With 10 classes these are 134,301,514 parameters, 537.21
MB in float32, which is the size that FedMask (Li et al., SenSys 2021) reports for CIFAR-10.

Dropout is left out: a mask over weights is already a random choice of connections, and methods should be comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from subbit.models.small import SmallNetwork

GROUPS = (2, 2, 3, 3, 3)
SMALLEST_IMAGE = 2 ** len(GROUPS)


class Vgg(SmallNetwork):
    """Groups of convolutions of these widths; `side` is the size of the feature map that the dense layers see."""

    def __init__(
        self,
        input_shape: Sequence[int],
        classes: int,
        widths: Sequence[int] = (64, 128, 256, 512, 512),
        side: int = 7,
        dense: Sequence[int] = (4096, 4096),
    ) -> None:
        super().__init__()
        # Five poolings leave nothing of an MNIST digit, so smaller images are enlarged first.
        self.image_size = SMALLEST_IMAGE if min(input_shape[1:]) < SMALLEST_IMAGE else None
        outputs = [width for width, length in zip(widths, GROUPS, strict=True) for _ in range(length)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1)
            for before, after in zip([input_shape[0], *outputs[:-1]], outputs, strict=True)
        )
        sizes = [widths[-1] * side * side, *dense]
        self.dense = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(sizes))
        self.head = nn.Linear(sizes[-1], classes)
        self.side = side
        for layer in [*self.convolutions, *self.dense]:
            # The default of torch shrinks the signal by about sqrt(6) per layer: nothing is left after thirteen.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def hidden(self, inputs: Tensor) -> Tensor:
        hidden, layers = inputs, iter(self.convolutions)
        for length in GROUPS:
            for _ in range(length):
                hidden = functional.relu(next(layers)(hidden))
            hidden = functional.max_pool2d(hidden, 2)
        hidden = functional.adaptive_avg_pool2d(hidden, self.side).flatten(1)
        for layer in self.dense:
            hidden = functional.relu(layer(hidden))
        return hidden


class VggSmall(Vgg):
    """A quarter of the widths and small dense layers: the depth of VGG16 with under a million parameters."""

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__(input_shape, classes, (16, 32, 64, 128, 128), side=1, dense=(128, 128))
