"""A backbone, one feature vector per input, a linear head."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from subbit.errors import ModelError

POOLINGS = ("cls", "mean", "pooled")


class Classifier(nn.Module):
    """`head(pooling(backbone(preprocess(inputs))))`.

    The backbone is a vision model of transformers, or any module that returns features [n, width] as a tensor (and then
    `pooling` has no meaning). What becomes the feature vector of an image:

        cls      the first token of the last layer
        mean     the mean of all tokens but the first; of all places where the backbone is a convolutional network
        pooled   the backbone's own pooled output (CLIP: the class token after a last norm)
    """

    def __init__(
        self, backbone: nn.Module, head: nn.Linear, pooling: str = "cls", preprocess: nn.Module | None = None
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ModelError(f"pooling={pooling!r}: there are {', '.join(POOLINGS)}")
        self.preprocess = preprocess
        self.backbone = backbone
        self.head = head
        self.pooling = pooling

    def features(self, inputs: Tensor) -> Tensor:
        images = inputs if self.preprocess is None else self.preprocess(inputs)
        output = self.backbone(images)
        return output if isinstance(output, Tensor) else self._pool(output)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(inputs))
        return logits

    def _pool(self, output: Any) -> Tensor:
        if self.pooling == "pooled":
            pooled: Tensor | None = getattr(output, "pooler_output", None)
            if pooled is None:
                raise ModelError(f"{type(self.backbone).__name__} has no pooled output: use pooling='cls' or 'mean'")
            return pooled.flatten(1)
        hidden: Tensor = output.last_hidden_state
        if hidden.dim() == 4:  # [n, width, height, width of the map]
            if self.pooling == "cls":
                raise ModelError(f"{type(self.backbone).__name__} has no class token: use pooling='mean' or 'pooled'")
            return hidden.mean((2, 3))
        return hidden[:, 0] if self.pooling == "cls" else hidden[:, 1:].mean(1)
