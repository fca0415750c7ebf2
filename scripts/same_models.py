"""Check that every method still gives the same model and the same bytes. One small job per method, preset and option.

    python scripts/same_models.py            compare with scripts/same_models.json; exit 1 if anything differs
    python scripts/same_models.py --write    write that file: before a change that must not change a result

A job is two rounds on a few hand-written digits. Compared are the SHA-256 of the trained network and of the ledger,
which has the length of every frame. Matrix products may differ in their last bits between machines, so write the file
on the machine on which you compare.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from subbit.config.resolve import resolve
from subbit.core.errors import SubbitError
from subbit.core.files import replace_file
from subbit.methods.names import method_names
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

KNOWN = Path(__file__).with_suffix(".json")
SMALL = {"dataset": "digits", "limit": 120, "test_limit": 60, "clients": 4, "rounds": 2, "participation": 0.75}
PERCEPTRON = {**SMALL, "model": "mlp", "head": "keep", "batch_size": 16}
TRANSFORMER = {**SMALL, "model": "subbit/vit-micro", "limit": 40, "test_limit": 20, "head": "lda", "batch_size": 16}
DOWN = {"codec": "eden", "down_codec": "eden"}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "controlled-flips": [{"aggregator": "trimmed"}],
    "deltamask": [
        {"codec": "flips", "head": "probe", "model": "subbit/vit-micro", "limit": 40, "test_limit": 20},
        {"coupling": "independent"},
        {"kappa": 0.5, "codec": "bfuse"},
        {"trim": 0.2},
    ],
    "fedavg": [
        {"optimizer": "sgd", "learning_rate": 0.05},
        {"codec": "int8"},
        {"codec": "ternary", "down_codec": "topk"},
        {"codec": "qsgd", "down_codec": "drive"},
        {**DOWN, "bits": 0.5, "down_bits": 0.5},
        {"aggregator": "median"},
        {"aggregator": "trimmed", "clip_norm": 0.5},
        {"selection": "high-loss", "participation": 0.5},
        {"privacy": "per-step", "epsilon": 5.0, "delta": 1e-3},
        {"gradient_clip": 1.0, "schedule": "cosine"},
    ],
    "fedpeft": [
        *({**TRANSFORMER, "tuning": tuning} for tuning in ("full", "bias", "adapter", "prompt", "prefix", "lora")),
        {**TRANSFORMER, "tuning": "lora", "lora_mean": "product"},
        {**TRANSFORMER, "tuning": "bias", "regulariser": "moon"},
        {**TRANSFORMER, "tuning": "lora", **DOWN},
    ],
    "gradmask": [{"mask": mask} for mask in ("least-sensitive", "most-sensitive", "lowest-magnitude")],
    "lg-fedavg": [{"down_codec": "topk"}],
    "subbit": [{"bits_per_round": 4000}, {"aggregator": "median"}],
    "zampling": [{"training": "continuous"}, {"codec": "dense"}],
}
"""In addition to the defaults and the paper's preset of every method."""


def jobs() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for method in method_names():
        variants = [{}, {"preset": "paper"}, *OPTIONS.get(method, [])]
        for options in variants:
            base = TRANSFORMER if method == "fedpeft" else PERCEPTRON
            words = " ".join(f"{key}={value}" for key, value in options.items() if base.get(key) != value)
            found[f"{method} {words}".strip()] = {**base, "method": method, **options}
    return found


def outcome(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The hashes, or the error if there is one: rejected settings must stay rejected."""
    try:
        settings = resolve({**values, "folder": str(folder), "name": "job"})
        made = RunFolder.create(settings, "")
        summary = run_job(build_problem(settings.run), settings, made).summary
    except SubbitError as error:
        return {"error": str(error)}
    ledger = hashlib.sha256((made.path / "ledger.csv").read_bytes()).hexdigest()
    return {"model": summary["model_sha256"], "ledger": ledger, "bytes": summary["total_bytes"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="only these")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    known: dict[str, Any] = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    found = {}
    for name, values in jobs().items():
        if given.methods and values["method"] not in given.methods:
            continue
        with tempfile.TemporaryDirectory(prefix="subbit-same-") as scratch:
            found[name] = outcome(values, Path(scratch))
        state = "new" if name not in known else "same" if known[name] == found[name] else "DIFFERENT"
        print(f"{state:9} {name}  {found[name].get('model', found[name].get('error'))[:60]}", flush=True)
    if given.write:
        replace_file(KNOWN, (json.dumps({**known, **found}, indent=1, sort_keys=True) + "\n").encode())
    elif any(known.get(name) != each for name, each in found.items()):
        sys.exit("some models or ledgers are not what they were")


if __name__ == "__main__":
    main()
