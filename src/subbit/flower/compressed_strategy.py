"""A Flower strategy that compresses what it broadcasts, and decodes replies before it aggregates them.

The wrapped strategy receives a list of ordinary replies, so it needs as much memory as without compression.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from subbit.core.errors import ConfigError
from subbit.flower.compression import Compression, StrategyType
from subbit.flower.reply_decoder import ReplyDecoder


class CompressedStrategy(Strategy):
    """Mixed in before another strategy class by `compressed_strategy`, so that `super()` is the wrapped strategy."""

    subbit: ReplyDecoder

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = super().configure_train(server_round, arrays, config, grid)  # type: ignore[safe-super]
        return self.subbit.ask(server_round, messages)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        opened, ours = self.subbit.open(replies)
        arrays, metrics = super().aggregate_train(server_round, opened)  # type: ignore[safe-super]
        return arrays, MetricRecord({**(metrics or {}), **ours})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = super().configure_evaluate(server_round, arrays, config, grid)  # type: ignore[safe-super]
        return self.subbit.ask(server_round, messages, replies=False)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        opened, ours = self.subbit.open_evaluation(replies)
        metrics = super().aggregate_evaluate(server_round, opened)  # type: ignore[safe-super]
        return metrics if ours is None else MetricRecord({**(metrics or {}), **ours})


def compressed_strategy(strategy: StrategyType, compression: Compression) -> StrategyType:
    """A copy of the strategy, with `CompressedStrategy` inserted before its class.

    A subclass instead of a wrapper: a strategy may override `start` or any other method, and `isinstance` still works.
    """
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"{type(strategy).__name__} is not a strategy of flwr.serverapp.strategy")
    if isinstance(strategy, CompressedStrategy):
        raise ConfigError("this strategy is compressed already")
    kind = type(strategy)
    compressed = copy.copy(strategy)
    compressed.__class__ = type(f"Compressed{kind.__name__}", (CompressedStrategy, kind), {})
    cast(CompressedStrategy, compressed).subbit = ReplyDecoder(compression)
    return compressed
