"""DeltaMask's paper does not say how masks are drawn, nor how far probabilities stay from 0 and 1: 100 rounds of each
reading.

    python benchmarks/deltamask_readings.py             writes benchmarks/results/deltamask-readings.json (minutes)
    python benchmarks/deltamask_readings.py still       only this part; the other stays as it is in the file
    python benchmarks/render_deltamask.py               writes the tables of docs/deltamask.md

still     A simulation of independent draws in which nobody learns: what the draws alone cost (shared ones cost nothing
          then). 80% of the flips are sent, chosen at random; the size is that of the slots of the paper's filter. Its
          false positives are drawn with their probability, 1/256, or left out.
learning  Real runs with real frames: a network trained on mirrored digits is masked for digits, 10 clients with turns
          of 26 steps, as many as in the paper (50,000 examples, 30 clients, batches of 64).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from subbit.codecs.fuse import fuse_shape
from subbit.config.resolve import resolve
from subbit.core.randomness import derive_key, numpy_generator, torch_randomness
from subbit.data import Examples, load_dataset
from subbit.runtime.problem import Problem
from subbit.runtime.run import run_job
from subbit.runtime.summarise import versions

OUTPUT = Path(__file__).parent / "results" / "deltamask-readings.json"
ROUNDS, KAPPA, START = 100, 0.8, 0.95
READINGS: dict[str, dict[str, str]] = {
    "independent": {"coupling": "independent", "seed_scope": "round"},
    "shared by round": {"coupling": "shared", "seed_scope": "round"},
    "shared by client": {"coupling": "shared", "seed_scope": "client"},
    "one for all rounds": {"coupling": "shared", "seed_scope": "run"},
    "one for each client": {"coupling": "shared", "seed_scope": "client-run"},
}
CLAMPS: tuple[float | str, ...] = (0.01, 0.001, 0.0001, 0.0, "mean")
"""Distance from 0 and 1, or the mean of the Beta distribution instead of its mode."""

# Nobody learns.


def still(clients: int, clamp: float | str, false_positives: bool, places: int = 20_000) -> list[float]:
    """Bits per parameter by round."""
    theta = np.full(places, START)
    found = []
    for number in range(ROUNDS):
        total, bits = np.zeros(places), 0
        before = numpy_generator(derive_key(0, "reference", number)).random(places) < theta
        for client in range(clients):
            noise = numpy_generator(derive_key(0, "client", number, client))
            flips = before ^ (noise.random(places) < theta)
            flips &= keep_share(flips, noise)
            bits += 8 * fuse_shape(int(flips.sum()), 4).slot_count if flips.any() else 0
            if false_positives:
                flips |= noise.random(places) < 1 / 256
            total += before ^ flips
        theta = (1 + total) / (2 + clients) if clamp == "mean" else np.clip(total / clients, clamp, 1 - float(clamp))
        found.append(bits / (clients * places))
    return found


def keep_share(flips: Any, noise: np.random.Generator) -> Any:
    kept, positions = np.zeros(flips.size, bool), np.flatnonzero(flips)
    kept[noise.permutation(positions)[: int(np.ceil(KAPPA * positions.size))]] = True
    return kept


# Real runs.

TURN = 26 * 64
HIDDEN = "2.weight + 4.weight"
RUN = {"method": "deltamask", "preset": "paper", "codec": "bfuse", "head": "keep", "select": HIDDEN, "rounds": ROUNDS}
RUN |= {"kappa_schedule": "const", "evaluate_every": 10, "evaluation": "expected"}
PLAN: tuple[tuple[str, float | str, int], ...] = (
    ("independent", 0.01, 8),
    ("independent", 0.0001, 8),
    ("independent", 0.0001, 16),
    ("independent", "mean", 8),
    ("shared by round", 0.01, 8),
    ("shared by round", 0.0001, 8),
    ("shared by client", 0.01, 8),
    ("shared by client", 0.0001, 8),
    ("one for all rounds", 0.01, 8),
    ("one for each client", 0.01, 8),
)
"""Reading, clamp, bits of a fingerprint."""


class Scaled(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.float() / 255


def trained_on_mirrored(train: Examples) -> nn.Module:
    with torch_randomness(1):
        layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
    module, images = nn.Sequential(Scaled(), nn.Flatten(), *layers), train.tensor.flip(-1)
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(images), train.labels).backward()
        optimizer.step()
    return module


def problem(clients: int) -> Problem:
    data = load_dataset("digits")
    assert isinstance(data.train, Examples)
    parts = [np.resize(part, TURN) for part in np.array_split(np.arange(len(data.train)), clients)]
    return Problem(
        module=trained_on_mirrored(data.train),
        train=data.train,
        parts=tuple(parts),
        test=data.test,
        classes=10,
        pretrained=True,
        model_name="64-128-64-10",
        dataset_name="digits",
    )


def learning(reading: str, clamp: float | str, bits: int, clients: int = 10) -> dict[str, Any]:
    estimator = {"estimator": "mean"} if clamp == "mean" else {"clamp": clamp}
    words = {**RUN, **READINGS[reading], **estimator, "bits": bits, "clients": clients}
    result = run_job(problem(clients), resolve(words))
    sent = np.diff([0, *(row["uplink_bytes"] for row in result.history)])
    bpp = 8 * sent / (clients * result.summary["parameters"])
    return {
        "reading": reading,
        "clamp": clamp,
        "bits": bits,
        "clients": clients,
        "places": result.summary["parameters"],
        "bpp_by_round": [round(float(value), 4) for value in bpp],
        "loss_by_round": [round(row["train_loss"], 4) for row in result.history],
        "accuracy_by_round": [row.get("accuracy") for row in result.history],
        "accuracy_before": result.summary["accuracy_before"],
        "accuracy": result.accuracy,
    }


def save(known: dict[str, Any]) -> None:
    known["settings"], known["versions"] = RUN, versions()
    OUTPUT.write_text(json.dumps(known, separators=(",", ": ")).replace('{"', '\n{"') + "\n")


def main() -> None:
    torch.set_num_threads(1)
    known = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {"still": [], "learning": []}
    wanted = sys.argv[1:] or ["still", "learning"]
    if "still" in wanted:
        known["still"] = []
        for clients in (10, 30):
            for clamp in CLAMPS:
                made: dict[str, Any] = {"clients": clients, "clamp": clamp}
                for name, wrong in (("exact", False), ("filter", True)):
                    made[name] = [round(value, 4) for value in still(clients, clamp, wrong)]
                known["still"].append(made)
                print(clients, clamp, np.mean(made["exact"]), np.mean(made["filter"]), flush=True)
        save(known)
    if "learning" in wanted:
        known["learning"] = []
        for reading, clamp, bits in PLAN:
            row = learning(reading, clamp, bits)
            known["learning"].append(row)
            print(reading, clamp, bits, np.mean(row["bpp_by_round"]), row["accuracy"], flush=True)
            save(known)


if __name__ == "__main__":
    main()
