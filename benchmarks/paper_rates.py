"""Measure how long a network takes to train on an image: CPU seconds of one thread, for `subbit paper --dry-run`.

    python benchmarks/paper_rates.py

Small networks are measured here, forward, backward and a step of SGD on all weights. CLIP ViT-B/32 is the number of
`subbit bench engine` for its last five blocks masked. Networks that are not on this machine are scaled from it by
multiply-adds: forward, and twice that backward through what is trained.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
from torch.nn import functional

from subbit.models.load_model import load_classifier
from subbit.runtime.summarise import versions

OUTPUT = Path(__file__).parent / "results" / "papers" / "rates.json"
SMALL = {
    **dict.fromkeys(("mlp", "mnistfc", "mlp-small", "conv2", "conv4", "row-lstm"), (1, 28, 28)),
    **dict.fromkeys(("vgg16", "convmixer", "subbit/vit-micro"), (3, 32, 32)),
    "har-mlp": (561,),
    "next-char": (80,),
}
BATCH = {"vgg16": 8}
CLIP, CLIP_SECONDS = "openai/clip-vit-base-patch32", 0.233
CLIP_WORK = 4.37 * (1 + 2 * 5 / 12)
"""Billions of multiply-adds of an image: forward through all blocks, backward through five of twelve."""
OTHERS = {
    "openai/clip-vit-large-patch14": 77.8 * (1 + 2 * 5 / 24),
    "facebook/dinov2-base": 21.9 * (1 + 2 * 5 / 12),
    "facebook/dinov2-small": 5.5 * (1 + 2 * 5 / 12),
    "timm/convmixer_768_32.in1k": 19.6 * (1 + 2 * 5 / 32),
    "facebook/dino-vits16": 4.25 * 3,
    "facebook/dino-vitb16": 16.9 * 3,
    "facebook/deit-base-patch16-224": 16.9 * 3,
    "google/vit-base-patch16-224-in21k": 16.9 * 3,
    "WinKawaks/vit-small-patch16-224": 4.25 * 3,
    "MCG-NJU/videomae-base-finetuned-kinetics": 180 * 3,
    "MCG-NJU/videomae-base-finetuned-ssv2": 180 * 3,
    "MCG-NJU/videomae-small-finetuned-kinetics": 57 * 3,
    "google/bert_uncased_L-4_H-256_A-4": 0.4 * 3,
}


def measured(name: str, shape: tuple[int, ...], steps: int = 3) -> tuple[float, int]:
    """CPU seconds of an image, by the fastest of a few steps; and the number of weights."""
    network = load_classifier(name, 10, key=0, input_shape=shape)
    count = BATCH.get(name, 64)
    inputs = torch.randint(0, 80, (count, *shape))
    inputs = inputs.to(torch.uint8) if len(shape) == 3 else (inputs if name == "next-char" else inputs / 255)
    labels = torch.arange(count) % 10
    optimiser = torch.optim.SGD(network.parameters(), 0.01)
    took = []
    for _ in range(steps):
        started = time.process_time()
        optimiser.zero_grad()
        functional.cross_entropy(network(inputs), labels).backward()
        optimiser.step()
        took.append(time.process_time() - started)
    return min(took) / count, sum(parameter.numel() for parameter in network.parameters())


def main() -> None:
    torch.set_num_threads(1)
    networks = {}
    for name, shape in SMALL.items():
        seconds, weights = measured(name, shape)
        networks[name] = {"seconds_per_image": float(f"{seconds:.3g}"), "measured": True, "weights": weights}
        print(name, networks[name]["seconds_per_image"], flush=True)
    networks[CLIP] = {"seconds_per_image": CLIP_SECONDS, "measured": True}
    for name, work in OTHERS.items():
        networks[name] = {"seconds_per_image": float(f"{CLIP_SECONDS * work / CLIP_WORK:.3g}"), "measured": False}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"networks": networks, "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
