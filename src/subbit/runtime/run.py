"""A run from start to end: fits the head, then runs, evaluates and records the rounds; resumable after each."""

from __future__ import annotations

import secrets
import tempfile
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from subbit.config.resolve import Settings
from subbit.config.schema import GIVEN
from subbit.core.busy import busy_with
from subbit.core.devices import find_device
from subbit.core.errors import ConfigError, RunFolderError
from subbit.core.interrupts import stop_if_interrupted
from subbit.core.json_records import as_json
from subbit.core.machine import torch_threads
from subbit.models.select import restore_frozen
from subbit.runtime.client_memory import ClientMemories, Memories, MemoriesInRam
from subbit.runtime.engines import Engine, InProcess, Workers
from subbit.runtime.evaluation import Evaluation, asks_clients, evaluate
from subbit.runtime.events import Before, Event, Failed, HeadRound, MainRound
from subbit.runtime.folder import RunFolder
from subbit.runtime.layer_changes import layer_changes
from subbit.runtime.link import link_seconds
from subbit.runtime.live import FollowedEngine, LiveFile
from subbit.runtime.messages import Failure, Phase
from subbit.runtime.networks import Networks, network_of
from subbit.runtime.problem import Problem
from subbit.runtime.round import Cohort, RoundReport, ServerState, run_round
from subbit.runtime.run_result import Result as Result
from subbit.runtime.run_result import Trained
from subbit.runtime.summarise import summarise
from subbit.runtime.tracked import Trackers, tracked_run
from subbit.runtime.workplace import Workplace
from subbit.wire.ledger import Ledger

Events = list[Event]


@dataclass(frozen=True)
class Progress:
    """The progress after a round, for a progress bar."""

    phase: str
    round_number: int
    rounds: int
    score: float | None
    score_name: str
    uplink_bpp: float
    total_bytes: int
    seconds: float
    """Of this round, with its evaluation."""
    sent_bytes: int
    """Up and down so far, without one-off costs."""


@dataclass(frozen=True)
class _Journal:
    """Where it is written what happens."""

    folder: RunFolder | None
    trackers: Trackers
    report: Callable[[Progress], None] | None

    def save(self, state: ServerState, ledger: Ledger, events: Events) -> None:
        if self.folder is not None:
            self.folder.write_state(state, ledger, events)
        else:
            ledger.take()
        self.trackers.follow(events)  # Only of what is saved: a run that is killed now does not do it again.


def run_job(
    problem: Problem,
    settings: Settings,
    folder: RunFolder | None = None,
    *,
    resume: bool = False,
    report: Callable[[Progress], None] | None = None,
    make_engine: Callable[[Workplace], Engine] | None = None,
) -> Result:
    """Run or resume one job. Without a folder nothing is written and the run cannot be resumed.

    The settings of a run with a folder are the folder's, except for `track`. `make_engine` replaces the default engines
    (this process or several) by another way to reach the clients. The folder is released at the end.
    """
    started, track = time.monotonic(), settings.run.track
    with ExitStack() as for_clients, ExitStack() as cleanup:
        if folder is not None:
            cleanup.callback(folder.release)
            settings = folder.settings
        # The server computes too, and its number of threads may change the last bits, as in a worker.
        cleanup.enter_context(torch_threads(settings.run.threads))
        job = folder.job if folder is not None else secrets.token_hex(16)
        tracked = tracked_run(settings, job, None if folder is None else folder.path)
        journal = _Journal(folder, Trackers(track, tracked, resume=resume), report)
        # With workers or nodes this process trains nothing, and needs no GPU.
        trains_here = make_engine is None and settings.run.workers == 1
        device = find_device(settings.run.device if trains_here else "cpu")
        memories = _memories(settings, folder, for_clients)
        workplace = Workplace(problem, settings, job, memories, device, share=True)
        state, ledger, events = _begin(workplace, folder, resume)
        live = None if folder is None else cleanup.enter_context(LiveFile(folder.path))
        engine = (make_engine or _simulator)(workplace)
        cleanup.callback(engine.close)
        engine = engine if live is None else FollowedEngine(engine, live)
        cleanup.callback(journal.trackers.stop)
        journal.trackers.start()
        if state.phase == "head":
            _fit_head(workplace, state, engine, ledger, events)
            journal.save(state, ledger, events)
        last = _main_phase(workplace, state, engine, ledger, events, journal)
        method = workplace.method("main")
        alone = asks_clients(workplace) or workplace.settings.run.evaluate == "personal"
        networks = (method.primary_network,) if alone else method.networks
        busy_with("scoring the trained network")
        known = {} if last is None else {method.primary_network: last}
        evaluations = {
            network: known.get(network) or evaluate(workplace, engine, state, network) for network in networks
        }
        layers = None if folder is None else layer_changes(workplace, state)
        numbers = summarise(workplace, state, ledger, events, evaluations, time.monotonic() - started)
        summary = as_json(numbers)
        if folder is not None:
            folder.write_summary(summary, layers)
        journal.trackers.follow(events)
        journal.trackers.finish(summary)
        personal: Networks | None = None
        if method.personal:
            personal = Networks(problem, settings, workplace.memories, job, state)
            weakref.finalize(personal, for_clients.pop_all().close)  # They are made from the clients' memories.
    workplace.module.cpu()
    if settings.run.model == GIVEN:  # Whose module it is may change it.
        workplace.part()
    restore_frozen(workplace.module)
    network = network_of(workplace, method.primary_network, state.next_round)
    main = tuple(event for event in events if isinstance(event, MainRound))
    return Result(summary, workplace.module, numbers, Trained(network, personal, main))


def _memories(settings: Settings, folder: RunFolder | None, cleanup: ExitStack) -> Memories:
    """Where simulated clients keep their memories: in the run folder or, without one, until `cleanup`."""
    if folder is not None:
        return ClientMemories(folder.memory, durable=False)
    if settings.run.workers == 1:
        return MemoriesInRam()
    return ClientMemories(Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="subbit-"))), durable=False)


def _simulator(workplace: Workplace) -> Engine:
    run = workplace.settings.run
    if run.engine != "simulator":
        raise ConfigError(f"engine={run.engine}: the job of a configuration only, see subbit run and docs/flower.md")
    return InProcess(workplace, run.threads) if run.workers == 1 else Workers(workplace)


def _begin(workplace: Workplace, folder: RunFolder | None, resume: bool) -> tuple[ServerState, Ledger, Events]:
    phase: Phase = "head" if workplace.fits_head else "main"
    start = ServerState(phase, 0, workplace.method(phase).start(), nodes=workplace.problem.nodes)
    if not resume:
        return start, Ledger(), []
    if folder is None:
        raise RunFolderError("resuming needs a run folder")
    state, ledger, events = folder.read_state()
    workplace.problem.nodes.update(state.nodes)
    state.nodes = workplace.problem.nodes
    _refuse_foreign_state(workplace, state, folder)
    return state, ledger, events


def _refuse_foreign_state(workplace: Workplace, state: ServerState, folder: RunFolder) -> None:
    """Reject an intact checkpoint that does not belong to this job, e.g. written by another version of the method. A
    method's initial entries must be present; it may add others, e.g. clients' structures."""
    expected = {name: np.shape(value) for name, value in workplace.method(state.phase).start().items()}
    found = {name: np.shape(value) for name, value in state.method.items() if name in expected}
    if expected != found or not 0 <= state.next_round <= workplace.settings.run.rounds:
        raise RunFolderError(
            f"the checkpoint of {folder.path} does not fit its configuration: after round {state.next_round} of "
            f"{workplace.settings.run.rounds} it holds {found}, expected {expected}; start the run again"
        )


def _fit_head(workplace: Workplace, state: ServerState, engine: Engine, ledger: Ledger, events: Events) -> None:
    """The head phase: a single round. Afterwards the state is that of the main phase before its first round."""
    started = time.monotonic()
    busy_with("fitting the head")
    cohort = Cohort(engine.candidates(workplace.problem.clients_with_data()), workplace.settings.run.quorum)
    report = run_round(workplace.method("head"), state, engine, ledger, cohort)
    head = state.method["head"]
    state.head = None if isinstance(head, int | float) else head
    workplace.attach("main")
    workplace.write_head(state.head)
    state.phase, state.next_round, state.method = "main", 0, workplace.method("main").start()
    events.append(_head_round(workplace, report, time.monotonic() - started, ledger))


def _main_phase(
    workplace: Workplace,
    state: ServerState,
    engine: Engine,
    ledger: Ledger,
    events: Events,
    journal: _Journal,
) -> Evaluation | None:
    """Returns how the trained network does, if that is known: of a finished run that is resumed it is not."""
    run, method = workplace.settings.run, workplace.method("main")
    head_frame = workplace.pack_head(state.head) if workplace.sends_head and state.head is not None else None
    if not any(isinstance(event, Before) for event in events):
        busy_with("scoring the network before the first round")
        before = evaluate(workplace, engine, state, method.primary_network, before=True)
        events.append(Before(score=before.score, scores=before.scores, accuracy=before.scores.get("accuracy")))
    clients = workplace.problem.clients_with_data()
    found: Evaluation | None = None
    while state.next_round < run.rounds:
        stop_if_interrupted()
        started, number = time.monotonic(), state.next_round
        busy_with(f"round {number + 1} of {run.rounds}")
        cohort = Cohort(engine.candidates(clients), run.quorum, workplace.drawn)
        outcome = run_round(method, state, engine, ledger, cohort, head_frame, workplace.refuse_useless)
        found = None
        if (number + 1) % run.evaluate_every == 0 or number + 1 == run.rounds:
            busy_with(f"round {number + 1} of {run.rounds}: scoring the network")
            found = evaluate(workplace, engine, state, method.primary_network)
        event = _main_round(workplace, number, outcome, found, time.monotonic() - started, ledger)
        events.append(event)
        journal.save(state, ledger, events)
        if journal.report is not None:
            journal.report(_progress(run.rounds, event))
    return found


def _progress(rounds: int, event: MainRound) -> Progress:
    name = "score" if event.scores is None else next(iter(event.scores))
    sent = (event.uplink_bytes or 0) + (event.downlink_bytes or 0)
    numbers = (event.score, name, event.uplink_bpp, event.total_bytes, event.seconds, sent)
    return Progress("main", event.round, rounds, *numbers)


def _head_round(workplace: Workplace, report: RoundReport, seconds: float, ledger: Ledger) -> HeadRound:
    return HeadRound(
        round=0,
        participants=report.participants,
        answered=len(report.answered),
        failures=_named(report.failures),
        observations=report.observations,
        score=None,
        seconds=round(seconds, 3),
        link_seconds=_link_seconds(workplace, ledger),
    )


def _main_round(
    workplace: Workplace, number: int, report: RoundReport, found: Evaluation | None, seconds: float, ledger: Ledger
) -> MainRound:
    """The ledger covers the rounds up to this one."""
    totals = ledger.totals
    return MainRound(
        round=number,
        participants=report.participants,
        answered=len(report.answered),
        failures=_named(report.failures),
        observations=report.observations,
        score=None if found is None else found.score,
        seconds=round(seconds, 3),
        scores=None if found is None else found.scores,
        accuracy=None if found is None else found.scores.get("accuracy"),
        losses=report.losses or None,
        not_evaluated=None if found is None else _named(found.failures) or None,
        uplink_bpp=ledger.uplink_bpp(workplace.method("main").size),
        total_bytes=totals.total_bytes,
        uplink_bytes=totals.uplink_bytes,
        downlink_bytes=totals.downlink_bytes,
        link_seconds=_link_seconds(workplace, ledger),
    )


def _named(failures: dict[int, Failure]) -> tuple[Failed, ...]:
    return tuple(Failed(client, failure.cause, failure.message) for client, failure in sorted(failures.items()))


def _link_seconds(workplace: Workplace, ledger: Ledger) -> float | None:
    """For the entries still in the ledger, which are those of the last round."""
    run = workplace.settings.run
    return None if run.link_mbit is None else link_seconds(ledger.entries, run.link_mbit, run.link_latency_ms)
