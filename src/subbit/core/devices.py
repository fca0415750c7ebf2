"""Where a network trains, and the one way of its vectors to the CPU and back.

Codecs, aggregation and every bit that two machines must agree on are computed on the CPU. A turn moves its vector to
the device once, trains there, and moves it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from subbit.core.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu)(:\d+)?")
NEEDED = "needs auto, cpu, cuda, cuda:N, xpu, xpu:N or mps"
PREFERRED = ("cuda", "xpu", "mps")


def find_device(name: str, worker: int = 0) -> torch.device:
    """The device of this name. Without a number, workers are spread over all devices of its kind."""
    import torch

    if DEVICE.fullmatch(name) is None:
        raise ConfigError(f"device={name}: {NEEDED}")
    if name == "auto":
        name = next((kind for kind in PREFERRED if count_devices(kind)), "cpu")
    kind, _, number = name.partition(":")
    if kind == "cpu":
        return torch.device(kind)
    count = count_devices(kind)
    if int(number or 0) >= count:
        raise ConfigError(f"device={name}: found {count} {kind} devices here; use device=auto or device=cpu")
    return torch.device(kind) if kind == "mps" else torch.device(kind, int(number) if number else worker % count)


def count_devices(kind: str) -> int:
    import torch

    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind)
    return int(module.device_count()) if module.is_available() else 0


def host(tensor: Tensor) -> NDArray[Any]:
    """The values as a numpy array: the tensor's own memory if it is on the CPU."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def number(tensor: Tensor) -> float:
    """A tensor of one value as a number. Waits for the device."""
    return float(tensor.item())


@contextmanager
def moved(vector: Tensor, device: torch.device) -> Iterator[Tensor]:
    """The vector on this device; its values are copied back at the end. On the same device it is the vector itself."""
    there = vector.to(device)
    yield there
    if there is not vector:
        import torch

        with torch.no_grad():
            vector.copy_(there)
