from typing import Any

from subbit.exchange.base import Changes
from subbit.methods.base import Method


def as_incremental(method: Method[Any]) -> Changes | None:
    return method.changes
