"""Opens a run folder as the network that it trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from subbit.core.errors import RunFolderError
from subbit.core.randomness import derive_key
from subbit.models import FlatModel
from subbit.runtime.client_memory import ClientMemories
from subbit.runtime.folder import RunFolder
from subbit.runtime.networks import PERSONAL, Network, network_of, refuse_common, write_personal
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

    def as_network(self) -> Network:
        return network_of(self.workplace, self.network, self.rounds, self.client)

    def origin(self) -> dict[str, Any]:
        run = self.workplace.settings.run
        found = {"run": run.name, "method": run.method, "network": self.network}
        return {**found, "rounds": self.rounds, "client": self.client}


def open_run(
    path: Path, client: int | None = None, problem: Problem | None = None, *, primary: bool = False
) -> TrainedRun:
    """The network after the last finished round: the client's own one, or the common one.

    Of methods that draw masks this is the thresholded network or, with `primary`, the one whose score is that of the
    run. `problem` is needed if the run's configuration does not describe it: the module and the data passed to
    `fine_tune`.
    """
    folder = RunFolder.open(path)
    if problem is None:
        folder.refuse_given()
        _refuse_unknown_module(folder)
    state = folder.last_state()
    if state.phase != "main" or not state.next_round:
        raise RunFolderError(f"{path} has no finished round yet: go on with {folder.how_to_resume()}")
    memories = ClientMemories(folder.memory)
    workplace = Workplace(
        problem or build_problem(folder.settings.run), folder.settings, folder.job, memories, torch.device("cpu")
    )
    network = write_network(workplace, state, client, primary=primary)
    return TrainedRun(workplace, network, client, state.next_round)


def _refuse_unknown_module(folder: RunFolder) -> None:
    """Runs of `fine_tune` with earlier versions name another model in their configuration."""
    if (folder.path / "summary.json").is_file():
        trained, configured = folder.read_summary()["model"], folder.settings.run.model
        if trained != configured:
            raise RunFolderError(
                f"{folder.path} trained a module of its own ({trained}) that no configuration can build: "
                "open_run(folder, problem=...) takes it from Python"
            )


def write_network(workplace: Workplace, state: ServerState, client: int | None, *, primary: bool = False) -> str:
    """Write the network into the workplace's module, in evaluation mode; returns its name."""
    method = workplace.method("main")
    if client is not None:
        write_personal(workplace, state, client)
        return PERSONAL
    if primary and method.personal:
        refuse_common(workplace.problem, method.name)
    network = MASK_NETWORK if MASK_NETWORK in method.networks and not primary else method.primary_network
    key = derive_key(workplace.settings.run.seed, "evaluation", state.next_round)
    workplace.write_network(state.method, network, key, state.head)
    method.task.flat.evaluation_mode()
    return network
