"""A run from start to end: fit the head, then round after round, evaluated and written down, resumable after each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from subbit.config.load import Settings
from subbit.errors import ConfigError, RunFolderError
from subbit.report.folder import RunFolder
from subbit.runtime.engines import Engine, InProcess, Workers
from subbit.runtime.evaluation import evaluate, is_personal
from subbit.runtime.problem import Problem
from subbit.runtime.round import RoundReport, ServerState, run_round
from subbit.runtime.summary import summarise
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger


@dataclass(frozen=True)
class Progress:
    """What a progress bar shows after a round."""

    phase: str
    round_number: int
    rounds: int
    accuracy: float | None
    uplink_bpp: float
    total_bytes: int


@dataclass(frozen=True)
class Result:
    """`summary` is what `summary.json` holds; `module` is the trained network."""

    summary: dict[str, Any]
    module: nn.Module

    def __getattr__(self, name: str) -> Any:
        if name in ("summary", "module") or name not in self.summary:
            raise AttributeError(name)
        return self.summary[name]


def run_job(
    problem: Problem,
    settings: Settings,
    folder: RunFolder | None = None,
    *,
    resume: bool = False,
    report: Callable[[Progress], None] | None = None,
    make_engine: Callable[[Workplace], Engine] | None = None,
) -> Result:
    """Run, or go on with, one job. Without a folder nothing is written and nothing can be resumed.

    `make_engine` replaces the choice between this process and several by any other way to reach the clients.
    """
    started = time.monotonic()
    workplace = Workplace(problem, settings)
    state, ledger, events = _begin(workplace, folder, resume)
    engine = (make_engine or _simulator)(workplace)
    try:
        if state.phase == "head":
            _fit_head(workplace, state, engine, ledger, events)
            _save(folder, state, ledger, events)
        _main_phase(workplace, state, engine, ledger, events, folder, report)
        method = workplace.method("main")
        networks = (method.primary_network,) if is_personal(workplace) else method.networks
        accuracies = {network: evaluate(workplace, engine, state, network) for network in networks}
    finally:
        engine.close()
    summary = summarise(workplace, state, ledger, events, accuracies, time.monotonic() - started)
    if folder is not None:
        folder.write_summary(summary)
    return Result(summary, workplace.module)


def _simulator(workplace: Workplace) -> Engine:
    run = workplace.settings.run
    if run.engine != "simulator":
        raise ConfigError(f"engine={run.engine}: the job of a configuration only, see subbit run and docs/flower.md")
    if run.workers == 1:
        return InProcess(workplace, run.threads)
    return Workers(workplace.problem, workplace.settings)


def _begin(
    workplace: Workplace, folder: RunFolder | None, resume: bool
) -> tuple[ServerState, Ledger, list[dict[str, Any]]]:
    if resume:
        if folder is None:
            raise RunFolderError("resuming needs a run folder")
        return folder.read_state()
    if workplace.fits_head:
        return ServerState("head", 0, workplace.method("head").start()), Ledger(), []
    return ServerState("main", 0, workplace.method("main").start()), Ledger(), []


def _fit_head(
    workplace: Workplace, state: ServerState, engine: Engine, ledger: Ledger, events: list[dict[str, Any]]
) -> None:
    """The head phase: one round of its own. Afterwards the state is that of the main phase before its first round."""
    started = time.monotonic()
    method = workplace.method("head")
    quorum = workplace.settings.run.quorum
    report = run_round(method, state, engine, ledger, workplace.problem.clients_with_data(), quorum, None)
    head = state.method["head"]
    state.head = None if isinstance(head, int | float) else head
    main = workplace.method("main")
    workplace.write_head(state.head)
    state.phase, state.next_round, state.method = "main", 0, main.start()
    events.append(_event("head", 0, report, None, time.monotonic() - started))


def _main_phase(
    workplace: Workplace,
    state: ServerState,
    engine: Engine,
    ledger: Ledger,
    events: list[dict[str, Any]],
    folder: RunFolder | None,
    report: Callable[[Progress], None] | None,
) -> None:
    run, method = workplace.settings.run, workplace.method("main")
    head_frame = workplace.pack_head(state.head) if workplace.sends_head and state.head is not None else None
    if not any(event["event"] == "before" for event in events):
        before = evaluate(workplace, engine, state, method.primary_network, before=True)
        events.append({"event": "before", "accuracy": before.mean})
    while state.next_round < run.rounds:
        started, number = time.monotonic(), state.next_round
        clients = workplace.problem.clients_with_data()
        outcome = run_round(method, state, engine, ledger, clients, run.quorum, head_frame, workplace.drawn)
        accuracy = None
        if (number + 1) % run.evaluate_every == 0 or number + 1 == run.rounds:
            accuracy = evaluate(workplace, engine, state, method.primary_network).mean
        events.append(_event("main", number, outcome, accuracy, time.monotonic() - started))
        events[-1]["uplink_bpp"] = ledger.uplink_bpp(method.size)
        events[-1]["total_bytes"] = ledger.totals.total_bytes
        _save(folder, state, ledger, events)
        if report is not None:
            report(Progress("main", number, run.rounds, accuracy, events[-1]["uplink_bpp"], events[-1]["total_bytes"]))


def _event(phase: str, number: int, report: RoundReport, accuracy: float | None, seconds: float) -> dict[str, Any]:
    return {
        "event": "round",
        "phase": phase,
        "round": number,
        "participants": list(report.participants),
        "answered": len(report.answered),
        "failures": [
            {"client": client, "cause": failure.cause, "message": failure.message}
            for client, failure in sorted(report.failures.items())
        ],
        "observations": report.observations,
        "accuracy": accuracy,
        "seconds": round(seconds, 3),
    }


def _save(folder: RunFolder | None, state: ServerState, ledger: Ledger, events: list[dict[str, Any]]) -> None:
    if folder is not None:
        folder.write_state(state, ledger, events)
