"""Small run folders by hand, as a run of this version writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028&\"'"


def summary(**values: Any) -> dict[str, Any]:
    found = {
        "schema": 1, "name": "a", "method": "deltamask", "preset": "default", "model": "mlp", "pretrained": False,
        "dataset": "digits", "split": "0" * 16, "clients": 3, "participants": 3, "rounds": 3, "seed": 0,
        "parameters": 1184, "objective": "classification", "score_name": "accuracy", "higher_is_better": True,
        "score": 0.8125, "score_before": 0.125, "scores": {"accuracy": 0.8125, "loss": 0.5}, "network": "expected",
        "uplink_bpp": 0.0937, "downlink_bpp": 1.8021, "uplink_bytes": 600, "downlink_bytes": 6000,
        "one_off_bytes": 90, "total_bytes": 6690, "failed_clients": 0, "failures": {},
        "codecs": {"up": ["rice"], "down": ["dense"]}, "score_by_round": [0.25, None, 0.8125],
        "bytes_by_round": [2290, 4490, 6690], "seconds": 1.5, "seconds_this_process": 2.0, "model_sha256": "ab" * 32,
        "versions": {"python": "3.11", "subbit": "0.1.0"}, "warnings": [],
    }  # fmt: skip
    return found | values


def event(number: int, score: float | None, failures: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "event": "round", "phase": "main", "round": number, "participants": [0, 1, 2],
        "answered": 3 - len(failures or []), "failures": failures or [], "observations": {"loss": 1.0},
        "score": score, "seconds": 0.5, "uplink_bpp": 0.09, "total_bytes": 90 + 2200 * (number + 1),
    }  # fmt: skip


def make_run(
    path: Path,
    found: dict[str, Any] | None,
    events: list[dict[str, Any]] | None = None,
    *,
    config: str = 'name = "a"\nmethod = "deltamask"\nrounds = 3\n',
    part: str = "flips",
    **side_files: Any,
) -> Path:
    """`side_files` by name without `.json`. Without `found` the run is not finished."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.toml").write_text(config)
    (path / "split.txt").write_text("clients      3 (0 empty)\n")
    if found is not None:
        (path / "summary.json").write_text(json.dumps(found))
    before = {"event": "before", "score": 0.125, "scores": {"accuracy": 0.125}}
    lines = [before, *([event(0, 0.25), event(1, None), event(2, 0.8125)] if events is None else events)]
    (path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = ["phase,round_number,client,direction,part,codec,frame_bytes,one_off"]
    rows += [f"main,{number},{client},up,{part},rice,66,0" for number in range(3) for client in range(3)]
    rows += [f"main,{number},{client},down,theta,dense,666,0" for number in range(3) for client in range(3)]
    rows += [f"head,0,{client},up,head,dense,30,1" for client in range(3)]
    (path / "ledger.csv").write_text("\n".join(rows) + "\n")
    for name, content in side_files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


SPLIT = {"schema": 1, "fingerprint": "0" * 16, "sizes": [5, 7], "classes": 3, "held": [{"0": 5}, {"1": 3, "2": 4}]}
MASK = {
    "schema": 1,
    "kind": "mask",
    "network": "thresholded",
    "layers": [{"name": "0.weight", "size": 64, "density": 0.75, "flips": 0.25}],
}
CHANGE = {
    "schema": 1,
    "kind": "change",
    "network": "trained",
    "layers": [{"name": "0.weight", "size": 64, "change": 0.5}, {"name": "0.bias", "size": 8}],
}
