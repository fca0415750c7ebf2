"""Bytes of `method=subbit` at the size of ViT-B, from the frames of a real run: `python benchmarks/vitb_bytes.py`.

Random weights and two clients with four random images each, so that the score means nothing. Writes
benchmarks/results/vitb-bytes.json. Takes about a minute and 3 GB.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import ViTConfig, ViTForImageClassification

import subbit
from subbit.core.randomness import derive_key, torch_randomness

OUTPUT = Path(__file__).parent / "results" / "vitb-bytes.json"
CLASSES, CLIENTS, EXAMPLES, ROUNDS = 100, 2, 4, 2


def main() -> None:
    with torch_randomness(derive_key(0, "vitb-bytes")):
        module = ViTForImageClassification(ViTConfig(num_labels=CLASSES))
        clients = [(torch.randn(EXAMPLES, 3, 224, 224), torch.arange(EXAMPLES)) for _ in range(CLIENTS)]
    with torch.no_grad():
        module.vit.layernorm.weight.mul_(
            1.01
        )  # Stands in for a trained network: random weights are trained themselves.
    result = subbit.fine_tune(
        module, clients, test=clients[0], method="subbit", head="keep", rounds=ROUNDS, batch_size=EXAMPLES
    )
    turns = CLIENTS * ROUNDS
    found = {
        "weights": result.summary["parameters"],
        "uplink_bytes": result.summary["uplink_bytes"] / turns,
        "downlink_bytes": result.summary["downlink_bytes"] / turns,
    }
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['weights']:,} weights, per client and round: ", end="")
    print(f"{found['uplink_bytes']:,.0f} bytes up, {found['downlink_bytes']:,.0f} bytes down")


if __name__ == "__main__":
    main()
