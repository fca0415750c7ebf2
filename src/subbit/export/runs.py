"""Opens a run folder as the network that it trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subbit.core.errors import ConfigError, RunFolderError
from subbit.core.randomness import derive_key
from subbit.methods.method import Turn
from subbit.models import FlatModel
from subbit.runtime.client_memory import NO_MEMORY, ClientMemories
from subbit.runtime.downlink import make_downlink
from subbit.runtime.folder import RunFolder
from subbit.runtime.problem import Problem, build_problem
from subbit.runtime.round import ServerState
from subbit.runtime.workplace import Workplace

MASK_NETWORK = (
    "thresholded"  # Of methods that draw masks: the network whose weights are kept or not, the likeliest one.
)


@dataclass(frozen=True)
class TrainedRun:
    """The network in `workplace.module`, and where it comes from."""

    workplace: Workplace
    network: str
    client: int | None
    rounds: int

    @property
    def flat(self) -> FlatModel:
        return self.workplace.method("main").task.flat

    def origin(self) -> dict[str, Any]:
        run = self.workplace.settings.run
        found = {"run": run.name, "method": run.method, "network": self.network}
        return {**found, "rounds": self.rounds, "client": self.client}


def open_run(path: Path, client: int | None = None, problem: Problem | None = None) -> TrainedRun:
    """The network after the last finished round: the client's own one, or the common one.

    `problem` is needed if the run's configuration does not describe it: the module and the data passed to `fine_tune`.
    """
    folder = RunFolder.open(path)
    _refuse_unknown_module(folder, problem)
    memories = ClientMemories(folder.memory)
    workplace = Workplace(problem or build_problem(folder.settings.run), folder.settings, folder.job, memories)
    state = folder.last_state()
    if state.phase != "main" or not state.next_round:
        raise RunFolderError(f"{path} has no finished round yet: go on with subbit resume {path}")
    network = write_network(workplace, state, client)
    return TrainedRun(workplace, network, client, state.next_round)


def _refuse_unknown_module(folder: RunFolder, problem: Problem | None) -> None:
    if problem is None and (folder.path / "summary.json").is_file():
        trained, configured = folder.read_summary()["model"], folder.settings.run.model
        if trained != configured:
            raise RunFolderError(
                f"{folder.path} trained a module of its own ({trained}) that no configuration can build: "
                "open_run(folder, problem=...) takes it from Python"
            )


def write_network(workplace: Workplace, state: ServerState, client: int | None) -> str:
    """Write the network into the workplace's module, in evaluation mode; returns its name."""
    method = workplace.method("main")
    if client is not None and not method.personal:
        raise ConfigError(f"client {client}: with {method.name} all clients share one network, leave the client out")
    if client is None:
        network = MASK_NETWORK if MASK_NETWORK in method.networks else method.primary_network
        key = derive_key(workplace.settings.run.seed, "evaluation", state.next_round)
        workplace.write_network(state.method, network, key, state.head)
    else:
        network = "personal"
        _write_personal(workplace, state, client)
    method.task.flat.evaluation_mode()
    return network


def _write_personal(workplace: Workplace, state: ServerState, client: int) -> None:
    clients = workplace.problem.clients_with_data()
    if client not in clients:
        raise ConfigError(f"client {client}: has no data in this run; there are clients {clients[0]} to {clients[-1]}")
    method, number = workplace.method("main"), state.next_round
    memory = workplace.memories.read(client, state.kept.get(client, NO_MEMORY))
    workplace.attach("main")
    workplace.write_head(memory.get("fitted-head", state.head))
    # Decoded from the bytes of the next broadcast, as on the client.
    view = make_downlink(method, "main", state.method, state.broadcasts, number).view
    method.personalise(view, workplace.problem.client_data(client), Turn(number, client, memory))
