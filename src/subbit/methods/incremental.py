from subbit.exchange.base import Changes
from subbit.methods.base import Method
from typing import Any


def as_incremental(method: Method[Any]) -> Changes | None:
    return method.changes
