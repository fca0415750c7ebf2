"""experiments/language.toml with other ways of tuning, beside a plain loop of torch and peft: perplexity and bytes.

    SUBBIT_DATA=... python benchmarks/language.py                   two or three minutes a row on two free cores
    python benchmarks/language.py --rows "LoRA, one bit" "plain loop"       these rows again, the others are kept
    python benchmarks/language.py "dataset=shakespeare?plays=histories&spelling=folio&roles=16" --try
    python benchmarks/render_language.py                            the table of docs/language-models.md

Settings were chosen with `--try` on the roles of the histories, which no row of the table uses.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain_lora import Plan, Rows, central, federated, mean_perplexity, with_lora

from subbit.config.resolve import Settings, read_toml, resolve
from subbit.core.files import replace_file
from subbit.data.examples import Data
from subbit.models.language import load_language_model
from subbit.peft.targets import find_targets
from subbit.runtime.problem import build_problem
from subbit.runtime.run import run_job

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "language.json"
EXPERIMENT = ROOT / "experiments" / "language.toml"
ONE_BIT = {"codec": "eden", "bits": 1, "down_codec": "eden", "down_bits": 1}
COMMON = {"batch_size": 8, "schedule": "cosine"}
RUNS: dict[str, dict[str, Any]] = {
    "LoRA, one bit": {},
    "LoRA, float32": {"without": ("codec", "bits", "down_codec", "down_bits")},
    "biases, one bit": {"fedpeft": {"tuning": "bias", "learning_rate": 0.005, **ONE_BIT, **COMMON}},
    "FedAvg, all weights, float32": {"fedavg": {"select": "all", "optimizer": "adam", "learning_rate": 5e-4, **COMMON}},
    "FedAvg, all weights, one bit": {
        "fedavg": {"select": "all", "optimizer": "adam", "learning_rate": 5e-4, **ONE_BIT, **COMMON}
    },
    "masks, DeltaMask": {"deltamask": {"select": "last 4 blocks: weights", "batch_size": 8}},
    "masks, sparse": {"sparse-masks": {"select": "last 4 blocks: weights", "batch_size": 8}},
}
"""Changes of the experiment: the table of a method, which then is the method, or keys without which it runs."""
PLAIN = {"plain loop": federated, "plain loop, central": central}
KEPT = ("parameters", "clients", "participants", "rounds", "score_before", "score", "score_by_round", "uplink_bpp")
KEPT += ("downlink_bpp", "uplink_bytes", "downlink_bytes", "one_off_bytes", "total_bytes", "seconds", "versions")


def settings_of(row: Mapping[str, Any], words: list[str]) -> Settings:
    values = read_toml(EXPERIMENT)
    own = dict(values.pop("fedpeft"))
    without = row.get("without", ())
    table = {key: value for key, value in row.items() if key != "without"}
    table = table or {"fedpeft": {key: value for key, value in own.items() if key not in without}}
    return resolve({**values, "method": next(iter(table)), **table}, words)


def run(row: Mapping[str, Any], words: list[str]) -> dict[str, Any]:
    settings = settings_of(row, words)
    summary = run_job(build_problem(settings.run), settings).summary
    return {key: summary[key] for key in KEPT}


def plain(name: str, words: list[str]) -> dict[str, Any]:
    """The same clients, steps, batch size, rates and layers as the experiment's run."""
    torch.set_num_threads(1)
    settings = settings_of({}, words)
    parameters: Any = settings.parameters
    problem = build_problem(settings.run)
    clients = [rows_of(problem.client_data(client)) for client in range(problem.clients)]
    tests = [rows_of(problem.test.batch(problem.own_test(client))) for client in range(problem.clients)]
    base = load_language_model(settings.run.model, key=0)
    plan = Plan(
        rounds=settings.run.rounds,
        participants=max(1, round(settings.run.participation * problem.clients)),
        batch_size=parameters.local.batch_size,
        learning_rate=parameters.local.rate,
        rank=parameters.tuning.lora_rank,
        alpha=parameters.tuning.lora_alpha,
        targets=tuple(find_targets(base, parameters.tuning.lora_targets)),
        cosine=parameters.local.schedule == "cosine",
        seed=settings.run.seed,
    )
    model = with_lora(base, plan)
    before, started = mean_perplexity(model, tests), time.monotonic()
    PLAIN[name](model, clients, plan)
    seconds = time.monotonic() - started
    return {"score_before": before, "score": mean_perplexity(model, tests), "seconds": round(seconds, 1)}


def rows_of(data: Data) -> Rows:
    tensors = data.batch(np.arange(len(data))).tensors()
    return tensors["input_ids"], tensors["attention_mask"]


def measure(name: str, words: list[str]) -> dict[str, Any]:
    print(f"{name} ...", flush=True)
    found = plain(name, words) if name in PLAIN else run(RUNS[name], words)
    print(f"  perplexity {found['score_before']:.2f} -> {found['score']:.2f}, {found['seconds']:.0f} s", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="See the top of this file.")
    parser.add_argument("--rows", nargs="+", choices=[*RUNS, *PLAIN], default=[*RUNS, *PLAIN])
    parser.add_argument("--try", dest="only_try", action="store_true", help="print the results and write nothing")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("words", nargs="*", help="key=value for all runs; needs --try")
    arguments = parser.parse_intermixed_args()
    if arguments.words and not arguments.only_try:
        parser.error("key=value needs --try: the table is of the experiment as it is")
    rows = json.loads(arguments.output.read_text())["rows"] if arguments.output.exists() else {}
    for name in arguments.rows:
        found = measure(name, arguments.words)
        rows[name] = {key: value for key, value in found.items() if key != "seconds"}  # Of a machine with other work.
        if not arguments.only_try:
            replace_file(arguments.output, (json.dumps({"rows": rows}, indent=2) + "\n").encode())
