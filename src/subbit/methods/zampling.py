"""Zampling: weights as a random sparse map of a few bits, and only those bits are learnt and sent.

Villani, Natale, Mallmann-Trenn: "Trading-off Accuracy and Communication Cost in Federated Learning", 2024 (paper 002).
m weights, n = floor(m / compression) probabilities p; Q is an m x n matrix with `degree` random values in each row,
which every machine draws from the seed (`subbit.models.projection`).

    down   p: how many of the last K bits were one at each place (paper: float32)
    client s = p; every step draws z ~ Bern(clip(s)) and descends on L(Q z) with dL/ds = Q' dL/dw, gated outside (0, 1);
           s may leave [0, 1] until the turn ends, then p_k = clip(s) and z_k ~ Bern(p_k)
    up     z_k: where it differs from the draw [u < p] that both sides make with the uniforms of z_k (paper: n bits)
    server p = mean of z_k, kept within [clamp, 1 - clamp] (paper: clamp = 0)

A mean of K bits that nobody pushes drifts until it is 0 or 1 (the Wright-Fisher process of genetics): for K = 10 more
than two thirds of all places are there after ten rounds, and with the paper's gate they never leave. Hence the clamp.

Around pre-trained weights w0 the map is w = w0 + spread * Q (z - 1/2) and p starts at 1/2. One client with
`codec=dense`, which sends p itself, is the paper's Local Zampling; `training=continuous`, w = Q p, its Continuous
Model.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import MaskCounts, WeightedMean
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.bits import count_ones, unpack_bits
from subbit.codecs.sampler import Thresholds, sample_bits, thresholds_of_counts, uniforms
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ConfigError
from subbit.methods.base import Method, Part, Payloads, State, Task, Turn, Update
from subbit.methods.honest import check_not_negative
from subbit.methods.local import train_locally
from subbit.methods.masks import MOST_MASKS, MaskMethod, counts_of
from subbit.methods.scores import FULL, as_thresholds
from subbit.methods.stopping import StoppedTraining, Stopping
from subbit.models.projection import Projected, Projection, fan_ins
from subbit.models.quantiles import beta_table
from subbit.models.selection import parameter_kinds
from subbit.randomness import derive_key

CLAMP_UNITS = 1_000_000


@dataclass(frozen=True)
class ZamplingParameters(StoppedTraining):
    learning_rate: float = 0.03
    compression: float = 8.0
    """m / n: weights per trained probability."""
    degree: int = 10
    """Values in each row of Q; at most n."""
    q_variance: float = 6.0
    """Values of a row have the variance q_variance / (degree * fan-in). With uniform p, 6 gives Q p the variance of
    Kaiming's initialisation, and 4 gives it to Q z, which is what trains."""
    around: Literal["auto", "zero", "initial"] = "auto"
    """w = Q z, or w = w0 + spread * Q (z - 1/2); `auto`: `initial` for pre-trained networks, else `zero`."""
    spread: float = 0.1
    """Around initial weights: how far from them, in units of Q."""
    p_init: float | Literal["auto", "uniform", "half"] = "auto"
    """How p starts: uniform, 1/2 everywhere, or Beta(p_init, p_init); `auto`: half around initial weights, else
    uniform."""
    training: Literal["sampled", "continuous"] = "sampled"
    """Train through draws, or through p itself."""
    resample: Literal["batch", "round"] = "batch"
    """New uniforms for every batch, or the same ones for a whole turn."""
    gate: Literal["inward", "strict"] = "inward"
    """Where s has left (0, 1): gradients pass if they lead back, or not at all."""
    clamp: float = 0.01
    """The mean of the bits stays this far from 0 and 1."""
    codec: Literal["flips", "mask", "packed", "dense"] = "flips"
    """What goes up: the places where z_k differs from the draw that both sides know; z_k, coded with p as its prior;
    z_k in n bits; or p_k itself in float32, which is then averaged."""
    down: Literal["auto", "counts", "float32"] = "auto"
    """How p goes down; `auto`: as counts wherever it is a mean of bits."""
    evaluation: Literal["expected", "sampled", "thresholded"] = "expected"
    """Which network's accuracy is the accuracy of the run: of p, of draws, or of [p >= 1/2]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.compression < math.inf, f"compression={self.compression}: needs a number from 1 up")
        require(self.degree >= 1, f"degree={self.degree}: needs at least 1")
        require(0 < self.q_variance < math.inf, f"q_variance={self.q_variance}: needs a number above 0")
        require(0 < self.spread < math.inf, f"spread={self.spread}: needs a number above 0")
        if isinstance(self.p_init, float):
            require(0.01 <= self.p_init <= 100, f"p_init={self.p_init}: needs 0.01 to 100, uniform, half or auto")
        require(0 <= self.clamp < 0.5, f"clamp={self.clamp}: needs 0 up to, not including, 0.5")
        require(
            self.down != "counts" or self.codec != "dense",
            "down=counts: with codec=dense p is a mean of real numbers, not a count; needs down=float32 or auto",
        )


class Zampling(Method[ZamplingParameters]):
    name = "zampling"
    title = "Zampling: weights as a random sparse map of a few learnt bits"
    paper = "002"
    citation = "Villani et al., Trading-off Accuracy and Communication Cost in Federated Learning, 2024"
    sends_up = "flips of few sampled bits, exactly coded (paper: the bits, packed)"
    sends_down = "probabilities of the bits, as entropy-coded counts (paper: float32)"
    Parameters = ZamplingParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"epochs": 100, "batch_size": 128, "patience": 10, "gate": "strict", "clamp": 0.0}
        | {"learning_rate": 0.1, "codec": "packed", "down": "float32", "evaluation": "sampled"},
    }
    networks = ("expected", "sampled", "thresholded")
    trains_added_values = False

    def __init__(self, parameters: ZamplingParameters, task: Task) -> None:
        super().__init__(parameters, task)
        require(
            task.participants <= MOST_MASKS, f"{task.participants} clients a round: at most {MOST_MASKS} bits add up"
        )
        self.places = int(self.size // parameters.compression)
        require(self.places >= 1, f"compression={parameters.compression}: {self.size} weights leave nothing to train")
        degree = min(parameters.degree, self.places)
        if degree < parameters.degree:
            warnings.warn(f"degree={parameters.degree}: Q has {degree} columns, so degree is {degree}", stacklevel=2)
        variances = parameters.q_variance / (degree * fan_ins(task.flat))
        self.around_initial = parameters.around == "initial" or (parameters.around == "auto" and task.pretrained)
        spread = parameters.spread if self.around_initial else 1.0
        if not self.around_initial:
            self._refuse_norms()
        key = derive_key(task.seed, "projection")
        self.projection = Projection(spread * np.sqrt(variances), self.places, degree, key)
        self.base: Tensor | None = None
        if self.around_initial:
            middle = np.empty(self.size, dtype=np.float32)
            self.projection.multiply(np.full(self.places, 0.5, dtype=np.float32), middle)
            self.base = task.flat.initial - torch.from_numpy(middle)
        self.counted = parameters.codec != "dense"
        self.broadcast_name = f"p-{self.projection.fingerprint()}"

    def _refuse_norms(self) -> None:
        kinds = parameter_kinds(self.task.flat.module)
        norms = [name for name in self.task.flat.template.names if kinds[name] == "norms"]
        if norms:
            raise ConfigError(
                f"around=zero: the gains of a normalisation belong near 1, but {norms[0]} would become random around "
                "0; use around=initial or select='all: weights, biases'"
            )

    @staticmethod
    def default_selection(blocks: int, pretrained: bool) -> str:
        return MaskMethod.default_selection(blocks, pretrained) if pretrained else "all: weights, biases"

    # What travels.

    def down_parts(self) -> tuple[Part, ...]:
        as_counts = self.counted and self.parameters.down != "float32"
        return (Part(self.broadcast_name, make_codec("counts" if as_counts else "dense"), self.places),)

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("bits", make_codec(self.parameters.codec), self.places),)

    def shared(self, part: Part, view: Thresholds | None, round_number: int, client: int) -> Shared:
        if view is None:
            return Shared(self.places, limit=self.task.participants)
        drawn = self._reference_key(round_number, client) if self.parameters.codec == "flips" else None
        key = derive_key(self.task.seed, "codec", round_number, client)
        return Shared(self.places, key=key, thresholds=view, uniforms_key=drawn)

    def _reference_key(self, round_number: int, client: int) -> int:
        return derive_key(self.task.seed, "reference-bits", round_number, client)

    def broadcast(self, state: State, round_number: int) -> Payloads:
        (part,) = self.down_parts()
        if part.codec.name == "counts":
            return {part.name: counts_of(state)}
        return {part.name: probabilities(self.thresholds(state))}

    def open(self, payloads: Payloads, round_number: int) -> Thresholds:
        """p as integers, from exactly what was sent: both sides draw the same bits from them."""
        received = payloads[self.broadcast_name]
        if isinstance(received, Counts):
            return self._thresholds_of_counts(received)
        return as_thresholds(received.astype(np.float64) * FULL)

    # The state: counts of ones, or, with codec=dense, p itself.

    def start(self) -> State:
        if self.counted:
            return {"counts": np.zeros(self.places, dtype=np.uint16), "total": 0}
        return {"p": probabilities(self.initial_thresholds())}

    def thresholds(self, state: State) -> Thresholds:
        p = state.get("p")
        if isinstance(p, np.ndarray):
            return as_thresholds(p.astype(np.float64) * FULL)
        return self._thresholds_of_counts(counts_of(state))

    def _thresholds_of_counts(self, counts: Counts) -> Thresholds:
        if counts.total == 0:
            return self.initial_thresholds()
        edge = round(self.parameters.clamp * CLAMP_UNITS)
        table = thresholds_of_counts(counts.total, clamp_numerator=edge, clamp_denominator=CLAMP_UNITS)
        thresholds: Thresholds = table[counts.values]
        return thresholds

    def initial_thresholds(self) -> Thresholds:
        """Known to everybody from the configuration: the first broadcast is an empty count."""
        start = self.parameters.p_init
        if start == "auto":
            start = "half" if self.around_initial else "uniform"
        if start == "half":
            return np.full(self.places, 1 << 31, dtype=np.uint32)
        drawn = uniforms(derive_key(self.task.seed, "initial-p"), 0, self.places)
        return drawn if start == "uniform" else beta_table(float(start))[drawn >> np.uint32(22)]

    def examine(self, view: Thresholds, payloads: Payloads, examples: int, client: int) -> None:
        super().examine(view, payloads, examples, client)
        if not self.counted:
            check_not_negative(payloads["bits"], "a list of probabilities")

    def farthest(self, part: Part, view: Thresholds) -> float:
        return 1.0  # Probabilities.

    def accumulator(self) -> MaskCounts | WeightedMean:
        return MaskCounts(self.places) if self.counted else WeightedMean(self.places)

    def accumulate(
        self, accumulator: Any, view: Thresholds, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        received = payloads["bits"]
        if not self.counted:
            accumulator.add(received, 1.0)
        elif self.parameters.codec == "flips":
            accumulator.add(received ^ sample_bits(view, self._reference_key(round_number, client)))
        else:
            accumulator.add(received)

    def step(self, state: State, accumulator: Any, round_number: int) -> State:
        if self.counted:
            return {"counts": accumulator.counts, "total": accumulator.total}
        return {"p": accumulator.mean().astype(np.float32)}

    # The client half.

    def train(self, view: Thresholds, data: Examples, turn: Turn) -> Update:
        parameters = self.parameters
        scores = torch.from_numpy(probabilities(view))
        before = scores.clone()
        loss, epochs = self._train_scores(scores, data, turn)
        change = scores.clamp(0, 1).double() - before.double()
        edge = int(parameters.clamp * FULL)
        observations = {
            "loss": loss,
            "epochs": epochs,
            "moved": float(change.abs().mean()),
            "fixed": float(np.mean((view <= edge) | (view >= FULL - 1 - edge))),
        }
        if parameters.codec == "dense":
            return Update({"bits": scores.clamp(0, 1).numpy()}, len(data), observations)
        # The old integers plus the change, so that a place that did not move flips nothing.
        trained = as_thresholds(view.astype(np.float64) + np.rint(change.numpy() * FULL))
        bits = sample_bits(trained, self._reference_key(turn.round_number, turn.client))
        if parameters.codec == "flips":
            bits ^= sample_bits(view, self._reference_key(turn.round_number, turn.client))
            observations["flips"] = count_ones(bits)
        return Update({"bits": bits}, len(data), observations)

    def _train_scores(self, scores: Tensor, data: Examples, turn: Turn) -> tuple[float, int]:
        """Train in place: the loss of the last epoch, and how many epochs there were."""
        parameters, seed = self.parameters, self.task.seed
        where = (turn.round_number, turn.client)
        kept_key = derive_key(seed, "training-draw", *where) if parameters.resample == "round" else None
        reparametrisation = Projected(
            self.projection, self.base, training=parameters.training, gate=parameters.gate, key=kept_key
        )
        trained_on, held_out = parameters.split(data, derive_key(seed, "holdout", 0, turn.client))

        def write(epoch: int) -> None:
            reparametrisation.write(scores, self.task.flat.weights, derive_key(seed, "validation", *where, epoch))

        finished = Stopping(parameters, self.task, held_out, write)
        loss = train_locally(self.task, parameters, reparametrisation, scores, trained_on, turn, finished=finished)
        return loss, finished.epochs

    # Evaluation.

    @property
    def primary_network(self) -> str:
        return self.parameters.evaluation

    def write_network(self, state: State, network: str, key: int) -> None:
        thresholds = self.thresholds(state)
        if network == "expected":
            values = probabilities(thresholds)
        elif network == "thresholded":
            values = (thresholds >= 1 << 31).astype(np.float32)
        else:
            values = unpack_bits(sample_bits(thresholds, key), self.places).astype(np.float32)
        Projected(self.projection, self.base).place(values, self.task.flat.weights)


def probabilities(thresholds: Thresholds) -> NDArray[np.float32]:
    return (thresholds / FULL).astype(np.float32)
