"""What all methods share that train weights themselves: weights down, changes up, a mean on the server.

    down   w
    client w_k = w after local training
    up     w_k - w, through any codec for vectors
    server w <- w + sum_k n_k (w_k - w) / sum_k n_k

Changes may go up compressed (`codec`). A biased codec, such as `topk`, loses the same values in every round; with
`error_feedback` the client adds what one round lost to the next (Stich, Cordonnier, Jaggi, "Sparsified SGD with
memory", NeurIPS 2018). With `batchnorm="average"` the running statistics of BatchNorm layers travel as a second part,
in float32, and are averaged the same way; otherwise they never change.

A client that lies can move a mean as far as it likes. `aggregator` and `clip_norm` bound what one client can do, and
then every client has the same weight, since the number of examples is the client's word too: see
`subbit.aggregate.robust`. And a server that is curious can learn about a client's examples from a change: `privacy`
adds noise to local training, see `subbit.privacy`, in methods that say they are `private`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import MEDIAN, TrimmedMean, WeightedMean, clip_to_norm
from subbit.codecs import Codec, Shared, make_codec
from subbit.codecs.topk import with_error_feedback
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ConfigError
from subbit.methods.base import Method, ParametersType, Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.local import train_locally
from subbit.models.reparametrisation import Identity
from subbit.privacy.mechanism import GaussianMechanism, PrivateBackward
from subbit.privacy.parameters import PrivateTraining
from subbit.randomness import derive_key

WeightCodec = Literal["dense", "int8", "eden", "drive", "qsgd", "topk", "ternary"]
BIASED = ("topk", "ternary")


@dataclass(frozen=True)
class WeightParameters(PrivateTraining):
    learning_rate: float = 1e-3
    codec: WeightCodec = "dense"
    """How a change goes up: float32, or one of the compressors."""
    bits: float = 1.0
    """For `eden`: bits per value, fractions allowed."""
    levels: int | Literal["sqrt"] = 2
    """For `qsgd`: levels above zero, or the square root of a bucket's length."""
    fraction: float = 0.1
    """For `topk` and `ternary`: the share of the values that is sent."""
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
        self.make_codec()  # Refuses options out of range now, and not in the first round.

    def make_codec(self) -> Codec[Any]:
        options: dict[str, dict[str, Any]] = {
            "eden": {"bits": self.bits},
            "qsgd": {"levels": self.levels},
            "topk": {"fraction": self.fraction},
            "ternary": {"fraction": self.fraction},
        }
        return make_codec(self.codec, **options.get(self.codec, {}))

    @property
    def remembers_losses(self) -> bool:
        return self.codec in BIASED if self.error_feedback == "auto" else self.error_feedback


class WeightMethod(Method[ParametersType]):
    """Base of `fedavg` and its kin. `Parameters` extends `WeightParameters`."""

    networks = ("trained",)
    trains_added_values = True
    primary_network = "trained"
    private: ClassVar[bool] = False
    """True where clients look at their examples in `train_locally` alone, and hand it `self.backward`."""
    parameters: Any

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        super().__init__(parameters, task)
        self.mechanism: GaussianMechanism | None = None
        if isinstance(parameters, PrivateTraining) and parameters.privacy != "none":
            if not self.private:
                raise ConfigError(
                    f"privacy={parameters.privacy}: {self.name} is not private; use fedavg, with any codec, or fedpeft"
                )
            self.mechanism = GaussianMechanism(parameters, task)

    def down_parts(self) -> tuple[Part, ...]:
        return (Part("weights", make_codec("dense"), self.size), *self._statistics_part())

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("weights", self.parameters.make_codec(), self.size), *self._statistics_part())

    def _statistics_part(self) -> tuple[Part, ...]:
        statistics = self.task.flat.statistics
        return () if statistics is None else (Part("statistics", make_codec("dense"), statistics.numel()),)

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        # A rotation or a rounding of its own for every client and round: errors average out.
        return Shared(part.size, key=derive_key(self.task.seed, f"codec-{part.name}", round_number, client))

    def start(self) -> State:
        flat = self.task.flat
        state: State = {"weights": flat.weights.detach().numpy().copy()}
        if flat.statistics is not None:
            state["statistics"] = flat.statistics.numpy().copy()
        return state

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {part.name: state[part.name] for part in self.down_parts()}

    def open(self, payloads: Payloads, round_number: int) -> Payloads:
        return payloads

    # The client half.

    def train(self, view: dict[str, NDArray[np.float32]], data: Examples, turn: Turn) -> Update:
        self.write(view)
        trained = torch.from_numpy(view["weights"].copy())
        loss = self.train_weights(trained, data, turn)
        after = {"weights": trained.numpy()}
        if self.task.flat.statistics is not None:
            after["statistics"] = self.task.flat.statistics.numpy()
        changes = {name: as_float32(after[name] - view[name]) for name in after}
        if self.parameters.remembers_losses:
            changes["weights"] = self._with_what_was_lost(changes["weights"], view, turn)
        if self.mechanism is not None:
            return Update(changes, len(data), {"noise_multiplier": self.mechanism.noise_multiplier(len(data))})
        return Update(changes, len(data), {"loss": loss})

    def train_weights(self, trained: Tensor, data: Examples, turn: Turn) -> float:
        """Train the vector in place, starting from the broadcast; returns the loss. For kin to override."""
        backward = self.backward(data, turn)
        return train_locally(self.task, self.parameters, Identity(self.size), trained, data, turn, backward=backward)

    def backward(self, data: Examples, turn: Turn) -> PrivateBackward | None:
        """A private step instead of the ordinary one, where privacy is asked for."""
        return None if self.mechanism is None else self.mechanism.turn(len(data), turn)

    def _with_what_was_lost(self, change: NDArray[np.float32], view: Any, turn: Turn) -> NDArray[np.float32]:
        part = self.up_parts()[0]
        residual = turn.memory.get("residual", np.zeros_like(change))
        known = self.shared(part, view, turn.round_number, turn.client)
        _, turn.memory["residual"] = with_error_feedback(part.codec, change, residual, known)
        return as_float32(change + residual)

    # The server half.

    def accumulator(self) -> WeightedMean | TrimmedMean:
        size = sum(part.size for part in self.up_parts())
        if self.parameters.aggregator == "mean":
            return WeightedMean(size)
        return TrimmedMean(size, MEDIAN if self.parameters.aggregator == "median" else self.parameters.trim)

    def accumulate(
        self,
        accumulator: WeightedMean | TrimmedMean,
        view: Any,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        changes, bound = [payloads[part.name] for part in self.up_parts()], self.parameters.clip_norm
        if bound is not None:
            # Each part by itself: running statistics move further than weights and would use up a common bound.
            changes, examples = [clip_to_norm(change, bound) for change in changes], min(examples, 1)
        accumulator.add(np.concatenate(changes), examples)

    def step(self, state: State, accumulator: WeightedMean | TrimmedMean, round_number: int) -> State:
        ends = np.cumsum([part.size for part in self.up_parts()])[:-1]
        changes = np.split(accumulator.mean(), ends)
        return {
            part.name: as_float32(np.asarray(state[part.name], dtype=np.float64) + change)
            for part, change in zip(self.up_parts(), changes, strict=True)
        }

    def write_network(self, state: State, network: str, key: int) -> None:
        self.write(state)

    def write(self, vectors: dict[str, Any]) -> None:
        """Put weights, and statistics where they travel, into the flat model."""
        flat = self.task.flat
        with torch.no_grad():
            flat.weights.copy_(torch.from_numpy(vectors["weights"]))
            if flat.statistics is not None:
                flat.statistics.copy_(torch.from_numpy(vectors["statistics"]))
