"""The fitted head from few bytes: see `subbit.models.lean_summary`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from subbit.aggregate import WeightedMean
from subbit.codecs import make_codec
from subbit.core.errors import PayloadError
from subbit.core.randomness import derive_key, numpy_generator
from subbit.data.examples import Data
from subbit.exchange.exchange import Part, Payloads, Update, as_float32
from subbit.exchange.honest import FAR_FEATURE, check_counts, check_moments, check_not_negative, check_within
from subbit.methods.head_fits import COUNTS_ROW, Fit, head_vector, log_shares
from subbit.models.head_start import solve
from subbit.models.lean_head import LeanPool, shaped_head
from subbit.models.lean_summary import UNITS, LeanSummary, is_drawn
from subbit.models.task import Turn

if TYPE_CHECKING:
    from subbit.methods.heads import HeadMethod


class LeanDiscriminant(Fit):
    def __init__(self, method: HeadMethod) -> None:
        super().__init__(method)
        self.classes, self.width = self.task.classes, method.head.in_features
        # From the seed alone, so that server and clients agree without a word, whatever runs them.
        key = derive_key(self.task.seed, "head-factors")
        order = numpy_generator(key).permutation(self.task.clients).tolist()
        self.ranks = {client: rank for rank, client in enumerate(order)}

    def size(self) -> int:
        return LeanPool.size(self.classes, self.width)

    def parts(self) -> tuple[Part, ...]:
        rows = 1 + self.classes + self.width
        return (
            Part("counts", make_codec("steps", step=1.0, row=COUNTS_ROW), self.classes),
            Part("units", make_codec("dense", dtype="bfloat16"), UNITS),
            Part("levels", make_codec("steps", step=1.0, row=self.width), self.width),
            Part("numbers", make_codec("steps", step=1.0, row=self.width), rows * self.width),
        )

    def is_drawn(self, client: int, examples: int) -> bool:
        return is_drawn(self.ranks[client], examples, self.width)

    def train(self, data: Data, turn: Turn) -> Update:
        drawn = self.is_drawn(turn.client, len(data))
        found = LeanSummary.of(*self.method.features(data), self.classes, self.task.clients, drawn)
        parts = {
            "counts": found.counts,
            "units": found.units,
            "levels": found.levels,
            "numbers": found.numbers.flatten(),
        }
        return Update({name: as_float32(part.numpy()) for name, part in parts.items()}, len(data))

    def _summary(self, payloads: Payloads) -> LeanSummary:
        counts, units, levels, numbers = (
            torch.from_numpy(payloads[name]).double() for name in ("counts", "units", "levels", "numbers")
        )
        return LeanSummary(counts, units, levels, numbers.view(-1, self.width))

    def examine(self, payloads: Payloads, examples: int, client: int) -> None:
        summary = self._summary(payloads)
        check_counts(summary.counts, examples)
        check_not_negative(payloads["units"], "a unit of features")
        check_within(summary.deviations.numpy(), examples * FAR_FEATURE, "deviations of features")
        means, rows = summary.numbers[1 : 1 + self.classes], summary.numbers[1 + self.classes :]
        if bool(means[summary.counts == 0].any()):
            raise PayloadError("a mean of features of a class without examples", "value")
        if summary.has_factors and not (self.is_drawn(client, examples) and summary.free):
            raise PayloadError("factors from a client that was not drawn to send them", "value")
        if bool(rows.any()) and not summary.has_factors:
            raise PayloadError("factors without a step", "value")
        # Factors give no negative eigenvalue, whatever they are, and correlations up to 1.
        check_moments(summary.statistics(), examples)

    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None:
        accumulator.add(LeanPool.of(self._summary(payloads)).vector.numpy(), 1)

    def head(self, accumulator: WeightedMean) -> Any:
        pool = LeanPool(torch.from_numpy(accumulator.sum), self.classes, self.width)
        statistics, wanted = pool.statistics(), self.method.parameters
        solved = solve(statistics, wanted.shrinkage, wanted.temperature, rounding=pool.rounding)
        return head_vector(self.task, *shaped_head(statistics, *solved))

    def log_shares(self, accumulator: WeightedMean) -> Any:
        return log_shares(accumulator.sum[: self.classes])
