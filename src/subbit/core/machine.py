"""The machine on which a speed was measured, and its number of threads."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_torch_thread() -> AbstractContextManager[None]:
    return torch_threads(1)


def machine() -> dict[str, Any]:
    """What is needed to interpret the speeds; nothing that identifies the owner of the machine."""
    return {
        "cpu": _cpu_model(),
        "logical_cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "system": sys.platform,
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
