"""Fits the classifier of a pre-trained backbone in one federated round before the method starts.

    probe   linear probing (paper 000): every client trains only the head on frozen features, the server averages,
            weighted by examples
    lda     FiT (Shysheya et al., "FiT: Parameter Efficient Few-shot Transfer Learning for Personalized and
            Federated Image Classification", ICLR 2023): clients send class counts, class sums and second moments
            of their features; the sum of these is the statistic of the pooled data, from which the server solves
            linear discriminant analysis in closed form. The second moments are most of it, D (D + 1) / 2 values.
            `head_codec=factors`, the default, sends what a client knows of them in a few percent of the bytes
            (`subbit.models.feature_summary`), `lean` in a third of that (`subbit.models.lean_summary`); float16 and
            int8 send all correlations within classes. How far to shrink the covariance and how sure the logits may be
            follows from the same statistics (`subbit.models.discriminant`)

Both are ordinary methods on the selection "head", with the usual frames; their bytes are one-off costs. A hook on the
head captures its input features, so any module works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from subbit.aggregate import WeightedMean
from subbit.codecs import Shared
from subbit.core.devices import host
from subbit.core.errors import ModelError
from subbit.data.examples import Data
from subbit.exchange.exchange import Part, Payloads, State, Update, as_float32
from subbit.local.training import Local
from subbit.methods.head_codecs import fitted_by
from subbit.methods.head_fits import Discriminant, Fit, Probe
from subbit.methods.method import Method
from subbit.models.select import find_head
from subbit.models.task import Task, Turn
from subbit.privacy.mechanism import GaussianMechanism

FEATURE_BATCH = 128


@dataclass(frozen=True)
class HeadParameters:
    head: str
    """A key of `HEADS`."""
    local: Local
    shrinkage: float | Literal["auto"] = "auto"
    temperature: float | Literal["auto"] = "auto"
    codec: str = "float32"
    """Of statistics: a key of `DISCRIMINANTS` or of `CODECS`, or `auto`."""


class HeadMethod(Method[HeadParameters]):
    """The state is one vector: the head's weight and bias in the flat model's order, then log(p_c C) for the shares p_c
    of the classes, which clients need to account for their own (`subbit.local.calibration`). Nothing is broadcast."""

    paper = "000"
    sends_down = "nothing"
    Parameters = HeadParameters
    presets: ClassVar = {"default": {}, "paper": {}}
    networks = ("trained",)
    primary_network = "trained"
    changes = None
    state_is_counts = False
    mechanism: GaussianMechanism | None = None

    def __init__(self, parameters: HeadParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.name = parameters.head  # type: ignore[misc]
        self.head = find_linear_head(task.flat.module)
        self.fit = fitted_by(HEADS[parameters.head], parameters.codec)(self)

    def down_parts(self) -> tuple[Part, ...]:
        return ()

    def up_parts(self) -> tuple[Part, ...]:
        return self.fit.parts()

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        return Shared(part.size)

    def open(self, payloads: Payloads, round_number: int) -> None:
        return None

    def start(self) -> State:
        return {"head": np.concatenate([host(self.task.flat.weights), np.zeros(self.task.classes, dtype=np.float32)])}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {}

    def train(self, view: None, data: Data, turn: Turn) -> Update:
        return self.fit.train(data, turn)

    def examine(self, view: None, payloads: Payloads, examples: int, client: int) -> None:
        self.fit.examine(payloads, examples, client)

    def accumulator(self) -> WeightedMean:
        return WeightedMean(self.fit.size())

    def accumulate(
        self, accumulator: WeightedMean, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        self.fit.add(accumulator, payloads, examples)

    def step(self, state: State, accumulator: WeightedMean, round_number: int) -> State:
        if not accumulator.weight:
            return state  # No examples, so there is no mean head.
        return {"head": np.concatenate([self.fit.head(accumulator), self.fit.log_shares(accumulator)])}

    def write_network(self, state: State, network: str, key: int) -> None:
        with torch.no_grad():
            head = np.asarray(state["head"])[: self.size]
            self.task.flat.weights.copy_(torch.from_numpy(as_float32(head)))

    def features(self, data: Data) -> tuple[Tensor, Tensor]:
        """The head's inputs for all examples, with the whole network in evaluation mode, and the labels."""
        self.task.flat.evaluation_mode()
        self.task.prepare(data)
        seen: list[Tensor] = []
        found: list[tuple[Tensor, Tensor]] = []
        handle = self.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            with torch.no_grad():
                for batch in data.in_batches(FEATURE_BATCH):
                    self.task.outputs(batch.to(self.task.flat.device))
                    found.append((torch.from_numpy(host(seen.pop().float())), batch.labels))
                    seen.clear()
        finally:
            handle.remove()
        features, labels = zip(*found, strict=True)
        return torch.cat(features), torch.cat(labels)


HEADS: dict[str, type[Fit]] = {"probe": Probe, "lda": Discriminant}


def find_linear_head(module: nn.Module) -> nn.Linear:
    name = find_head(module)
    head = module.get_submodule(name)
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise ModelError(
            f"the head {name!r} is {type(head).__name__}: fitting it needs nn.Linear with a bias. "
            "Use head=keep to leave it as it is, or head=kaiming"
        )
    if other := {each for each, _ in head.named_parameters()} - {"weight", "bias"}:
        raise ModelError(
            f"the head {name!r} computes its weight from {', '.join(sorted(other))}: a fitted head needs one of its "
            "own; remove that parametrization, or use head=keep"
        )
    return head
