"""The keys of `gradmask`, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from subbit.config.values import require
from subbit.methods.sensitivity import Calibration
from subbit.methods.weight_parameters import WeightParameters
from subbit.models.sparse_sgd import MomentumPolicy


@dataclass(frozen=True)
class GradMaskParameters(WeightParameters):
    optimizer: Literal["sgd"] = "sgd"
    learning_rate: float = 0.03
    mask: Literal["random", "least-sensitive", "most-sensitive", "lowest-magnitude", "highest-magnitude"] = "random"
    active_fraction: float = 0.3
    """Share of the weights that a client may change."""
    mask_every: Literal["round", "epoch"] = "round"
    mask_scope: Literal["client", "global"] = "client"
    """A mask of each client's own, or one for all."""
    mask_momentum: MomentumPolicy = "buffer"
    """`none`, the paper's, lets a weight that has just been frozen go on moving: see `SparseSGDM`."""
    fisher: Literal["per-sample", "batch"] = "per-sample"
    fisher_labels: Literal["true", "model"] = "true"
    calibration_examples: int | None = 128
    """Examples from which a client measures sensitivities; none: all of its own."""
    calibration_rounds: int = 1
    damping: float = 0.1
    """In calibration of several rounds: factor of the weights that are out already."""
    send: Literal["active", "all"] = "active"
    """`all`: the zeros of frozen places are sent too, as in the paper."""
    weighting: Literal["examples", "clients"] = "examples"
    """Weights of the mean: a client's number of examples, or the same for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.active_fraction
        require(0 < share <= 1, f"active_fraction={share}: needs a share above 0, at most 1")
        self.calibration()
        local = self.mask != "random" and self.mask_every == "epoch"
        require(
            not (local and self.mask_scope == "global"),
            f"mask={self.mask} in every epoch depends on what a client has learned since the broadcast: "
            "use mask_scope=client, or mask_every=round",
        )
        require(
            self.aggregator == "mean" or self.mask_scope == "global",
            f"aggregator={self.aggregator}: most clients leave a place as it is, and so would their median; "
            "use mask_scope=global, where all change the same places",
        )
        require(
            self.codec == "dense" or not self.tells_places,
            f"codec={self.codec}: places of a client's own mask go up with their float32 values; "
            "use mask_scope=global, or a mask that both sides know",
        )
        require(
            not self.remembers_losses,
            f"codec={self.codec}: what it loses belongs to places that may be frozen in the next round; "
            "use error_feedback=false",
        )

    def calibration(self) -> Calibration:
        return Calibration(
            fisher=self.fisher,
            labels=self.fisher_labels,
            examples=self.calibration_examples,
            batch_size=self.batch_size,
            rounds=self.calibration_rounds,
            damping=self.damping,
        )

    @property
    def by_sensitivity(self) -> bool:
        return self.mask.endswith("sensitive")

    @property
    def takes_largest(self) -> bool:
        return self.mask in ("most-sensitive", "highest-magnitude")

    @property
    def asks_everybody(self) -> bool:
        """Clients' sensitivities are averaged into one mask."""
        return self.by_sensitivity and self.mask_scope == "global"

    @property
    def tells_places(self) -> bool:
        """Only the client knows which values it sends."""
        own = self.by_sensitivity and self.mask_scope == "client"
        return own and self.mask_every == "round" and self.send == "active"

    @property
    def sends_everything(self) -> bool:
        return self.send == "all" or (self.mask != "random" and self.mask_every == "epoch")
