"""Real SuperLinks and SuperNodes on loopback: nodes and the server are killed and restarted. Takes minutes each."""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.local_deployment import LocalDeployment

from chaos.trial import COUNTED, EQUAL, FailedError, Outcome, Trial
from subbit.config.resolve import resolve
from subbit.core.errors import SubbitError
from subbit.core.pieces import as_words, flattened

DEADLINE = 60
PATIENCE = 400.0


def deployment(trial: Trial) -> Outcome:
    """Two nodes of a small job, disturbed once or twice at random times; then the run must finish."""
    trial.choose_job("deltamask-lda", "fedavg-eden", workers=1)
    trial.words = [*(word for word in trial.words if not word.startswith("clients=")), "clients=2"]
    place = trial.folder / "deployed"
    trial.ours.append(place)
    place.mkdir()
    settings = resolve({}, [*trial.words, f"deadline={DEADLINE}"])
    job = {key: value for key, value in vars(settings.run).items() if key not in ("name", "folder")}
    job |= flattened(as_words(settings.parameters))
    faults = [trial.random.choice(("node", "node", "server")) for _ in range(trial.random.choice((1, 1, 2)))]
    with LocalDeployment(place, job, secure=False) as deployed:
        link = deployed.superlink()
        nodes = [deployed.supernode(node) for node in range(2)]
        deployed.submit()
        for fault in faults:
            rounds, pause = trial.random.randint(0, 3), trial.random.random() * 3
            deployed.until(
                lambda rounds=rounds: len(deployed.rounds()) >= rounds or _over(deployed), "rounds", PATIENCE
            )
            time.sleep(pause)
            trial.say(f"{fault} is killed {pause:.1f} s after {rounds} rounds")
            if fault == "node":
                victim = trial.random.randrange(2)
                deployed.kill(nodes[victim])
                time.sleep(trial.random.random() * 2)
                nodes[victim] = deployed.supernode(victim)
            elif not _over(deployed):
                deployed.kill(link)
                link = deployed.superlink()
                deployed.submit()
        try:
            summary = deployed.finish()
        except SubbitError as error:
            raise FailedError(str(error)[-3000:]) from None
        return _judge(trial, deployed, summary)


def _over(deployed: LocalDeployment) -> bool:
    return (deployed.results / "summary.json").exists()


def _judge(trial: Trial, deployed: LocalDeployment, summary: dict[str, Any]) -> Outcome:
    if left := list(deployed.results.rglob("*.tmp")):
        raise FailedError(f"left {left}")
    trial.same_as_failed(summary, deployed.results)
    json.loads((deployed.results / "summary.json").read_text())
    return Outcome(COUNTED, str(summary["failures"])) if summary["failures"] else Outcome(EQUAL)
