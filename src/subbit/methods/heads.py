"""Fits the classifier of a pre-trained backbone in one federated round before the method starts.

    probe   linear probing (paper 000): every client trains only the head on frozen features, the server averages,
            weighted by examples
    lda     FiT (Shysheya et al., "FiT: Parameter Efficient Few-shot Transfer Learning for Personalized and
            Federated Image Classification", ICLR 2023): clients send class counts, class sums and second moments
            of their features; the sum of these is the statistic of the pooled data, from which the server solves
            linear discriminant analysis in closed form

Both are ordinary methods on the selection "head", with the usual frames; their bytes are one-off costs. A hook on the
head captures its input features, so any module works.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.aggregate import WeightedMean
from subbit.codecs import Shared, make_codec
from subbit.core.devices import host, number
from subbit.core.errors import ModelError
from subbit.core.randomness import derive_key
from subbit.data.batches import batches
from subbit.data.examples import Data
from subbit.exchange.exchange import Part, Payloads, State, Update, as_float32
from subbit.exchange.honest import FAR, check_statistics, check_within, largest
from subbit.local.optimizers import Adam
from subbit.local.training import Local
from subbit.methods.method import Method
from subbit.models.head_start import LdaStatistics, solve
from subbit.models.select import find_head
from subbit.models.task import Task, Turn
from subbit.privacy.mechanism import GaussianMechanism

FEATURE_BATCH = 128


@dataclass(frozen=True)
class HeadParameters:
    head: str
    """A key of `HEADS`."""
    local: Local


class HeadMethod(Method[HeadParameters]):
    """The state is one vector: the head's weight and bias in the flat model's order. Nothing is broadcast."""

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
        self.fit = HEADS[parameters.head](self)

    def down_parts(self) -> tuple[Part, ...]:
        return ()

    def up_parts(self) -> tuple[Part, ...]:
        return (self.fit.part(),)

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        return Shared(part.size)

    def open(self, payloads: Payloads, round_number: int) -> None:
        return None

    def start(self) -> State:
        return {"head": host(self.task.flat.weights).copy()}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {}

    def train(self, view: None, data: Data, turn: Turn) -> Update:
        return self.fit.train(data, turn)

    def examine(self, view: None, payloads: Payloads, examples: int, client: int) -> None:
        self.fit.examine(payloads, examples)

    def accumulator(self) -> WeightedMean:
        return WeightedMean(self.fit.part().size)

    def accumulate(
        self, accumulator: WeightedMean, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        self.fit.add(accumulator, payloads, examples)

    def step(self, state: State, accumulator: WeightedMean, round_number: int) -> State:
        if not accumulator.weight:
            return state  # No examples, so there is no mean head.
        return {"head": self.fit.head(accumulator)}

    def write_network(self, state: State, network: str, key: int) -> None:
        with torch.no_grad():
            self.task.flat.weights.copy_(torch.from_numpy(as_float32(np.asarray(state["head"]))))

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


class Fit(ABC):
    """What a client reports about its examples, and the head computed from all reports."""

    def __init__(self, method: HeadMethod) -> None:
        self.method, self.task = method, method.task

    @abstractmethod
    def part(self) -> Part: ...

    @abstractmethod
    def train(self, data: Data, turn: Turn) -> Update: ...

    @abstractmethod
    def examine(self, payloads: Payloads, examples: int) -> None: ...

    @abstractmethod
    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None: ...

    @abstractmethod
    def head(self, accumulator: WeightedMean) -> Any: ...


def _weight_and_bias(vector: Tensor, head: nn.Linear) -> tuple[Tensor, Tensor]:
    size = head.weight.numel()
    return vector[:size].view_as(head.weight), vector[size:]


class Probe(Fit):
    def part(self) -> Part:
        return Part("head", make_codec("dense"), self.method.size)

    def train(self, data: Data, turn: Turn) -> Update:
        (features, labels), loss = self.method.features(data), torch.zeros(())
        local, head = self.method.parameters.local, self.method.head
        trained = torch.from_numpy(np.concatenate([host(head.weight).ravel(), host(head.bias)])).requires_grad_()
        optimizer = Adam().make(trained, local.rate)
        for epoch in range(local.epochs):
            key = derive_key(self.task.seed, "probe-batches", turn.round_number, turn.client, epoch)
            for chosen in batches(len(data), local.batch_size, key):
                where = torch.from_numpy(chosen)
                logits = functional.linear(features[where], *_weight_and_bias(trained, head))
                loss = functional.cross_entropy(logits, labels[where])
                (trained.grad,) = torch.autograd.grad(loss, trained)
                optimizer.step()
        return Update(
            {"head": head_vector(self.task, *_weight_and_bias(trained, head))},
            len(data),
            {"loss": number(loss)},
        )

    def examine(self, payloads: Payloads, examples: int) -> None:
        check_within(payloads["head"], FAR * max(1.0, largest(host(self.task.flat.initial))), "head")

    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None:
        accumulator.add(payloads["head"], examples)

    def head(self, accumulator: WeightedMean) -> Any:
        return as_float32(accumulator.mean())


class Discriminant(Fit):
    def part(self) -> Part:
        size = LdaStatistics.vector_size(self.task.classes, self.method.head.in_features)
        return Part("statistics", make_codec("dense"), size)

    def train(self, data: Data, turn: Turn) -> Update:
        statistics = LdaStatistics.from_features(*self.method.features(data), self.task.classes)
        return Update({"statistics": statistics.to_vector().numpy()}, len(data))

    def examine(self, payloads: Payloads, examples: int) -> None:
        check_statistics(self._statistics(torch.from_numpy(payloads["statistics"])), examples)

    def _statistics(self, vector: Tensor) -> LdaStatistics:
        return LdaStatistics.from_vector(vector, self.task.classes, self.method.head.in_features)

    def add(self, accumulator: WeightedMean, payloads: Payloads, examples: int) -> None:
        """Adds without weights: statistics are sums over each client's examples already."""
        accumulator.add(payloads["statistics"], 1)

    def head(self, accumulator: WeightedMean) -> Any:
        weight, bias = solve(self._statistics(torch.from_numpy(accumulator.sum)))
        return head_vector(self.task, weight, bias)


HEADS: dict[str, type[Fit]] = {"probe": Probe, "lda": Discriminant}


def find_linear_head(module: nn.Module) -> nn.Linear:
    name = find_head(module)
    head = module.get_submodule(name)
    if not isinstance(head, nn.Linear) or head.bias is None:
        raise ModelError(
            f"the head {name!r} is {type(head).__name__}: fitting it needs nn.Linear with a bias. "
            "Use head=keep to leave it as it is, or head=kaiming"
        )
    return head


def head_vector(task: Task, weight: Tensor, bias: Tensor) -> Any:
    """Weight and bias in the order of the flat model's template."""
    pieces = {"weight": weight, "bias": bias}
    ordered = [pieces[name.rpartition(".")[2]].detach().flatten() for name in task.flat.template.names]
    return as_float32(torch.cat(ordered).numpy())
