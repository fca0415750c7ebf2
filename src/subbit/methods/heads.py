"""The classifier of a pre-trained backbone, fitted in one federated round before the method itself begins.

    probe   linear probing (paper 000): every client trains the head alone on frozen features, the server averages,
            weighted by examples
    lda     FiT (Shysheya et al., "FiT: Parameter Efficient Few-shot Transfer Learning for Personalized and
            Federated Image Classification", ICLR 2023): clients send class counts, class sums and second moments
            of their features; the sum of these is the statistic of the pooled data, from which the server solves
            linear discriminant analysis in closed form

Both are ordinary methods on the selection "head", with frames like any other; their bytes are one-off costs. What
the head maps from is whatever reaches it: a hook on the head sees the features of any module.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from subbit.aggregate import WeightedMean
from subbit.codecs import make_codec
from subbit.data.batches import batches
from subbit.data.examples import Examples
from subbit.errors import ModelError
from subbit.methods.base import Method, Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.honest import FAR, check_statistics, largest
from subbit.methods.local import LocalTraining
from subbit.models.heads import LdaStatistics, solve
from subbit.models.selection import find_head
from subbit.randomness import derive_key

FEATURE_BATCH = 128


class HeadMethod(Method[LocalTraining]):
    """Common half of both: the state is one vector, the head's weight and bias as the flat model orders them."""

    paper = "000"
    sends_down = "nothing"
    Parameters = LocalTraining
    presets: ClassVar = {"default": {}, "paper": {}}
    networks = ("trained",)
    trains_added_values = True
    primary_network = "trained"

    def __init__(self, parameters: LocalTraining, task: Task) -> None:
        super().__init__(parameters, task)
        self.head = find_linear_head(task.flat.module)

    def down_parts(self) -> tuple[Part, ...]:
        return ()

    def open(self, payloads: Payloads, round_number: int) -> None:
        return None

    def start(self) -> State:
        return {"head": self.task.flat.weights.detach().numpy().copy()}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        return {}

    def write_network(self, state: State, network: str, key: int) -> None:
        write_head(self.task.flat.weights, np.asarray(state["head"]))

    def features(self, data: Examples) -> Tensor:
        """What reaches the head, for all examples, with the whole network in evaluation mode."""
        self.task.flat.evaluation_mode()
        seen: list[Tensor] = []
        handle = self.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            with torch.no_grad():
                for start in range(0, len(data), FEATURE_BATCH):
                    self.task.flat.module(data.inputs[start : start + FEATURE_BATCH])
        finally:
            handle.remove()
        return torch.cat(seen)


class LinearProbe(HeadMethod):
    name = "probe"
    title = "one federated round of linear probing"
    citation = "Tsouvalas et al., Federated Fine-Tuning of Vision Foundation Models via Probabilistic Masking, 2023"
    sends_up = "the trained head, float32"

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("head", make_codec("dense"), self.size),)

    def train(self, view: None, data: Examples, turn: Turn) -> Update:
        features, loss = self.features(data), torch.zeros(())
        weight = self.head.weight.detach().clone().requires_grad_()
        bias = self.head.bias.detach().clone().requires_grad_()
        optimizer = torch.optim.Adam([weight, bias], lr=self.parameters.learning_rate)
        for epoch in range(self.parameters.epochs):
            key = derive_key(self.task.seed, "probe-batches", turn.round_number, turn.client, epoch)
            for chosen in batches(len(data), self.parameters.batch_size, key):
                where = torch.from_numpy(chosen)
                loss = functional.cross_entropy(functional.linear(features[where], weight, bias), data.labels[where])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return Update({"head": head_vector(self.task, weight, bias)}, len(data), {"loss": float(loss.detach())})

    def farthest(self, part: Part, view: None) -> float:
        return FAR * max(1.0, largest(self.task.flat.initial.numpy()))

    def accumulator(self) -> WeightedMean:
        return WeightedMean(self.size)

    def accumulate(
        self, accumulator: WeightedMean, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        accumulator.add(payloads["head"], examples)

    def step(self, state: State, accumulator: WeightedMean, round_number: int) -> State:
        if not accumulator.weight:
            return state  # Nobody had an example: the mean of no heads is not zero.
        return {"head": as_float32(accumulator.mean())}


class LdaHead(HeadMethod):
    name = "lda"
    title = "linear discriminant analysis from pooled statistics"
    citation = "Shysheya et al., FiT: Parameter Efficient Few-shot Transfer Learning, ICLR 2023"
    sends_up = "class counts, class sums and second moments of the features, float32"

    def up_parts(self) -> tuple[Part, ...]:
        size = LdaStatistics.vector_size(self.task.classes, self.head.in_features)
        return (Part("statistics", make_codec("dense"), size),)

    def train(self, view: None, data: Examples, turn: Turn) -> Update:
        statistics = LdaStatistics.from_features(self.features(data), data.labels, self.task.classes)
        return Update({"statistics": statistics.to_vector().numpy()}, len(data))

    def examine(self, view: None, payloads: Payloads, examples: int, client: int) -> None:
        vector = torch.from_numpy(payloads["statistics"])
        check_statistics(LdaStatistics.from_vector(vector, self.task.classes, self.head.in_features), examples)

    def accumulator(self) -> WeightedMean:
        return WeightedMean(self.up_parts()[0].size)

    def accumulate(
        self, accumulator: WeightedMean, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        """A sum: each client's statistics already weigh what its data weigh."""
        accumulator.add(payloads["statistics"], 1)

    def step(self, state: State, accumulator: WeightedMean, round_number: int) -> State:
        pooled = LdaStatistics.from_vector(torch.from_numpy(accumulator.sum), self.task.classes, self.head.in_features)
        weight, bias = solve(pooled)
        return {"head": head_vector(self.task, weight, bias)}


HEAD_METHODS: dict[str, type[HeadMethod]] = {"probe": LinearProbe, "lda": LdaHead}


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


def write_head(weights: Tensor, head: Any) -> None:
    with torch.no_grad():
        weights.copy_(torch.from_numpy(as_float32(head)))
