"""What all methods share that train weights themselves: weights down, changes up, a mean on the server.

    down   w
    client w_k = w after local training
    up     w_k - w, through any codec for vectors
    server w <- w + sum_k n_k (w_k - w) / sum_k n_k

Changes may go up compressed (`codec`). A biased codec, such as `topk`, loses the same values in every round; with
`error_feedback` the client adds what one round lost to the next (Stich, Cordonnier, Jaggi, "Sparsified SGD with
memory", NeurIPS 2018). With `batchnorm="average"` the running statistics of BatchNorm layers travel as a second part,
in float32, and are averaged the same way; otherwise they never change.

The weights go down whole, or (`down_codec`) as their change since the last broadcast, compressed. Receivers then hold
a vector that lags behind the server's: its next change is the difference between the two, so that whatever a broadcast
lost is part of the next one (Tang, Yu, Lian, Zhang, Liu, "DoubleSqueeze", ICML 2019). That needs a codec that brings
receivers nearer in every round (`Codec.contractive`), which an unbiased one of few bits does not. Clients train from
what they hold, and their changes count from there.

A client that lies can move a mean as far as it likes. `aggregator` and `clip_norm` bound what one client can do, and
then every client has the same weight, since the number of examples is the client's word too: see
`subbit.aggregate.robust`. And a server that is curious can learn about a client's examples from a change: `privacy`
adds noise to local training, see `subbit.privacy`, in methods that say they are `private`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import TrimmedMean, WeightedMean, clip_to_norm, share_dropped
from subbit.codecs import Shared, make_codec
from subbit.codecs.topk import with_error_feedback
from subbit.data.examples import Examples
from subbit.errors import ConfigError
from subbit.methods.base import Held, ParametersType, Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.honest import FAR, check_variances
from subbit.methods.incremental import IncrementalMethod
from subbit.methods.local import train_locally
from subbit.methods.weight_parameters import WeightParameters
from subbit.models.reparametrisation import Identity
from subbit.privacy.mechanism import GaussianMechanism, PrivateBackward
from subbit.privacy.parameters import PrivateTraining
from subbit.randomness import derive_key


class WeightMethod(IncrementalMethod[ParametersType]):
    """Base of `fedavg` and its kin. `Parameters` extends `WeightParameters`."""

    incremental = False
    networks = ("trained",)
    trains_added_values = True
    primary_network = "trained"
    private: ClassVar[bool] = False
    """True where clients look at their examples in `train_locally` alone, and hand it `self.backward`."""
    parameters: Any

    def __init__(self, parameters: ParametersType, task: Task) -> None:
        super().__init__(parameters, task)
        if isinstance(parameters, WeightParameters):
            self.incremental = self.needs_start = parameters.down_codec != "dense"
        self.mechanism: GaussianMechanism | None = None
        if isinstance(parameters, PrivateTraining) and parameters.privacy != "none":
            if not self.private:
                raise ConfigError(
                    f"privacy={parameters.privacy}: {self.name} is not private; use fedavg, with any codec, or fedpeft"
                )
            self.mechanism = GaussianMechanism(parameters, task)

    # What travels.

    def known_parts(self) -> tuple[Part, ...]:
        """What receivers know after a broadcast, the weights first; all of it is in the state."""
        return (Part("weights", make_codec("dense"), self.size), *self._statistics_part())

    def down_parts(self) -> tuple[Part, ...]:
        weights, *others = self.known_parts()
        if self.incremental:
            weights = Part("change", self.parameters.make_down_codec(), weights.size)
        return (weights, *others)

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

    # What receivers hold, where changes go down: the known parts, the weights as far as they were told.

    def first(self) -> Held:
        others = {part.name: np.zeros(part.size, dtype=np.float32) for part in self._statistics_part()}
        return {"weights": self.task.flat.initial.numpy().copy(), **others}

    def change(self, state: State, held: Held, round_number: int) -> Payloads:
        others = {part.name: state[part.name] for part in self.known_parts()[1:]}
        return {"change": as_float32(np.asarray(state["weights"]) - held["weights"]), **others}

    def follow(self, held: Held, payloads: Payloads, round_number: int) -> Held:
        others = {part.name: payloads[part.name] for part in self.known_parts()[1:]}
        return {"weights": as_float32(held["weights"] + payloads["change"]), **others}

    def snapshot_parts(self) -> tuple[Part, ...]:
        return self.known_parts()

    def snapshot(self, held: Held) -> Payloads:
        return dict(held)

    def restore(self, payloads: Payloads) -> Held:
        return dict(payloads)

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

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        super().examine(view, payloads, examples, client)
        if "statistics" in payloads:
            check_variances(self.task.flat, view["statistics"], payloads["statistics"])

    def farthest(self, part: Part, view: Any) -> float:
        # Variances are squares, so that their bound is one too.
        return super().farthest(part, view) * (FAR if part.name == "statistics" else 1)

    def accumulator(self) -> WeightedMean | TrimmedMean:
        size = sum(part.size for part in self.up_parts())
        if self.parameters.aggregator == "mean":
            return WeightedMean(size)
        return TrimmedMean(size, share_dropped(self.parameters.aggregator, self.parameters.trim))

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
