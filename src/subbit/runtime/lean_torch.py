"""Keeps torch's compiler out of processes that compile nothing: importing it takes about as long as torch itself.

The first optimiser imports it only to tell it to leave methods of optimisers alone. While it is not loaded, there is
nothing to tell. Once it is loaded, by somebody's `torch.compile`, torch does as it always does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

COMPILER = "torch._dynamo"
KEPT = "__dynamo_disable"
"""Where torch keeps what it calls instead of the method. Not public: if it moves, the compiler is loaded as before."""
METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def leave_compiler_out() -> None:
    """Does nothing where the compiler is loaded already. May be called more than once."""
    if COMPILER in sys.modules:
        return
    for name in METHODS:
        method = getattr(torch.optim.Optimizer, name)
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, KEPT):
            setattr(plain, KEPT, _without_compiler(method, plain))


def _without_compiler(method: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if COMPILER not in sys.modules:
            return plain(*args, **kwargs)
        if getattr(plain, KEPT, None) is call:
            delattr(plain, KEPT)
        return method(*args, **kwargs)

    return call
