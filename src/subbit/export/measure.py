"""Compares two networks: parameters, file sizes, seconds, memory.

Seconds are the minimum CPU time of one thread over several runs. The runs of the two networks alternate, so that load
on the machine affects both. On an idle machine this is also the elapsed time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from subbit.core.machine import machine, one_torch_thread
from subbit.export.onnx_session import OnnxModel

BATCHES = (1, 64)
ENOUGH_SECONDS, FEWEST_RUNS, MOST_RUNS = 1.0, 5, 200


@dataclass(frozen=True)
class Written:
    """A network and its files."""

    module: nn.Module
    safetensors: Path
    onnx: Path


def measure(dense: Written, shrunk: Written, inputs: Tensor, folder: Path) -> dict[str, Any]:
    """`{quantity: {"dense": ..., "shrunk": ...}}`; `folder` is for temporary files of the measurement."""
    pair = (dense, shrunk)
    found: dict[str, Any] = {
        "parameters": _both([sum(value.numel() for value in one.module.parameters()) for one in pair]),
        "safetensors_bytes": _both([one.safetensors.stat().st_size for one in pair]),
        "onnx_bytes": _both([one.onnx.stat().st_size for one in pair]),
    }
    sessions = [OnnxModel(one.onnx) for one in pair]
    for size in BATCHES:
        batch = _batch(inputs, size)
        seconds = alternating_seconds([partial(session, batch.numpy()) for session in sessions])
        found[f"onnxruntime_seconds_batch_{size}"] = _both(seconds)
        with one_torch_thread(), torch.no_grad():
            seconds = alternating_seconds([partial(one.module, batch) for one in pair])
        found[f"torch_seconds_batch_{size}"] = _both(seconds)
    peaks = [peak_bytes(one.onnx, _batch(inputs, 1), folder) for one in pair]
    if None not in peaks:
        found["onnxruntime_peak_bytes"] = _both(peaks)
    return {"machine": machine(), "threads": 1, "measured": found}


def alternating_seconds(functions: Sequence[Callable[[], object]]) -> list[float]:
    """The minimum CPU seconds of each function, called alternately after one warm-up call each."""
    for function in functions:
        function()
    best, spent, runs = [float("inf")] * len(functions), 0.0, 0
    while runs < FEWEST_RUNS or (spent < ENOUGH_SECONDS * len(functions) and runs < MOST_RUNS):
        for place, function in enumerate(functions):
            start = time.thread_time()
            function()
            seconds = time.thread_time() - start
            best[place] = min(best[place], seconds)
            spent += seconds
        runs += 1
    return best


def peak_bytes(onnx: Path, batch: Tensor, folder: Path) -> int | None:
    """Additional memory of a process that loads and runs the network; None if the system does not report it."""
    inputs = folder / "inputs.npy"
    np.save(inputs, batch.numpy())
    command = [sys.executable, "-m", "subbit.export.peak", str(onnx), str(inputs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return int(json.loads(done.stdout)["added"]) if done.returncode == 0 else None


def _batch(inputs: Tensor, size: int) -> Tensor:
    return inputs[torch.arange(size) % len(inputs)].contiguous()


def _both(values: Sequence[Any]) -> dict[str, Any]:
    return {"dense": values[0], "shrunk": values[1]}
