"""ViT-B/32 with random weights, the weights of its last five blocks masked: a training image's seconds, and memory.

python -m benchmarks.bench.engine.vitb IMAGES
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import torch

from benchmarks.bench.engine.before import COMMIT, FAILURES, run_before
from benchmarks.bench.engine.child import ONE_THREAD, Spent, run_child
from benchmarks.bench.engine.jobs import BLOCKS, CLASSES, has_cache, problem_of, random_images, uncached
from subbit.config.resolve import resolve
from subbit.core.randomness import torch_randomness
from subbit.local.trainer import Trainer
from subbit.models.classifier import Classifier
from subbit.runtime.run import run_job

BATCH, IMAGES = 8, 32
ROUNDS = 3
BEFORE = (
    "import json, sys; from benchmarks.bench.engine.vitb import measure_vitb; "
    f"print(json.dumps({{'calls': [measure_vitb(int(sys.argv[1])) for _ in range({ROUNDS})]}}))"
)
"""A call of the code before trains one round. Several calls in one process are warm as the later rounds are now."""


@torch_randomness(0)
def measure_vitb(images: int, keys: dict[str, Any], **config: int) -> dict[str, Any]:
    """One client, three rounds, through the whole engine; the seconds are those of local training, in the first round
    and in the fastest of the others."""
    from transformers import ViTConfig, ViTModel

    threads = torch.get_num_threads()
    sizes = ViTConfig(**{"image_size": 224, "patch_size": 32, **config})
    backbone = ViTModel(sizes, add_pooling_layer=False)
    module = Classifier(backbone, torch.nn.Linear(sizes.hidden_size, CLASSES), "cls")
    data = random_images(images, (3, sizes.image_size, sizes.image_size))
    floats = type(data)(data.inputs.float() / 255, data.labels)
    seconds: list[float] = []
    peaks: list[float] = []
    train = Trainer.train

    def timed(*arguments: Any, **options: Any) -> Any:
        started = process_time()
        try:
            return train(*arguments, **options)
        finally:
            seconds.append(process_time() - started)
            peaks.append(peak_gb())

    values = {"method": "deltamask", "select": f"{BLOCKS}: weights", "head": "keep", "clients": 1, "rounds": ROUNDS}
    settings = resolve({**values, **keys, "batch_size": BATCH, "threads": threads, "evaluate_every": ROUNDS})
    problem = problem_of(module, floats, 1, floats.select(np.arange(2)))
    target: Any = Trainer
    target.train = timed
    try:
        summary = run_job(problem, settings).summary
    finally:
        target.train = train
    return {
        "parameters": summary["parameters"],
        "threads": threads,
        "seconds_per_image_first": seconds[0] / images,
        "seconds_per_image": min(seconds[1:]) / images,
        "peak_gb_after_training": peaks[-1],
        "peak_gb": peak_gb(),
    }


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def vitb(run: Callable[..., Spent] = run_child, run_before: Callable[..., Spent] = run_before) -> dict[str, Any]:
    words = ["-m", "benchmarks.bench.engine.vitb", str(IMAGES)]
    one = run(words, variables=ONE_THREAD).found
    results = {"vitb_seconds_per_image": one["seconds_per_image"], "vitb_peak_gb": one["peak_gb_after_training"]}
    if not has_cache():
        return {"results": results, "one_thread": one}
    kept = run([*words, "exact"], variables=ONE_THREAD).found
    results |= {"vitb_cached_seconds_per_image": kept["seconds_per_image"]}
    results["vitb_peak_gb"] = max(results["vitb_peak_gb"], kept["peak_gb_after_training"])
    details = {"one_thread": one, "cached": kept}
    try:
        calls = run_before(["-c", BEFORE, str(IMAGES)], variables=ONE_THREAD).found["calls"]
    except FAILURES as error:
        missing = {"vitb_cached_over_before": f"{type(error).__name__}: {error}"}
        return {"results": results, "missing": missing, **details}
    before = min(call["seconds_per_image"] for call in calls[1:])
    results["vitb_before_seconds_per_image"] = before
    results["vitb_cached_over_before"] = kept["seconds_per_image"] / before
    return {"results": results, **details, "before": {"commit": COMMIT, "calls": calls}}


if __name__ == "__main__":
    print(json.dumps(measure_vitb(int(sys.argv[1]), {"cache": sys.argv[2]} if len(sys.argv) > 2 else uncached())))
