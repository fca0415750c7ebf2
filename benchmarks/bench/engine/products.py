"""Float32 products by torch and by oneDNN, in GFLOP/s: what the engine gains by oneDNN depends on the processor.

    python -m benchmarks.bench.engine.products

Where torch's own products reach the processor's peak already, there is nothing to gain, and the demo is less ahead of
the code before than elsewhere.
"""

from __future__ import annotations

import json
from time import thread_time

import torch
import torch.nn.functional as F

from subbit.core.errors import ConfigError
from subbit.models.linear_products import choose_products, fast_products

SHAPE = (16 * 65, 96, 384)
"""The demo's batch of 16 images, each 65 places, in vit-micro's layer from 96 to 384."""
SECONDS = 0.5


@torch.no_grad()
def measure_products(shape: tuple[int, int, int] = SHAPE, seconds: float = SECONDS) -> dict[str, float]:
    """The fastest product of `seconds` of each, on one thread; oneDNN only where this torch has it."""
    torch.set_num_threads(1)
    rows, inner, outer = shape
    left, right = torch.randn(rows, inner), torch.randn(outer, inner)
    best = {}
    for name, fast in (("torch", False), ("onednn", True))[: 1 + _has_onednn()]:
        with fast_products(fast):
            F.linear(left, right)
            end, best[name] = thread_time() + seconds, float("inf")
            while (started := thread_time()) < end:
                F.linear(left, right)
                best[name] = min(best[name], thread_time() - started)
    return {name: round(2e-9 * rows * inner * outer / least, 1) for name, least in best.items()}


def _has_onednn() -> bool:
    try:
        return choose_products("onednn", torch.device("cpu"))
    except ConfigError:
        return False


if __name__ == "__main__":
    print(json.dumps(measure_products()))
