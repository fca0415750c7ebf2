"""FedMask: every client learns a sparse mask of its own on frozen random weights; masks meet where they overlap.

Li, Sun, Zeng, Zhang, Li, Chen: "FedMask: Joint Computation and Communication-Efficient Personalized Federated Learning
via Heterogeneous Masking", SenSys 2021. (Paper 004.)

    down     of each element: one, zero, or open (`subbit.aggregate.overlap`)
    first    the client trains scores for one epoch and keeps the share `keep_rate` of the last layers where |w0| times
             sigmoid(s) is largest: its structure, for good
    client   own bits <- those of the broadcast where they are decided;  s = +c for a one, -c for a zero
             every step descends on L(w0 * [s >= 0]) + lasso * R(s), inside the structure (`subbit.models.hard_mask`,
             `subbit.models.structure`); own bits <- [s >= 0]
    up       the bits inside the structure (or one for each weight); the structure itself, once
    server   counts, for each element, this round's clients that hold it and the ones among their bits

A client that was not asked for some rounds merges when it is asked again. Its network is w0 * (its bits); the only one
for all is that from which a newcomer starts, ones where the broadcast is open.

Only weights are masked. Selected biases and norms, and by default the output gate of an LSTM, are trained as they are
and stay with the client (`real_values`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import WeightedMean
from subbit.aggregate.overlap import SHARED, Overlap
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.base import Bits
from subbit.codecs.bits import pack_bits, unpack_bits
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import PayloadError
from subbit.exchange.honest import FAR, largest
from subbit.methods.base import Method, Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.fedmask_network import MaskedNetwork
from subbit.methods.fedmask_parameters import FedMaskParameters
from subbit.methods.masks import MOST_MASKS, MaskMethod
from subbit.models.structure import empty_groups

Booleans = NDArray[np.bool_]

STRUCTURE = "structure/"
"""Before the number of a client: where the state keeps its structure."""


@dataclass(frozen=True)
class View:
    """What a broadcast means: how last round's masks overlap and, where they travel, the real values."""

    overlap: Overlap
    real: NDArray[np.float32] | None


class Replies:
    """One round's masks, packed. What they mean depends on structures that only the state knows."""

    def __init__(self, real: WeightedMean | None) -> None:
        self.order_free = real is None
        self.masks: dict[int, tuple[Bits | None, Bits]] = {}
        """By client: its structure, if it is new, and its bits."""
        self.real = real


class FedMask(Method[FedMaskParameters]):
    name = "fedmask"
    title = "FedMask: personal sparse masks on frozen random weights"
    paper = "004"
    citation = "Li et al., FedMask: Joint Computation and Communication-Efficient Personalized FL, SenSys 2021"
    sends_up = "mask bits inside the client's structure (paper: of all weights); the structure once"
    sends_down = "majority of the masks where they overlap: one, zero or open, entropy-coded"
    Parameters = FedMaskParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"weights": "kaiming", "communication": "dense", "codec": "packed", "optimizer": "sgd"},
    }
    networks = ("common",)
    primary_network = "common"
    trains_added_values = False
    personal = True
    default_selection = staticmethod(MaskMethod.default_selection)

    def __init__(self, parameters: FedMaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        require(
            task.participants <= MOST_MASKS, f"{task.participants} clients a round: at most {MOST_MASKS} masks add up"
        )
        self.network = MaskedNetwork(parameters, task)
        self.structures, self.masked, self.real = self.network.structures, self.network.masked, self.network.real
        self.frozen = self.network.frozen
        """For `subbit.export`: what the masks are over."""
        self._sends_real = parameters.real_values == "federated" and bool(self.real.size)

    # What travels.

    def down_parts(self) -> tuple[Part, ...]:
        names = ("overlap",) if self.parameters.aggregation == "majority" else ("ones", "holders")
        return (*(Part(name, make_codec("counts"), self.masked.size) for name in names), *self._real_parts())

    def up_parts(self) -> tuple[Part, ...]:
        structured = self.parameters.communication == "structured"
        size = self.structures.kept_elements if structured else self.masked.size
        parts = [Part("mask", make_codec(self.parameters.codec), size)]
        if self.structures.units:
            parts.append(Part("structure", make_codec("range"), self.structures.units, optional=True))
        return (*parts, *self._real_parts())

    def _real_parts(self) -> tuple[Part, ...]:
        return (Part("real", make_codec("dense"), self.real.size),) if self._sends_real else ()

    def shared(self, part: Part, view: View | None, round_number: int, client: int) -> Shared:
        majority = self.parameters.aggregation == "majority"
        return Shared(part.size, limit=SHARED if majority else self.task.participants)

    def open(self, payloads: Payloads, round_number: int) -> View:
        if self.parameters.aggregation == "majority":
            overlap = Overlap.of_votes_of_two(payloads["overlap"].values)
        else:
            overlap = Overlap(payloads["ones"].values, payloads["holders"].values)
        return View(overlap, payloads.get("real"))

    # The server half.

    def start(self) -> State:
        nobody = Overlap.of_nobody(self.masked.size)
        real = {"real": np.zeros(self.real.size, dtype=np.float32)} if self._sends_real else {}
        return {"ones": nobody.ones, "holders": nobody.holders, "answered": 0, **real}

    def broadcast(self, state: State, round_number: int) -> Payloads:
        overlap, answered = overlap_of(state), int(state["answered"])
        real = {"real": state.get("real")}
        if self.parameters.aggregation == "majority":
            return {"overlap": Counts(SHARED, overlap.as_votes_of_two()), **real}
        return {"ones": Counts(answered, overlap.ones), "holders": Counts(answered, overlap.holders), **real}

    def farthest(self, part: Part, view: View) -> float:
        return FAR * max(1.0, largest(view.real))

    def accumulator(self) -> Replies:
        return Replies(WeightedMean(self.real.size) if self._sends_real else None)

    def accumulate(
        self, accumulator: Replies, view: View, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        units = payloads.get("structure")
        if units is not None:
            fault = self.structures.fault(unpack_bits(units, self.structures.units))
            if fault:
                raise PayloadError(fault, "value")
        accumulator.masks[client] = (units, payloads["mask"])
        if accumulator.real is not None:
            accumulator.real.add(payloads["real"], examples)

    def step(self, state: State, accumulator: Replies, round_number: int) -> State:
        after: State = {name: value for name, value in state.items() if name.startswith(STRUCTURE)}
        overlap = Overlap.of_nobody(self.masked.size)
        for client, (new_units, mask) in accumulator.masks.items():
            if new_units is not None:
                after[f"{STRUCTURE}{client}"] = new_units
            units = after.get(f"{STRUCTURE}{client}")
            if units is None and self.structures.units:
                continue  # It said "as before", and there is no before: who breaks the protocol has no vote.
            structure = self.network.structure(units)
            if self.parameters.communication == "structured":
                spread = np.zeros(self.masked.size, dtype=np.bool_)
                spread[structure] = unpack_bits(mask, self.structures.kept_elements)
                mask = pack_bits(spread)
            overlap.add(pack_bits(structure), mask)
        after |= {"ones": overlap.ones, "holders": overlap.holders, "answered": len(accumulator.masks)}
        if accumulator.real is not None:
            # Where nobody had an example there is no mean.
            after["real"] = as_float32(accumulator.real.mean()) if accumulator.real.weight else state["real"]
        return after

    # The client half.

    def train(self, view: View, data: Examples, turn: Turn) -> Update:
        memory = turn.memory
        newcomer = "mask" not in memory
        start, own = self._start(view, memory), self._own_mask(memory)
        if newcomer and self.structures.units:
            memory["structure"] = self.network.prune(start, data, turn)
        units = memory.get("structure")
        structure = self.network.structure(units)
        trained, loss = self.network.train(start, structure, data, turn)
        mask = (trained.numpy()[self.masked] >= 0) & structure
        memory["mask"] = pack_bits(mask)
        if self.real.size:
            memory["real"] = trained.numpy()[self.real]
        sent = mask[structure] if self.parameters.communication == "structured" else mask
        payloads = {"mask": pack_bits(sent), "structure": units if newcomer else None, "real": memory.get("real")}
        empty_rows, empty_columns = empty_groups(mask, self.network.layers)
        observations = {
            "loss": loss,
            "ones": np.count_nonzero(mask) / mask.size,
            "flips": np.count_nonzero(mask ^ (own & structure)) / mask.size,
            "empty_rows": empty_rows,
            "empty_columns": empty_columns,
        }
        return Update(payloads, len(data), observations)

    def _own_mask(self, memory: dict[str, NDArray[Any]]) -> Booleans:
        """A client that was never here has the mask that everybody starts with: ones."""
        kept = memory.get("mask")
        return np.ones(self.masked.size, dtype=np.bool_) if kept is None else unpack_bits(kept, self.masked.size)

    def _start(self, view: View, memory: dict[str, NDArray[Any]]) -> Tensor:
        """Scores and real values from which a turn starts."""
        overlap, score = view.overlap, self.parameters.score
        scores = np.where(overlap.merge(self._own_mask(memory)), score, -score)
        if self.parameters.aggregation == "average":
            mean = overlap.ones / np.maximum(overlap.holders, 1)
            scores = np.where(overlap.decided, score * (2 * mean - 1), scores)
        return self.network.vector(scores, view.real if self._sends_real else memory.get("real"))

    # Evaluation.

    def personalise(self, view: View, data: Examples, turn: Turn) -> None:
        memory = turn.memory
        mask, real = self._own_mask(memory), memory.get("real")
        if self.parameters.evaluation == "merged" or "mask" not in memory:
            mask = view.overlap.merge(mask) & self.network.structure(memory.get("structure"))
            real = view.real if self._sends_real else real
        self.network.write(mask, real)

    def write_network(self, state: State, network: str, key: int) -> None:
        """The network of a newcomer."""
        self.network.write(overlap_of(state).merge(self.network.structure(None)), state.get("real"))


def overlap_of(state: State) -> Overlap:
    return Overlap(np.asarray(state["ones"], dtype=np.uint16), np.asarray(state["holders"], dtype=np.uint16))
