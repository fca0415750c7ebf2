"""What a client reports about its examples when the head is fitted, and the head computed from all reports."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.aggregate import WeightedMean
from subbit.codecs import Codec, make_codec
from subbit.core.devices import host, number
from subbit.core.errors import PayloadError
from subbit.core.randomness import derive_key
from subbit.data.batches import batches
from subbit.data.examples import Data
from subbit.exchange.exchange import Part, Payloads, Update, as_float32
from subbit.exchange.honest import (
    FAR,
    FAR_FEATURE,
    ROUNDING,
    check_counts,
    check_moments,
    check_not_negative,
    check_statistics,
    check_within,
    largest,
)
from subbit.local.optimizers import Adam
from subbit.models.feature_summary import FeatureSummary
from subbit.models.head_start import LdaStatistics, rounded_head, solve
from subbit.models.task import Task, Turn

if TYPE_CHECKING:
    from subbit.methods.heads import HeadMethod


class Fit(ABC):
    def __init__(self, method: HeadMethod) -> None:
        self.method, self.task = method, method.task

    @abstractmethod
    def parts(self) -> tuple[Part, ...]: ...

    def size(self) -> int:
        """Of what is added up."""
        return sum(part.size for part in self.parts())

    @abstractmethod
    def train(self, data: Data, turn: Turn) -> Update: ...

    @abstractmethod
    def examine(self, payloads: Payloads, examples: int, client: int) -> None: ...

    @abstractmethod
    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None: ...

    @abstractmethod
    def head(self, accumulator: WeightedMean) -> Any: ...

    def log_shares(self, accumulator: WeightedMean) -> Any:
        """Of the classes among all clients, as far as they said; equal ones otherwise."""
        return np.zeros(self.task.classes, dtype=np.float32)


def _weight_and_bias(vector: Tensor, head: nn.Linear) -> tuple[Tensor, Tensor]:
    size = head.weight.numel()
    return vector[:size].view_as(head.weight), vector[size:]


SHARE_STEP = 0.125
"""Of a logarithm: shares are right within 7%, in a few bits each."""
RARE = 0.5
"""Examples of each class that are counted besides: one that nobody has may still exist."""


def log_shares(counts: Any) -> Any:
    """log(p_c C) for shares p_c of the classes, rounded.

    >>> log_shares(np.array([60.0, 20.0])).tolist()
    [0.375, -0.625]
    """
    shares = (np.asarray(counts, dtype=np.float64) + RARE) / (np.sum(counts) + RARE * len(counts))
    return as_float32(np.round(np.log(shares * len(shares)) / SHARE_STEP) * SHARE_STEP)


class Probe(Fit):
    def parts(self) -> tuple[Part, ...]:
        return (Part("head", make_codec("dense"), self.method.size),)

    def train(self, data: Data, turn: Turn) -> Update:
        (features, labels), loss = self.method.features(data), torch.zeros(())
        local, head = self.method.parameters.local, self.method.head
        trained = torch.from_numpy(np.concatenate([host(head.weight).ravel(), host(head.bias)])).requires_grad_()
        optimizer = Adam().make(trained, local.rate)
        for epoch in range(local.epochs):
            key = derive_key(self.task.seed, "probe-batches", turn.round_number, turn.client, epoch)
            for chosen in batches(len(data), local.batch_size, key):
                where = torch.from_numpy(chosen)
                logits = functional.linear(features[where], *_weight_and_bias(trained, head))
                loss = functional.cross_entropy(logits, labels[where])
                (trained.grad,) = torch.autograd.grad(loss, trained)
                optimizer.step()
        return Update(
            {"head": head_vector(self.task, *_weight_and_bias(trained, head))},
            len(data),
            {"loss": number(loss)},
        )

    def examine(self, payloads: Payloads, examples: int, client: int) -> None:
        check_within(payloads["head"], FAR * max(1.0, largest(host(self.task.flat.initial))), "head")

    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None:
        accumulator.add(payloads["head"], examples)

    def head(self, accumulator: WeightedMean) -> Any:
        return as_float32(accumulator.mean())


class Discriminant(Fit):
    def size(self) -> int:
        return LdaStatistics.vector_size(self.task.classes, self.method.head.in_features)

    def parts(self) -> tuple[Part, ...]:
        return (Part("statistics", make_codec("dense"), self.size()),)

    def train(self, data: Data, turn: Turn) -> Update:
        statistics = LdaStatistics.from_features(*self.method.features(data), self.task.classes)
        return Update({"statistics": statistics.to_vector().numpy()}, len(data))

    def examine(self, payloads: Payloads, examples: int, client: int) -> None:
        check_statistics(self._statistics(torch.from_numpy(payloads["statistics"])), examples)

    def _statistics(self, vector: Tensor) -> LdaStatistics:
        return LdaStatistics.from_vector(vector, self.task.classes, self.method.head.in_features)

    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None:
        """Adds without weights: statistics are sums over each client's examples already."""
        accumulator.add(payloads["statistics"], 1)

    def head(self, accumulator: WeightedMean, least: float = 0.0) -> Any:
        statistics = self._statistics(torch.from_numpy(accumulator.sum))
        wanted = self.method.parameters
        weight, bias = solve(statistics, wanted.shrinkage, wanted.temperature, least)
        if wanted.codec != "float32":
            weight, bias = rounded_head(statistics, weight, bias)
        return head_vector(self.task, weight, bias)

    def log_shares(self, accumulator: WeightedMean) -> Any:
        return log_shares(accumulator.sum[: self.task.classes])


class CodedDiscriminant(Fit):
    """The same head from fewer bytes."""

    def __init__(self, method: HeadMethod) -> None:
        super().__init__(method)
        self.codec, self.error = CODECS[method.parameters.codec]
        self.exact = Discriminant(method)

    def size(self) -> int:
        return self.exact.size()

    def parts(self) -> tuple[Part, ...]:
        classes, width = self.task.classes, self.method.head.in_features
        sums = Part("sums", make_codec("dense"), classes + classes * width + width)
        return sums, Part("correlations", self.codec, width * (width - 1) // 2)

    def train(self, data: Data, turn: Turn) -> Update:
        statistics = LdaStatistics.from_features(*self.method.features(data), self.task.classes)
        sums, correlations = statistics.to_correlations()
        return Update({"sums": sums.numpy(), "correlations": correlations.numpy()}, len(data))

    def _statistics(self, payloads: Payloads) -> LdaStatistics:
        sums, correlations = (torch.from_numpy(payloads[name]) for name in ("sums", "correlations"))
        return LdaStatistics.from_correlations(sums, correlations, self.task.classes, self.method.head.in_features)

    def examine(self, payloads: Payloads, examples: int, client: int) -> None:
        width = self.method.head.in_features
        check_not_negative(payloads["sums"][-width:], "a deviation of features")
        check_within(payloads["sums"][-width:], examples * FAR_FEATURE, "deviations of features")
        check_within(payloads["correlations"], 1.0 + ROUNDING, "correlations of features")
        # An error of every correlation by at most `error` changes an eigenvalue by at most that much of the trace.
        check_statistics(self._statistics(payloads), examples, ROUNDING + self.error)

    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None:
        accumulator.add(self._statistics(payloads).to_vector().numpy(), 1)

    def head(self, accumulator: WeightedMean) -> Any:
        # Rounding adds noise to all eigenvalues: 2 sqrt(D) times that of one correlation, the mean over the clients.
        noise = self.error / math.sqrt(3 * accumulator.weight)
        return self.exact.head(accumulator, 2 * math.sqrt(self.method.head.in_features) * noise)

    def log_shares(self, accumulator: WeightedMean) -> Any:
        return self.exact.log_shares(accumulator)


class FactoredDiscriminant(Fit):
    """The same head from the fewest bytes: see `subbit.models.feature_summary`."""

    def __init__(self, method: HeadMethod) -> None:
        super().__init__(method)
        self.exact = Discriminant(method)
        self.classes, self.width = self.task.classes, method.head.in_features

    def size(self) -> int:
        return self.exact.size()

    def parts(self) -> tuple[Part, ...]:
        rows = 1 + self.classes + self.width
        return (
            Part("counts", make_codec("steps", step=1.0, row=COUNTS_ROW), self.classes),
            Part("scales", make_codec("dense", dtype="bfloat16"), self.width + 2),
            Part("numbers", make_codec("steps", step=1.0, row=self.width), rows * self.width),
        )

    def train(self, data: Data, turn: Turn) -> Update:
        found = FeatureSummary.of(*self.method.features(data), self.task.classes)
        parts = {"counts": found.counts, "scales": found.scales, "numbers": found.numbers.flatten()}
        return Update({name: as_float32(part.numpy()) for name, part in parts.items()}, len(data))

    def _summary(self, payloads: Payloads) -> FeatureSummary:
        counts, scales, numbers = (
            torch.from_numpy(payloads[name]).double() for name in ("counts", "scales", "numbers")
        )
        return FeatureSummary(counts, scales, numbers.view(-1, self.width))

    def examine(self, payloads: Payloads, examples: int, client: int) -> None:
        summary = self._summary(payloads)
        check_counts(summary.counts, examples)
        check_not_negative(payloads["scales"], "a deviation of features")
        check_within(payloads["scales"], examples * FAR_FEATURE, "deviations of features")
        if bool(summary.numbers[1 : 1 + self.classes][summary.counts == 0].any()):
            raise PayloadError("a mean of features of a class without examples", "value")
        # Factors give no negative eigenvalue, whatever they are, and correlations up to 1.
        check_moments(summary.statistics(), examples)

    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None:
        accumulator.add(self._summary(payloads).statistics().to_vector(torch.float64).numpy(), 1)

    def head(self, accumulator: WeightedMean) -> Any:
        return self.exact.head(accumulator)

    def log_shares(self, accumulator: WeightedMean) -> Any:
        return self.exact.log_shares(accumulator)


COUNTS_ROW = 64
CODECS: dict[str, tuple[Codec[Any], float]] = {
    "float16": (make_codec("dense", dtype="float16"), 2.0**-12),
    "int8": (make_codec("int8"), 0.5 / 127),
}
"""For correlations: the codec, and the largest error of a value up to 1."""


def head_vector(task: Task, weight: Tensor, bias: Tensor) -> Any:
    """Weight and bias in the order of the flat model's template."""
    pieces = {"weight": weight, "bias": bias}
    ordered = [pieces[name.rpartition(".")[2]].detach().flatten() for name in task.flat.template.names]
    return as_float32(torch.cat(ordered).numpy())
