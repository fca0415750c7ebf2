"""Built-in small networks. The last linear layer of each is called `head`.

`Conv4`, `Conv6` and `Conv10` are those of FedPM (Isik et al., ICLR 2023): pairs of 3x3 convolutions, no normalisation,
each pair pooled by two, then dense layers of 256 and 256 units. With 28x28 grey images Conv4 has 1,933,258 parameters.
`mlp` on 784 inputs is the 784-300-100-10 network of the lottery ticket papers, 266,610 parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.core.errors import ModelError


class SmallNetwork(nn.Module):
    """Features of an input and a linear head. `preprocess`, if given, turns uint8 images into floats."""

    head: nn.Linear
    image_size: int | None = None
    """Side to which images are resized before they reach the network; None keeps their size."""

    def __init__(self) -> None:
        super().__init__()
        self.preprocess: nn.Module | None = None

    def hidden(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def features(self, inputs: Tensor) -> Tensor:
        # Floats need none of it, and a call that returns them as they are would be one in every step.
        if inputs.dtype != torch.float32 and self.preprocess is not None:
            inputs = self.preprocess(inputs)
        return self.hidden(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(inputs))
        return logits


class Mlp(SmallNetwork):
    """Dense layers with ReLU between them: sizes = (inputs, hidden..., classes)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        if len(sizes) < 2:
            raise ModelError(f"sizes={tuple(sizes)}: needs at least the number of inputs and of classes")
        self.layers = nn.ModuleList(nn.Linear(sizes[place], sizes[place + 1]) for place in range(len(sizes) - 2))
        self.head = nn.Linear(sizes[-2], sizes[-1])

    def hidden(self, inputs: Tensor) -> Tensor:
        hidden = inputs.flatten(1)
        for layer in self.layers:
            hidden = functional.relu(layer(hidden))
        return hidden


class ConvPairs(SmallNetwork):
    """Pairs of 3x3 convolutions of these widths, each pair max-pooled by two, then two dense layers."""

    def __init__(self, widths: Sequence[int], input_shape: Sequence[int], classes: int, hidden: int = 256) -> None:
        super().__init__()
        channels, height, width = input_shape
        shrink = 2 ** len(widths)
        if min(height, width) < shrink:
            raise ModelError(
                f"images of {height}x{width}: {len(widths)} poolings by two need at least {shrink}x{shrink}"
            )
        steps = list(zip([channels, *widths[:-1]], widths, strict=True))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before if first else after, after, 3, padding=1)
            for before, after in steps
            for first in (True, False)
        )
        self.dense = nn.ModuleList(
            [nn.Linear(widths[-1] * (height // shrink) * (width // shrink), hidden), nn.Linear(hidden, hidden)]
        )
        self.head = nn.Linear(hidden, classes)

    def hidden(self, inputs: Tensor) -> Tensor:
        hidden = inputs
        for number, convolution in enumerate(self.convolutions):
            hidden = functional.relu(convolution(hidden))
            if number % 2 == 1:
                hidden = functional.max_pool2d(hidden, 2)
        hidden = hidden.flatten(1)
        for layer in self.dense:
            hidden = functional.relu(layer(hidden))
        return hidden


class Conv4(ConvPairs):
    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__((64, 128), input_shape, classes)


class Conv6(ConvPairs):
    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__((64, 128, 256), input_shape, classes)


class Conv10(ConvPairs):
    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__((64, 128, 256, 512, 1024), input_shape, classes)


class Conv2(SmallNetwork):
    """Two 3x3 convolutions, each max-pooled by two, and a linear head: the smallest network of FedMask's table 2."""

    def __init__(self, input_shape: Sequence[int], classes: int, widths: Sequence[int] = (16, 32)) -> None:
        super().__init__()
        channels, height, width = input_shape
        if min(height, width) < 4:
            raise ModelError(f"images of {height}x{width}: two poolings by two need at least 4x4")
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, padding=1)
            for before, after in zip([channels, *widths[:-1]], widths, strict=True)
        )
        self.head = nn.Linear(widths[-1] * (height // 4) * (width // 4), classes)

    def hidden(self, inputs: Tensor) -> Tensor:
        hidden = inputs
        for convolution in self.convolutions:
            hidden = functional.max_pool2d(functional.relu(convolution(hidden)), 2)
        return hidden.flatten(1)


class RowLstm(SmallNetwork):
    """Reads an image row by row; the last state of one LSTM layer is classified."""

    def __init__(self, input_shape: Sequence[int], classes: int, hidden: int = 128) -> None:
        super().__init__()
        channels, _, width = input_shape
        self.lstm = nn.LSTM(channels * width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def hidden(self, inputs: Tensor) -> Tensor:
        states, _ = self.lstm(inputs.transpose(1, 2).flatten(2))
        last: Tensor = states[:, -1]
        return last


class SmallConvNet(SmallNetwork):
    """Blocks of convolution, batch normalisation, ReLU and pooling; features are averaged over the image."""

    def __init__(self, input_shape: Sequence[int], classes: int, widths: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        before = [input_shape[0], *widths[:-1]]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
            for inputs, outputs in zip(before, widths, strict=True)
        )
        self.head = nn.Linear(widths[-1], classes)

    def hidden(self, inputs: Tensor) -> Tensor:
        hidden = inputs
        for block in self.blocks:
            hidden = functional.avg_pool2d(block(hidden), 2, ceil_mode=True)
        return hidden.mean((2, 3))


class CharLstm(SmallNetwork):
    """Classifies (or continues) a text of character numbers [n, length] from the last state of an LSTM.

    `dense` are layers with ReLU between the LSTM and the head.
    """

    def __init__(
        self,
        characters: int,
        classes: int,
        embedding: int = 8,
        hidden: int = 256,
        layers: int = 2,
        dense: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        sizes = [hidden, *dense]
        self.dense = nn.ModuleList(nn.Linear(before, after) for before, after in zip(sizes, dense, strict=False))
        self.head = nn.Linear(sizes[-1], classes)

    def hidden(self, inputs: Tensor) -> Tensor:
        characters = self.embedding.num_embeddings
        # A trace cannot hold what depends on values; the embedding refuses them, too, in fewer words.
        known = torch.compiler.is_exporting() or not inputs.numel()
        if inputs.dtype != torch.int64 or not (known or 0 <= int(inputs.min()) <= inputs.max() < characters):
            raise ModelError(f"inputs of {inputs.dtype}: needs int64 numbers of characters from 0 to {characters - 1}")
        states, _ = self.lstm(self.embedding(inputs))
        hidden: Tensor = states[:, -1]
        for layer in self.dense:
            hidden = functional.relu(layer(hidden))
        return hidden
