"""Options of all methods that train weights themselves: how changes go up and down, how they are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from subbit.aggregate import MEDIAN
from subbit.codecs import Codec, make_codec
from subbit.config.values import require
from subbit.privacy.parameters import PrivateTraining

WeightCodec = Literal["dense", "int8", "eden", "drive", "qsgd", "topk", "ternary"]
BIASED = ("topk", "ternary")


@dataclass(frozen=True)
class WeightParameters(PrivateTraining):
    learning_rate: float = 1e-3
    codec: WeightCodec = "dense"
    """How a change goes up: float32, or one of the compressors."""
    down_codec: WeightCodec = "dense"
    """How the weights go down: whole, in float32; or, through a compressor, as their change since the last broadcast. A
    client that was away is sent what it missed, or the whole."""
    bits: float = 1.0
    """For `eden`: bits per value, fractions allowed."""
    down_bits: float = 1.0
    levels: int | Literal["sqrt"] = 2
    """For `qsgd`: levels above zero, or the square root of a bucket's length."""
    fraction: float = 0.1
    """For `topk` and `ternary`: the share of the values that is sent."""
    down_fraction: float = 0.1
    error_feedback: bool | Literal["auto"] = "auto"
    """The client adds what a lossy codec lost to its next change. `auto`: for biased codecs."""
    aggregator: Literal["mean", "trimmed", "median"] = "mean"
    """How changes become one: by weight of examples, or robustly, coordinate by coordinate, all clients alike."""
    trim: float = 0.1
    """For `trimmed`: the share of clients, rounded up, that is dropped at each end."""
    clip_norm: float | None = None
    """Longer changes are scaled down to this norm, and all clients weigh the same; none: no bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.trim < MEDIAN, f"trim={self.trim}: needs a share from 0 up to, not including, {MEDIAN}")
        require(self.clip_norm is None or self.clip_norm > 0, f"clip_norm={self.clip_norm}: needs a number above 0")
        # Refuses options out of range now, and not in the first round.
        self.make_codec()
        self.make_down_codec()

    def make_codec(self) -> Codec[Any]:
        return self._codec(self.codec, self.bits, self.fraction)

    def make_down_codec(self) -> Codec[Any]:
        return self._codec(self.down_codec, self.down_bits, self.down_fraction).contractive()

    def _codec(self, name: WeightCodec, bits: float, fraction: float) -> Codec[Any]:
        options: dict[str, dict[str, Any]] = {
            "eden": {"bits": bits},
            "qsgd": {"levels": self.levels},
            "topk": {"fraction": fraction},
            "ternary": {"fraction": fraction},
        }
        return make_codec(name, **options.get(name, {}))

    @property
    def remembers_losses(self) -> bool:
        return self.codec in BIASED if self.error_feedback == "auto" else self.error_feedback
