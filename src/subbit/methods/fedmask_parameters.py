"""Configuration keys of `fedmask`, grouped by topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from subbit.codecs import Codec, Kind
from subbit.codecs.codec import Bits
from subbit.codecs.smallest import Mask
from subbit.core.pieces import choice
from subbit.core.values import require
from subbit.local.optimizers import Sgd
from subbit.local.training import Local
from subbit.maps.masks import select_blocks
from subbit.models.structure import Layer, Structures


@dataclass(frozen=True)
class PersonalMask:
    """What is masked, and over which frozen weights."""

    trains_weights: ClassVar[bool] = False
    weights: Literal["auto", "keep", "signed", "kaiming"] = "auto"
    """The frozen weights: the module's own (`keep`), their signs times sqrt(2 / fan-in), or drawn from N(0,
    2 / fan-in), where fan-in is counted after pruning. `auto`: `keep` if pre-trained, else `kaiming`."""
    output_gate: Literal["real", "masked"] = "real"
    """For LSTMs: masking all four gates costs accuracy."""
    evaluation: Literal["trained", "merged"] = "trained"
    """The client's network: its mask as last trained, or after merging with the aggregate."""

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return select_blocks(blocks, pretrained)


@dataclass(frozen=True)
class Pruning:
    """How a client determines its structure, once."""

    pruned_layers: int = 2
    """How many of the last modules with weights are pruned, including the classifier."""
    keep_rate: float = 0.2
    """Share of the weights kept by pruning."""
    prune: Literal["elements", "rows"] = "elements"
    """What is pruned: single elements, or whole rows (units, filters), which always shrinks the exported network."""
    prune_scope: Literal["layer", "network"] = "layer"
    """Keep the same share of every pruned layer, or the best across all of them."""
    prune_epochs: int = 1
    saliency: Literal["change", "value"] = "change"
    """|w0| times the change of the score, as in the paper's text, or times sigmoid(score), as in its algorithm. The
    latter hardly depends on the data: one epoch changes a sigmoid by little, and weights differ by much."""

    def __post_init__(self) -> None:
        require(self.pruned_layers >= 0, f"pruned_layers={self.pruned_layers}: needs 0 or more")
        require(0 < self.keep_rate <= 1, f"keep_rate={self.keep_rate}: needs a share above 0, at most 1")
        require(self.prune_epochs >= 1, f"prune_epochs={self.prune_epochs}: needs at least 1")
        require(
            self.prune == "elements" or self.prune_scope == "layer",
            "prune=rows keeps a share of each layer's rows: needs prune_scope=layer",
        )

    def structures(self, layers: Sequence[Layer]) -> Structures:
        rows, per_layer = self.prune == "rows", self.prune_scope == "layer"
        return Structures(layers, self.pruned_layers, self.keep_rate, rows, per_layer)


@dataclass(frozen=True)
class MaskedLocal(Local):
    """Local training of scores and of the weights that have no mask."""

    forward: Literal["hard", "soft"] = "hard"
    """Local training uses the mask that is sent, or sigmoid(s), which is thresholded afterwards."""
    score: float = 1.0
    """A turn starts from +score for ones and -score for zeros."""
    lasso: float = 2e-4
    """Strength of the group lasso over rows and columns."""
    lasso_scaled: bool = False
    """Multiply each group's norm by the square root of its size, as in the original group lasso."""
    real_rate: float = 0.001
    """Learning rate of weights without a mask, as a multiple of that of the masks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.score <= 10, f"score={self.score}: needs a number above 0, at most 10")
        require(self.lasso >= 0, f"lasso={self.lasso}: needs a number from 0 up")
        require(self.real_rate > 0, f"real_rate={self.real_rate}: needs a number above 0")


def carries_bits_alone(codec: Any) -> bool:
    """Exact codecs that need no shared draw or prior."""
    return bool(codec.kind is Kind.BITS and codec.exact and codec.name not in ("context", "near", "range-prior"))


@dataclass(frozen=True)
class OverlapUp:
    codec: Codec[Bits] = choice("codec", Mask(), accepts=carries_bits_alone)
    """`mask` uses the smallest code; `packed` costs exactly one bit per place."""
    communication: Literal["structured", "dense"] = "structured"
    """Upload the bits inside the structure only, or one bit per masked weight."""


@dataclass(frozen=True)
class OverlapAggregate:
    aggregation: Literal["majority", "average"] = "majority"
    """What is broadcast: the majority (at most two bits), or counts. With counts, scores start between -score and
    +score in proportion to the mean of the bits, so that what a minority has learned is kept and can turn a bit after a
    few rounds."""
    real_values: Literal["local", "federated"] = "local"
    """Weights without a mask (output gates, selected biases) stay with the client, or are averaged at 32 bits each."""


@dataclass(frozen=True)
class FedMaskParameters:
    map: PersonalMask = PersonalMask()
    pruning: Pruning = Pruning()
    local: MaskedLocal = MaskedLocal(epochs=5, optimizer=Sgd(), learning_rate=100.0)
    """Plain gradients, so that loss and lasso keep their proportions: Adam moves every score by the same distance, also
    those that only the lasso pulls at. The gradient of a score is tiny: at a rate of 0.1 hardly a bit ever flips."""
    up: OverlapUp = OverlapUp()
    aggregate: OverlapAggregate = OverlapAggregate()
