"""Accuracy of a network: on the whole test set, or as the mean over clients, each on its own test set."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from subbit.core.errors import ConfigError, QuorumError
from subbit.core.randomness import derive_key
from subbit.runtime.client import EvaluationOrder
from subbit.runtime.downlink import make_downlink
from subbit.runtime.engines import Engine
from subbit.runtime.messages import Failure
from subbit.runtime.round import ServerState, make_orders
from subbit.runtime.workplace import Workplace

EVALUATION_SLICE = 512  # Fixed, so that the slices do not depend on the number of workers.


@dataclass(frozen=True)
class Accuracy:
    mean: float
    by_client: dict[int, float] | None = None
    """Accuracy of each client on its own test set, with personal evaluation."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """Clients that could not be evaluated; they are not in the mean."""


def is_personal(workplace: Workplace) -> bool:
    wanted, personal = workplace.settings.run.evaluate, workplace.method("main").personal
    if wanted == "global" and personal:
        raise ConfigError(f"evaluate=global: {workplace.settings.run.method} has no network for all; use personal")
    return personal if wanted == "auto" else wanted == "personal"


def evaluate(
    workplace: Workplace, engine: Engine, state: ServerState, network: str, *, before: bool = False
) -> Accuracy:
    """Evaluate the given network or, with `before`, the module with its head before the main phase."""
    method = workplace.method("main")
    if not is_personal(workplace):
        return Accuracy(float(_correct(workplace, engine, state, network, before).mean()))
    if method.personal and not before:
        return _mean(*_own_networks(workplace, engine, state))
    # One network for all, evaluated on the clients' test sets.
    correct, problem = _correct(workplace, engine, state, network, before), workplace.problem
    own = {client: correct[problem.own_test(client)] for client in problem.clients_with_data()}
    return _mean({client: float(right.mean()) for client, right in own.items() if right.size})


def _mean(by_client: dict[int, float], failures: dict[int, Failure] | None = None) -> Accuracy:
    """Every client has the same weight, regardless of its amount of data."""
    if not by_client:
        raise QuorumError("no client has a test set of its own that could be evaluated")
    return Accuracy(float(np.mean(list(by_client.values()))), by_client, failures or {})


def _correct(
    workplace: Workplace, engine: Engine, state: ServerState, network: str, before: bool
) -> NDArray[np.float64]:
    """For each test example whether it is correct; for the sampled network, the share of draws in which it is."""
    run, examples = workplace.settings.run, len(workplace.problem.test)
    draws = run.evaluation_samples if network == "sampled" and not before else 1
    starts = range(0, examples, EVALUATION_SLICE)
    orders = [
        EvaluationOrder(
            None if before else state.method,
            network,
            derive_key(run.seed, "evaluation", state.next_round, draw),
            state.head,
            start,
            min(examples, start + EVALUATION_SLICE),
        )
        for draw in range(draws)
        for start in starts
    ]
    answers = np.concatenate(engine.evaluate(orders))
    correct: NDArray[np.float64] = answers.reshape(draws, examples).mean(axis=0)
    return correct


def _own_networks(
    workplace: Workplace, engine: Engine, state: ServerState
) -> tuple[dict[int, float], dict[int, Failure]]:
    """Evaluate clients as in a round; they reply with two numbers. Not counted as traffic, since training does not need
    it."""
    method, clients = workplace.method("main"), workplace.problem.clients_with_data()
    downlink = make_downlink(method, "main", state.method, state.broadcasts, state.next_round)
    head_frame = workplace.pack_head(state.head) if workplace.sends_head and state.head is not None else None
    found: dict[int, float] = {}
    failures: dict[int, Failure] = {}
    for reply in engine.train(make_orders(downlink, state, clients, head_frame, "evaluate")):
        examples, correct = (reply.observations.get(name, -1.0) for name in ("examples", "correct"))
        if reply.failure is not None:
            failures[reply.client] = reply.failure
        elif examples > 0 and 0 <= correct <= examples:
            found[reply.client] = correct / examples
        elif examples:  # Clients without test examples are skipped.
            failures[reply.client] = Failure("value", f"{correct:g} of {examples:g} examples right")
    return dict(sorted(found.items())), dict(sorted(failures.items()))
