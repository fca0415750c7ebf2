"""Memory and bytes of a client's turn by the size of the network: counted without weights, and measured.

    python -m benchmarks.bench.models benchmarks/results/scale-models.json [NETWORK OR WAY ...]

A measured case is a process of its own: one client with two batches of eight random images, two rounds through the
whole engine, and the largest resident memory of that process. With words, only what has one of these names is measured
again.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bench.engine.child import ONE_THREAD, run_child
from benchmarks.bench.engine.jobs import CLASSES, problem_of, random_images
from benchmarks.bench.measure import versions
from subbit.cli.params import parameter_counts
from subbit.codecs.codec import MAXIMUM_SIZE
from subbit.config.resolve import resolve
from subbit.core.files import replace_file
from subbit.core.randomness import torch_randomness
from subbit.methods.fedpeft import FedPeftParameters
from subbit.models.classifier import Classifier
from subbit.peft.parameter_counts import count
from subbit.runtime.run import run_job
from subbit.wire.frame import HEADER_BYTES

BATCH, BATCHES, ROUNDS = 8, 2, 2
MOST_GB = 2.5
"""Target for ViT-B with the default masks."""
Sizes = dict[str, Any]


def _vit(width: int, blocks: int, heads: int) -> Sizes:
    sizes = {"hidden_size": width, "num_hidden_layers": blocks, "num_attention_heads": heads}
    return {"model_type": "vit", **sizes, "intermediate_size": 4 * width, "image_size": 224, "patch_size": 32}


def _llama(width: int, blocks: int, heads: int, pairs: int, inner: int, vocabulary: int, tied: bool = False) -> Sizes:
    sizes = {"hidden_size": width, "num_hidden_layers": blocks, "num_attention_heads": heads}
    inner_sizes = {"num_key_value_heads": pairs, "intermediate_size": inner, "vocab_size": vocabulary}
    return {"model_type": "llama", **sizes, **inner_sizes, "tie_word_embeddings": tied}


SMALL: dict[str, Sizes] = {
    "ViT of 1 million": _vit(96, 8, 4),
    "ViT of 10 million": _vit(288, 10, 6),
    "ViT-B/32": _vit(768, 12, 12),
    "ViT-L/32": _vit(1024, 24, 16),
}
LARGE: dict[str, Sizes] = {
    "SmolLM2-135M": _llama(576, 30, 9, 3, 1536, 49152, tied=True),
    "TinyLlama-1.1B": _llama(2048, 22, 32, 4, 5632, 32000),
    "Llama-2-7B": _llama(4096, 32, 32, 32, 11008, 32000),
}
WAYS: dict[str, dict[str, Any]] = {
    "all masks": {"method": "deltamask", "select": "all: weights"},
    "default masks": {"method": "deltamask", "select": "auto"},
    "lora": {"method": "fedpeft", "tuning": "lora", "codec": "eden", "down_codec": "eden"},
}
"""How the network is fine-tuned, by name: the keys of the run."""
COUNTED = [(name, way) for name in (*SMALL, *LARGE) for way in WAYS]
MEASURED = [(name, way) for name, way in COUNTED if name in SMALL and (name != "ViT-L/32" or way == "all masks")]


def counted(name: str, way: str) -> dict[str, Any]:
    """From the configuration alone. What codecs of masks spend depends on the bits: one bit a weight is the most."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps({**SMALL, **LARGE}[name]))
        if way == "lora":
            [row] = parameter_counts(str(path), "lora", None, [], codec="eden", examples=BATCH)
            used = row["memory"]
            found = {key: row[key] for key in ("trained", "total", "up_bytes", "down_bytes")}
            return {**found, "memory": used["client"], "example": used["example"]}
        selection = "all: weights" if way == "all masks" else "last 5 blocks: weights"
        masked = count(str(path), None, lambda module: selection, activations=True)
        memory = masked.memory(FedPeftParameters().optimiser_vectors, BATCH)
        most = HEADER_BYTES + -(-masked.trained // 8) if masked.trained < MAXIMUM_SIZE else None
        found = {"trained": masked.trained, "total": masked.total, "up_bytes": most}
        return {**found, "memory": memory, "example": masked.example}


@torch_randomness(0)
def measure(name: str, way: str) -> dict[str, Any]:
    """In this process."""
    from transformers import ViTConfig, ViTModel

    sizes = ViTConfig(**{key: value for key, value in SMALL[name].items() if key != "model_type"})
    libraries = peak_bytes()
    module = Classifier(ViTModel(sizes, add_pooling_layer=False), torch.nn.Linear(sizes.hidden_size, CLASSES), "cls")
    data = random_images(BATCH * BATCHES, (3, sizes.image_size, sizes.image_size))
    floats = type(data)(data.inputs.float() / 255, data.labels)
    problem = problem_of(module, floats, 1, floats.select(np.arange(2)))
    keys = {**WAYS[way], "head": "keep", "clients": 1, "rounds": ROUNDS, "batch_size": BATCH, "evaluate_every": ROUNDS}
    summary = run_job(problem, resolve({**keys, "threads": torch.get_num_threads(), "cache": "off"})).summary
    gigabytes = {"libraries_gb": libraries / 1e9, "peak_gb": peak_bytes() / 1e9}
    return {"trained": summary["parameters"], **gigabytes, "uplink_bpp": summary["uplink_bpp"]}


def peak_bytes() -> int:
    """The largest resident memory of this process so far. `ru_maxrss` also has that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def main(output: Path, only: list[str]) -> None:
    before = json.loads(output.read_text())["rows"] if only else []
    known = {(row["network"], row["way"]): row for row in before}
    for name, way in COUNTED:
        if only and not {name, way} & set(only):
            continue
        row = {"network": name, "way": way, "counted": counted(name, way)}
        if (name, way) in MEASURED:
            row["measured"] = run_child(["-m", "benchmarks.bench.models", "one", name, way], variables=ONE_THREAD).found
        print(json.dumps(row), file=sys.stderr, flush=True)
        known[name, way] = row
    rows = [known[case] for case in COUNTED if case in known]
    found = {"batch": BATCH, "target_gb": MOST_GB, "versions": versions(), "rows": rows}
    replace_file(output, (json.dumps(found, indent=2) + "\n").encode())


if __name__ == "__main__":
    if sys.argv[1] == "one":
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
