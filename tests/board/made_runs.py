"""Run folders as runs write them, made without running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = 'name = "{name}"\nmethod = "deltamask"\nmodel = "mlp"\ndataset = "digits"\nrounds = {rounds}\nclients = 4\n'


def round_line(number: int, **values: Any) -> str:
    score = round(0.5 + 0.04 * number, 4)
    line = {
        "event": "round", "phase": "main", "round": number, "participants": [0, 1, 2, 3], "answered": 4, "failures": [],
        "observations": {"loss": 1.0}, "score": score, "seconds": 0.5, "scores": {"accuracy": score, "loss": 1.0},
        "accuracy": score, "losses": {str(client): 1.0 for client in range(4)}, "uplink_bpp": 0.1,
        "total_bytes": 5000 * (number + 1), "uplink_bytes": 2000 * (number + 1), "downlink_bytes": 3000 * (number + 1),
    }  # fmt: skip
    return json.dumps({**line, **values}) + "\n"


BEFORE = json.dumps({"event": "before", "score": 0.1, "scores": {"accuracy": 0.1}, "accuracy": 0.1}) + "\n"


def summary(name: str, rounds: int) -> dict[str, Any]:
    return {
        "schema": 1, "name": name, "method": "deltamask", "model": "mlp", "dataset": "digits", "clients": 4,
        "rounds": rounds, "score_name": "accuracy", "score": 0.9, "uplink_bytes": 2000, "downlink_bytes": 3000,
        "total_bytes": 5000, "failed_clients": 1, "score_by_round": [0.9] * rounds, "bytes_by_round": [5000] * rounds,
    }  # fmt: skip


def make_run(folder: Path, name: str, done: int = 3, rounds: int = 3) -> Path:
    """Finished if all rounds are done; otherwise as a run that was interrupted leaves it."""
    run = folder / name
    run.mkdir(parents=True)
    (run / "config.toml").write_text(CONFIG.format(name="x", rounds=rounds))
    (run / "events.jsonl").write_text(BEFORE + "".join(map(round_line, range(done))))
    (run / "lock").touch()
    if done == rounds:
        (run / "summary.json").write_text(json.dumps(summary(name, rounds)))
    return run


def asked(number: int, clients: list[int], at: float = 1.0) -> str:
    line = {"event": "asked", "at": at, "phase": "main", "round": number, "purpose": "train", "clients": clients}
    return json.dumps(line) + "\n"


def replied(client: int, **values: Any) -> str:
    return json.dumps({"event": "replied", "client": client, "seconds": 0.1, "bytes": 1000, **values}) + "\n"
