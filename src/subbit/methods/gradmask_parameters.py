"""Configuration keys of `gradmask` and their valid combinations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from subbit.aggregate.aggregators import Mean
from subbit.codecs.dense import Dense
from subbit.core.pieces import choice
from subbit.core.values import require
from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorUp
from subbit.local.optimizers import Sgd
from subbit.local.training import Local
from subbit.methods.gradmask_masks import GradientMask, RandomMask
from subbit.models.sparse_sgd import MomentumPolicy


@dataclass(frozen=True)
class Masking:
    """Which weights a client may change, and which of them it uploads."""

    mask: GradientMask = choice("gradient-mask", RandomMask())
    active_fraction: float = 0.3
    """Share of the weights that a client may change."""
    mask_every: Literal["round", "epoch"] = "round"
    mask_scope: Literal["client", "global"] = "client"
    """One mask per client, or one for all."""
    mask_momentum: MomentumPolicy = "buffer"
    """`none`, as in the paper, lets a newly frozen weight keep moving, see `SparseSGDM`."""
    send: Literal["active", "all"] = "active"
    """`all` also sends the zeros of frozen places, as in the paper."""

    def __post_init__(self) -> None:
        share = self.active_fraction
        require(0 < share <= 1, f"active_fraction={share}: needs a share above 0, at most 1")
        require(
            not (self._follows_training and self.mask_scope == "global"),
            f"mask={self.mask.name} in every epoch depends on what a client has learned since the broadcast: "
            "use mask_scope=client, or mask_every=round",
        )

    @property
    def _follows_training(self) -> bool:
        return self.mask.follows != "key" and self.mask_every == "epoch"

    @property
    def tells_places(self) -> bool:
        """Whether only the client knows which places it sends."""
        own = self.mask.follows == "examples" and self.mask_scope == "client"
        return own and self.mask_every == "round" and self.send == "active"

    @property
    def sends_everything(self) -> bool:
        return self.send == "all" or self._follows_training


def is_sgd(optimizer: Any) -> bool:
    return optimizer is Sgd


@dataclass(frozen=True)
class MomentumSgd(Sgd):
    """SGD without Nesterov momentum, which `SparseSGDM` does not implement."""

    nesterov: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class SparseLocal(Local):
    optimizer: MomentumSgd = choice("optimizer", MomentumSgd(), accepts=is_sgd)


@dataclass(frozen=True)
class SparseUp(VectorUp):
    whole: bool = field(default=False, repr=False)
    """Not an option here: a frozen place has no value of its own to send."""


@dataclass(frozen=True)
class GradMaskParameters:
    mask: Masking = Masking()
    local: SparseLocal = SparseLocal(learning_rate=0.03)
    up: SparseUp = SparseUp()
    down: VectorDown = VectorDown()
    aggregate: VectorAggregate = VectorAggregate()

    def __post_init__(self) -> None:
        aggregator, codec = self.aggregate.aggregator, self.up.codec
        require(
            isinstance(aggregator, Mean) or self.mask.mask_scope == "global",
            f"aggregator={aggregator.name}: most clients leave a place as it is, and so would their median; "
            "use mask_scope=global, where all change the same places",
        )
        require(
            codec == Dense() or not self.mask.tells_places,
            f"codec={codec.name}: places of a client's own mask go up with their float32 values; "
            "use mask_scope=global, or a mask that both sides know",
        )
        require(
            not self.up.feeds_back,
            f"codec={codec.name}: what it loses belongs to places that may be frozen in the next round; "
            "use error_feedback=false",
        )
