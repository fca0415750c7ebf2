"""Local training bound to a task and a map, optionally with a regulariser, privacy or early stopping."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.devices import moved
from subbit.core.errors import ConfigError
from subbit.core.pieces import choice
from subbit.core.randomness import derive_key
from subbit.core.values import require
from subbit.data.examples import Data
from subbit.local.backward import refuse_pieces
from subbit.local.calibration import Calibrated
from subbit.local.regularisers import NoRegulariser, Regulariser
from subbit.local.step_guard import Guard
from subbit.local.stopping import StoppedLocal, Stopping
from subbit.local.training import PLAIN, Hooks, Local, train_locally
from subbit.maps.bound import BoundMap
from subbit.models.reparametrisation import Identity
from subbit.models.task import Task, Turn
from subbit.privacy.mechanism import GaussianMechanism
from subbit.privacy.privacy import NoPrivacy, Privacy
from subbit.privacy.sampling import Sampling, system_key


@dataclass(frozen=True)
class LocalWeights(Local):
    """Local training of weights, optionally with a regulariser and privacy."""

    regulariser: Regulariser = choice("regulariser", NoRegulariser())
    privacy: NoPrivacy | Privacy = choice("privacy", NoPrivacy())

    def draw_batches(self, count: int, key: int) -> Iterator[NDArray[np.int64]]:
        if not isinstance(self.privacy, Privacy):
            return super().draw_batches(count, key)
        # The guarantee only holds if it is unknown which examples are in a batch.
        repeatable = self.privacy.noise_source == "seed"
        return Sampling(count, self.batch_size).batches(key if repeatable else system_key())


class Trainer:
    """Trains the vectors of one task with one map."""

    def __init__(self, task: Task, local: Local, bound: BoundMap) -> None:
        self.task, self.local, self.map = task, local, bound
        require(local.rate >= 0, f"learning_rate={local.rate}: needs a number from 0 up")  # Words are rejected.
        require(local.schedule != "auto", "schedule=auto: this method does not choose; use constant or cosine")
        refuse_pieces(task, local.micro_batch)
        require(local.guard != "start" or bound.relative, "guard=start: needs map=subspace, whose zero is the start")
        # Asked in every step, and most maps leave any vector as it is.
        self._constrain = None if type(bound).constrain is BoundMap.constrain else bound.constrain
        self.regulariser: Regulariser = NoRegulariser()
        self.mechanism: GaussianMechanism | None = None
        if isinstance(local, LocalWeights):
            self.regulariser = local.regulariser
            self.regulariser.check(task)
            own = local.calibrate and not self.regulariser.per_example
            require(not own, f"regulariser={self.regulariser.name}: has a loss of its own; use calibrate=false")
            self._refuse_masks(local)
            if isinstance(local.privacy, Privacy):
                require(
                    task.precision == torch.float32, "privacy: gradients of examples are float32; use precision=float32"
                )
                require(not local.guard, "privacy: a guard looks at examples without noise; use guard=false")
                require(not local.calibrate, "privacy: class counts have no noise; use calibrate=false")
                require(
                    local.micro_batch is None, "privacy: gradients are those of single examples; leave micro_batch out"
                )
                self.mechanism = GaussianMechanism(local.privacy, local.batch_size, local.epochs, task)

    def _refuse_masks(self, local: LocalWeights) -> None:
        plain, private = isinstance(self.map.network, Identity), isinstance(local.privacy, Privacy)
        if not plain and (private or not self.regulariser.per_example):
            what = f"privacy={local.privacy.name}" if private else f"regulariser={self.regulariser.name}"
            raise ConfigError(f"{what}: only where the weights themselves are trained; use map=weights")
        if private and not self.regulariser.per_example:
            raise ConfigError(
                f"privacy: {self.regulariser.name} contrasts whole batches, so that no gradient is that of one example"
            )

    def train(self, trained: Tensor, data: Data, turn: Turn, hooks: Hooks = PLAIN) -> dict[str, float]:
        """Train the vector in place; returns observations. This is where it moves to the device of the network."""
        with moved(trained, self.task.flat.device) as there:
            self.map.begin(turn)
            asked = self.regulariser.begin(self.task, there, turn)
            stopping: Stopping | None = None
            if isinstance(self.local, StoppedLocal):
                held_out_key = derive_key(self.task.seed, "holdout", 0, turn.client)
                data, held_out = self.local.split(data, held_out_key)
                stopping = Stopping(self.local, self.task, held_out, partial(self._write, there, turn))
            calibrated = Calibrated.of(self.task, data) if self.local.calibrate else None
            if calibrated is not None and (hooks.objective or hooks.backward) is not None:
                raise ConfigError("calibrate=true: this method has a loss of its own; use calibrate=false")
            hooks = replace(
                hooks,
                objective=calibrated or asked.objective or hooks.objective,
                adjust=asked.adjust or hooks.adjust,
                backward=hooks.backward if self.mechanism is None else self.mechanism.turn(len(data), turn),
                constrain=hooks.constrain or self._constrain,
                finished=stopping or hooks.finished,
            )
            guarded = self.local.guard and len(data)
            guard = Guard.of(self.task, self.map, there, data, turn, calibrated) if guarded else None
            went_back = guard is not None and self.local.guard == "start" and guard.go_back(there)
            before = there.detach().clone() if calibrated is not None else None
            loss = train_locally(self.task, self.local, self.map.network, there, data, turn, hooks)
            halvings = None if guard is None else guard.shorten(there)
            if calibrated is not None and before is not None:
                with torch.no_grad():
                    there.copy_(torch.lerp(before, there, calibrated.diversity))
            self.regulariser.end(self.task, there, turn)
        if self.mechanism is not None:
            return {"noise_multiplier": self.mechanism.noise_multiplier(len(data))}
        observed = {"loss": loss} if stopping is None else {"loss": loss, "epochs": stopping.epochs}
        if halvings is None:
            return observed
        back = {"went_back": float(went_back)} if self.local.guard == "start" else {}
        return {**observed, "halvings": halvings, **back}

    def _write(self, trained: Tensor, turn: Turn, epoch: int) -> None:
        """Write the network that early stopping evaluates."""
        key = derive_key(self.task.seed, "validation", turn.round_number, turn.client, epoch)
        self.map.network.write(trained, self.task.flat.weights, key)
