"""Trained networks: what one is and where it comes from, and the own networks of clients.

A personal method has no network for all. What a client would use is made from the state, the client's memory and its
data when it is asked for, since a run may have many clients.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from subbit.config.resolve import Settings
from subbit.core.errors import ConfigError, ModelError
from subbit.data import Examples
from subbit.methods.method import Turn
from subbit.models import model_sha256
from subbit.models.checkpointing import without_checkpoints
from subbit.objectives import Objective
from subbit.runtime.client_memory import NO_MEMORY, Memories
from subbit.runtime.downlink import make_downlink
from subbit.runtime.problem import Problem
from subbit.runtime.round import ServerState
from subbit.runtime.workplace import Workplace

SOME = 8
PERSONAL = "personal"


@dataclass(frozen=True)
class Network:
    """A trained network and where it comes from, without the data and the state of its run."""

    module: nn.Module
    settings: Settings
    model_name: str
    classes: int
    objective: Objective
    some: Examples
    """A few examples, to try files on."""
    name: str
    """Which of the method's networks, e.g. `expected`, or `personal`."""
    rounds: int
    client: int | None = None


def network_of(workplace: Workplace, name: str, rounds: int, client: int | None = None) -> Network:
    """The network that is written in the workplace's module."""
    problem = workplace.problem
    without_checkpoints(workplace.module)
    return Network(
        module=workplace.module,
        settings=workplace.settings,
        model_name=problem.model_name,
        classes=problem.classes,
        objective=problem.objective,
        some=_some(problem),
        name=name,
        rounds=rounds,
        client=client,
    )


def _some(problem: Problem) -> Examples:
    if not len(problem.test):
        return problem.form.zeros(2)
    return replace(problem.test_batch(np.arange(min(SOME, len(problem.test)))), rows=None)


def refuse_common(problem: Problem, method: str) -> None:
    clients = problem.clients_with_data()
    raise ConfigError(f"{method} gives every client a network of its own: say whose, {clients[0]} to {clients[-1]}")


def write_personal(workplace: Workplace, state: ServerState, client: int) -> None:
    """Write the client's own network into the workplace's module, in evaluation mode."""
    method, number = workplace.method("main"), state.next_round
    if not method.personal:
        raise ConfigError(f"client {client}: with {method.name} all clients share one network, leave the client out")
    clients = workplace.problem.clients_with_data()
    if client not in clients:
        raise ConfigError(f"client {client}: has no data in this run; there are clients {clients[0]} to {clients[-1]}")
    memory = workplace.memories.read(client, state.kept.get(client, NO_MEMORY))
    workplace.attach("main")
    workplace.write_head(memory.get("fitted-head", state.head))
    # Decoded from the bytes of the next broadcast, as on the client.
    view = make_downlink(method, "main", state.method, state.broadcasts, number).view
    method.personalise(view, workplace.problem.client_data(client), Turn(number, client, memory))
    method.task.flat.evaluation_mode()


class Networks(Mapping[int, nn.Module]):
    """Client -> its own network, made when it is asked for: a new module in evaluation mode each time."""

    def __init__(self, problem: Problem, settings: Settings, memories: Memories, job: str, state: ServerState) -> None:
        self._problem, self._settings, self._memories = problem, settings, memories
        self._job, self._state = job, state
        self._start = model_sha256(problem.module)
        self._workplace: Workplace | None = None

    def __getitem__(self, client: int) -> nn.Module:
        if client not in self._problem.clients_with_data():
            raise KeyError(client)
        return copy.deepcopy(self.network(client).module)

    def __iter__(self) -> Iterator[int]:
        return iter(self._problem.clients_with_data())

    def __len__(self) -> int:
        return len(self._problem.clients_with_data())

    def refuse_common(self, method: str) -> None:
        """For what takes one network."""
        refuse_common(self._problem, method)

    def network(self, client: int) -> Network:
        """The client's network, in a module that the next call writes another one to."""
        if self._workplace is None:
            # A module of its own, so that no other result changes.
            if model_sha256(self._problem.module) != self._start:
                raise ModelError("the module given to the run was changed since, and clients' networks start from it")
            self._workplace = Workplace(self._problem, self._settings, self._job, self._memories, torch.device("cpu"))
        write_personal(self._workplace, self._state, client)
        return network_of(self._workplace, PERSONAL, self._state.next_round, client)
