"""`loss.backward()` without what torch does in Python around it.

`torch.autograd.backward` looks at its many arguments in every call. The processor has forgotten that code by the next
step, whose matrices have filled its caches, so that it takes a twentieth of a step of a small network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ENGINE: Any = getattr(getattr(torch.autograd, "Variable", None), "_execution_engine", None)
"""What `torch.autograd.backward` calls. Not documented: a torch without it is asked in the documented way."""


def run_backward(loss: Tensor) -> None:
    """Add the gradient of a loss to the `grad` of all that it depends on."""
    # Others are refused by torch, or know themselves what to do.
    if _ENGINE is None or type(loss) is not Tensor or loss.dim():
        loss.backward()  # type: ignore[no-untyped-call]
        return
    # Made anew each time, as torch does: a module's own backward may write to what it is given.
    slope = torch.ones_like(loss)
    _ENGINE.run_backward((loss,), (slope,), False, False, (), allow_unreachable=True, accumulate_grad=True)
