"""Centralised training: a client continues where its last turn ended.

The optimiser's moments stay with the client, and epochs are numbered over the whole run; batches and masks are drawn
from these numbers. So R rounds of one epoch give, bit for bit, the same result as one round of R epochs. With one
client this is the centralised algorithm itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.devices import host, moved
from subbit.data.examples import Data
from subbit.local.blocked import Optimizer
from subbit.local.trainer import Trainer
from subbit.local.training import PLAIN, Hooks, Local
from subbit.maps.bound import BoundMap
from subbit.models.task import Task, Turn

MOMENT = "optimizer-"
"""Prefix of the optimiser's moments in a client's memory."""


class CentralTrainer(Trainer):
    """Treats every epoch as a round, so that all keys and the learning rate follow from its number."""

    def __init__(self, task: Task, local: Local, bound: BoundMap) -> None:
        self.epochs = local.epochs
        epoch_by_epoch = replace(local, epochs=1, warmup_rounds=local.warmup_rounds * local.epochs)
        super().__init__(replace(task, rounds=task.rounds * local.epochs), epoch_by_epoch, bound)

    def train(self, trained: Tensor, data: Data, turn: Turn, hooks: Hooks = PLAIN) -> dict[str, float]:
        observed: dict[str, float] = {}
        with moved(trained, self.task.flat.device) as there:
            optimizer = self.local.make_optimizer(there)
            _recall(optimizer, there, turn.memory)
            for epoch in range(turn.round_number * self.epochs, (turn.round_number + 1) * self.epochs):
                for group in optimizer.param_groups:
                    group["lr"] = self.local.rate
                numbered = Turn(epoch, turn.client, turn.memory)
                observed = super().train(there, data, numbered, replace(hooks, optimizer=optimizer))
            _remember(optimizer, there, turn.memory)
        return observed


def _recall(optimizer: Optimizer, trained: Tensor, memory: dict[str, NDArray[Any]]) -> None:
    kept = {
        # The number of the step is read by the CPU.
        name.removeprefix(MOMENT): torch.from_numpy(moment.copy()).to(trained.device if moment.ndim else "cpu")
        for name, moment in memory.items()
        if name.startswith(MOMENT)
    }
    if kept:
        optimizer.state[trained] = kept


def _remember(optimizer: Optimizer, trained: Tensor, memory: dict[str, NDArray[Any]]) -> None:
    for name, moment in optimizer.state[trained].items():
        if isinstance(moment, Tensor):
            memory[MOMENT + name] = host(moment).copy()
