"""Scores of a network: on the whole test set, on those of the clients, or as the mean over clients."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from subbit.core.errors import ConfigError, QuorumError
from subbit.core.randomness import derive_key
from subbit.objectives.objective import Objective, Sums, add_up
from subbit.runtime.client import TALLY, EvaluationOrder
from subbit.runtime.downlink import make_downlink
from subbit.runtime.engines import Engine
from subbit.runtime.messages import Failure, Purpose
from subbit.runtime.round import ServerState, make_orders
from subbit.runtime.workplace import Workplace

EVALUATION_SLICE = 512  # Fixed, so that the slices do not depend on the number of workers.


@dataclass(frozen=True)
class Evaluation:
    scores: dict[str, float]
    """The objective's scores by name; the first is the score of the run."""
    by_client: dict[int, float] | None = None
    """Score of each client on its own test set, with personal evaluation."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """Clients that could not be evaluated; they are not in the mean."""

    @property
    def score(self) -> float:
        return next(iter(self.scores.values()))


def asks_clients(workplace: Workplace) -> bool:
    """Whether clients evaluate on their own test sets, and send sums."""
    wanted, personal = workplace.settings.run.evaluate, workplace.method("main").personal
    return wanted == "federated" or personal or not len(workplace.problem.test)


def is_personal(workplace: Workplace) -> bool:
    wanted, personal = workplace.settings.run.evaluate, workplace.method("main").personal
    if wanted == "global" and not len(workplace.problem.test):
        raise ConfigError("evaluate=global: the server has no test data; give it a test_dataset, or use federated")
    if wanted == "federated" and personal:
        raise ConfigError(f"evaluate=federated: {workplace.settings.run.method} has no network for all; use personal")
    if wanted == "global" and personal:
        raise ConfigError(f"evaluate=global: {workplace.settings.run.method} has no network for all; use personal")
    return personal if wanted == "auto" else wanted == "personal"


def evaluate(
    workplace: Workplace, engine: Engine, state: ServerState, network: str, *, before: bool = False
) -> Evaluation:
    """Evaluate the given network or, with `before`, the module with its head before the main phase."""
    problem, personal = workplace.problem, is_personal(workplace)
    if asks_clients(workplace) and (not before or not len(problem.test) or not personal):
        sums, failures = _ask_clients(workplace, engine, state, "start" if before else "evaluate")
        return _mean(problem.objective, sums, failures) if personal else _total(problem.objective, sums, failures)
    tallies = _tallies(workplace, engine, state, network, before)
    if not personal:
        return Evaluation(_finite(problem.objective, problem.objective.scores(add_up(tallies))))
    # One network for all, evaluated on the clients' test sets.
    own = {client: tallies[problem.own_test(client)] for client in problem.clients_with_data()}
    return _mean(problem.objective, {client: add_up(rows) for client, rows in own.items() if len(rows)})


def _mean(objective: Objective, sums: dict[int, Sums], failures: dict[int, Failure] | None = None) -> Evaluation:
    """Every client has the same weight, regardless of its amount of data."""
    if not sums:
        raise QuorumError("no client has a test set of its own that could be evaluated")
    scores = {client: _finite(objective, objective.scores(found)) for client, found in sums.items()}
    names = [name for name in next(iter(scores.values())) if all(name in found for found in scores.values())]
    mean = {name: float(np.mean([found[name] for found in scores.values()])) for name in names}
    return Evaluation(mean, {client: next(iter(found.values())) for client, found in scores.items()}, failures or {})


def _total(objective: Objective, sums: dict[int, Sums], failures: dict[int, Failure]) -> Evaluation:
    """As if all clients' test examples were in one place: only the sums are."""
    if not sums:
        raise QuorumError(f"no client has told how the network does on its own test data{_first(failures)}")
    total = np.sum([*sums.values()], axis=0)
    scores = {client: _finite(objective, objective.scores(found)) for client, found in sums.items()}
    by_client = {client: next(iter(found.values())) for client, found in scores.items()}
    return Evaluation(_finite(objective, objective.scores(total)), by_client, failures)


def _first(failures: dict[int, Failure]) -> str:
    first = next(iter(failures.values()), None)
    return "" if first is None else f". The first failure: {first.cause}: {first.message}"


def _finite(objective: Objective, scores: dict[str, float]) -> dict[str, float]:
    """Scores as JSON can hold them: the score of a broken network is as bad as can be, others that are no number, e.g.
    R2 of equal labels, are left out."""
    first, *others = scores
    worst = -sys.float_info.max if objective.higher_is_better else sys.float_info.max
    found = {first: scores[first] if math.isfinite(scores[first]) else worst}
    return found | {name: scores[name] for name in others if math.isfinite(scores[name])}


def _tallies(workplace: Workplace, engine: Engine, state: ServerState, network: str, before: bool) -> Sums:
    """The objective's numbers for each test example; for the sampled network, their means over the draws."""
    run, examples = workplace.settings.run, len(workplace.problem.test)
    draws = run.evaluation_samples if network == "sampled" and not before else 1
    # An objective may only tell the mean of a batch: no batch is of two clients.
    own = (workplace.problem.own_tests if is_personal(workplace) else None) or [np.arange(examples)]
    slices = [
        (start, min(start + EVALUATION_SLICE, int(part[-1]) + 1))
        for part in own
        if len(part)
        for start in range(int(part[0]), int(part[-1]) + 1, EVALUATION_SLICE)
    ]
    orders = [
        EvaluationOrder(
            None if before else state.method,
            network,
            derive_key(run.seed, "evaluation", state.next_round, draw),
            state.head,
            start,
            stop,
        )
        for draw in range(draws)
        for start, stop in slices
    ]
    answers = np.concatenate(engine.evaluate(orders))
    mean: Sums = answers.reshape(draws, examples, -1).mean(axis=0)
    return mean


def _ask_clients(
    workplace: Workplace, engine: Engine, state: ServerState, purpose: Purpose
) -> tuple[dict[int, Sums], dict[int, Failure]]:
    """Evaluate clients as in a round; they reply with a few sums. Not counted as traffic, since training does not need
    it."""
    method, problem = workplace.method("main"), workplace.problem
    clients = engine.candidates(problem.clients_with_data())
    downlink = make_downlink(method, "main", state.method, state.broadcasts, state.next_round)
    head_frame = workplace.pack_head(state.head) if workplace.sends_head and state.head is not None else None
    found: dict[int, Sums] = {}
    failures: dict[int, Failure] = {}
    for reply in engine.train(make_orders(downlink, state, clients, head_frame, purpose)):
        sums = read_sums(reply.observations)
        if reply.failure is not None:
            failures[reply.client] = reply.failure
        elif len(sums) == workplace.tally_width and problem.objective.possible(sums):
            found[reply.client] = sums
        elif len(sums):  # Clients without test examples are skipped.
            failures[reply.client] = Failure(
                "value", f"no network has these sums: {', '.join(map('{:g}'.format, sums))}"
            )
    return dict(sorted(found.items())), dict(sorted(failures.items()))


def read_sums(observations: Mapping[str, float]) -> Sums:
    """The sums that a client reports; none if it says nothing of the kind."""
    count = sum(f"{TALLY}{place}" in observations for place in range(len(observations)))
    return np.array([observations.get(f"{TALLY}{place}", np.nan) for place in range(count)], dtype=np.float64)
