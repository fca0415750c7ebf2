"""A finished run in numbers: what `summary.json` holds."""

from __future__ import annotations

import platform
from collections import Counter
from importlib.metadata import version
from typing import Any

from subbit.models import model_sha256
from subbit.privacy.report import privacy_report
from subbit.randomness import derive_key
from subbit.report.link import SECONDS_PER_HOUR
from subbit.runtime.evaluation import Accuracy
from subbit.runtime.round import ServerState
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger


def summarise(
    workplace: Workplace,
    state: ServerState,
    ledger: Ledger,
    events: list[dict[str, Any]],
    accuracies: dict[str, Accuracy],
    seconds: float,
) -> dict[str, Any]:
    run, method, problem = workplace.settings.run, workplace.method("main"), workplace.problem
    workplace.write_network(
        state.method, method.primary_network, derive_key(run.seed, "evaluation", run.rounds), state.head
    )
    workplace.module.eval()
    rounds = [event for event in events if event["event"] == "round"]
    failures = [failure for event in rounds for failure in event["failures"]]
    observations = [event["observations"] for event in rounds if event["phase"] == "main"]
    totals, split = ledger.totals, problem.split_summary()
    summary: dict[str, Any] = {
        "name": run.name,
        "method": run.method,
        "preset": run.preset,
        "model": problem.model_name,
        "pretrained": problem.pretrained,
        "dataset": problem.dataset_name,
        "split": split.fingerprint,
        "clients": problem.clients,
        "participants": method.task.participants,
        "rounds": run.rounds,
        "seed": run.seed,
        "parameters": method.size,
        "accuracy": accuracies[method.primary_network].mean,
        "accuracy_before": next(event["accuracy"] for event in events if event["event"] == "before"),
        "network": method.primary_network,
        "uplink_bpp": ledger.uplink_bpp(method.size),
        "downlink_bpp": ledger.downlink_bpp(method.size),
        "uplink_bytes": totals.uplink_bytes,
        "downlink_bytes": totals.downlink_bytes,
        "one_off_bytes": totals.one_off_bytes,
        "total_bytes": totals.total_bytes,
        "failed_clients": len(failures),
        "failures": dict(sorted(Counter(failure["cause"] for failure in failures).items())),
        "codecs": {
            "up": [part.codec.name for part in method.up_parts()],
            "down": [part.codec.name for part in method.down_parts()],
        },
        "accuracy_by_round": [event["accuracy"] for event in rounds if event["phase"] == "main"],
        "bytes_by_round": [event["total_bytes"] for event in rounds if event["phase"] == "main"],
        "seconds": round(sum(event["seconds"] for event in rounds), 2),
        "seconds_this_process": round(seconds, 2),
        "model_sha256": model_sha256(workplace.module),
        "versions": versions(),
    }
    if len(accuracies) > 1:
        summary |= {f"accuracy_{network}": accuracy.mean for network, accuracy in accuracies.items()}
    by_client = accuracies[method.primary_network].by_client
    if by_client is not None:
        summary["accuracy_by_client"] = {str(client): accuracy for client, accuracy in by_client.items()}
    missing = Counter(failure.cause for accuracy in accuracies.values() for failure in accuracy.failures.values())
    missing += Counter(failure["cause"] for event in rounds for failure in event.get("not_evaluated", ()))
    if missing:
        # Clients with a network of their own that could not say how good it is: the mean is over the others.
        summary["not_evaluated"] = dict(sorted(missing.items()))
    if run.link_mbit is not None:
        summary["link_mbit"] = run.link_mbit
        summary["link_hours"] = sum(event["link_seconds"] for event in rounds) / SECONDS_PER_HOUR
    if method.mechanism is not None:
        turns = Counter(client for event in rounds for client in event["participants"])
        examples = {client: len(problem.parts[client]) for client in turns}
        summary["privacy"] = privacy_report(method.mechanism, examples, turns)
    for name in ("flips", "flips_kept", "false_flips"):
        values = [observation[name] for observation in observations if name in observation]
        if values:
            summary[f"{name}_per_upload"] = sum(values) / len(values)
    return summary


def versions() -> dict[str, str]:
    packages = ("subbit", "torch", "numpy", "numba", "transformers")
    return {"python": platform.python_version(), **{package: version(package) for package in packages}}
