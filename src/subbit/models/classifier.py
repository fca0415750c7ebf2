"""Classifier: a backbone, one feature vector per input, and a linear head."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from subbit.core.errors import ModelError

POOLINGS = ("cls", "mean", "pooled", "last")
Kind = Literal["image", "video", "text"]


class Classifier(nn.Module):
    """`head(norm(pooling(backbone(preprocess(inputs)))))`, usually without a norm.

    The backbone is a model of transformers for one kind of input, or any module that returns features [n, width] as a
    tensor (`pooling` then has no effect). Pooling gives the feature vector of an input:

        cls      the first token of the last layer
        mean     images: the mean of all tokens but the first, or of all positions of a convolutional network;
                 videos: the mean of all tokens; texts: the mean of all tokens that are not padding
        pooled   the backbone's own pooled output (CLIP: the class token after a last norm)
        last     texts: the last token that is not padding, for models that continue texts

    If `padding` is set, the backbone of a text does not attend to tokens with that number.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Linear,
        pooling: str = "cls",
        preprocess: nn.Module | None = None,
        *,
        kind: Kind = "image",
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ModelError(f"pooling={pooling!r}: there are {', '.join(POOLINGS)}")
        if kind == "video" and pooling != "mean":
            raise ModelError(f"pooling={pooling!r}: {type(backbone).__name__} has no class token: use pooling='mean'")
        self.preprocess = preprocess
        self.backbone = backbone
        self.norm = norm
        self.head = head
        self.pooling = pooling
        self.kind = kind
        self.padding: int | None = None

    def features(self, inputs: Tensor) -> Tensor:
        attended = self._attended(inputs) if self.kind == "text" else None
        if attended is not None:
            output = self.backbone(input_ids=inputs.long(), attention_mask=attended.long())
        else:
            output = self.backbone(_as_of(self.backbone, self._prepared(inputs)))
        features = output if isinstance(output, Tensor) else self._pool(output, attended)
        return features if self.norm is None else self.norm(features)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(_as_of(self.head, self.features(inputs)))
        return logits

    def arguments(self, inputs: Tensor) -> dict[str, Tensor]:
        """What a model of transformers is called with for these inputs."""
        if self.kind == "text":
            return {"input_ids": inputs.long(), "attention_mask": self._attended(inputs).long()}
        return {"pixel_values": self._prepared(inputs)}

    def _prepared(self, inputs: Tensor) -> Tensor:
        if self.preprocess is None:
            return inputs
        if self.kind == "video":  # Each frame is an image.
            frames: Tensor = self.preprocess(inputs.flatten(0, 1))
            return frames.view(*inputs.shape[:2], *frames.shape[1:])
        images: Tensor = self.preprocess(inputs)
        return images

    def _attended(self, inputs: Tensor) -> Tensor:
        if inputs.is_floating_point() or inputs.dim() != 2:
            raise ModelError(f"found {inputs.dtype} {list(inputs.shape)}; need texts as token numbers [n, length]")
        attended = torch.ones_like(inputs, dtype=torch.bool) if self.padding is None else inputs != self.padding
        attended[:, 0] = True  # For an empty text, attention over no tokens would give NaN.
        return attended

    def _pool(self, output: Any, attended: Tensor | None) -> Tensor:
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
        if self.pooling == "cls":
            return hidden[:, 0]
        if self.pooling == "last":
            if attended is None:
                raise ModelError(f"pooling='last': {type(self.backbone).__name__} takes no texts")
            places = torch.arange(attended.shape[1]).where(attended, 0).amax(1)
            return hidden[torch.arange(len(hidden)), places]
        if attended is not None:
            weights = attended[:, :, None].to(hidden.dtype)
            return (hidden * weights).sum(1) / weights.sum(1)
        return hidden.mean(1) if self.kind == "video" else hidden[:, 1:].mean(1)


def _as_of(layer: nn.Module, values: Tensor) -> Tensor:
    """In the precision of the layer's parameters: a backbone may have a lower one than its head."""
    first = next(layer.parameters(), None)
    return values if first is None or not values.is_floating_point() else values.to(first.dtype)
