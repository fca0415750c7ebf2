"""FedMask's payloads: clients upload bits inside their structures, and each structure once; the server broadcasts the
overlap of the round's masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import WeightedMean
from subbit.aggregate.overlap import SHARED, Overlap
from subbit.codecs import Counts, Shared, Vector, make_codec
from subbit.codecs.codec import Bits
from subbit.codecs.packed import pack_bits, unpack_bits
from subbit.core.errors import PayloadError
from subbit.core.values import require
from subbit.exchange.exchange import Exchange, Part, Payloads, State, as_float32
from subbit.exchange.honest import FAR, largest
from subbit.exchange.posterior import MOST_MASKS
from subbit.methods.fedmask_network import Booleans, MaskedNetwork
from subbit.methods.fedmask_parameters import FedMaskParameters
from subbit.models.structure import empty_groups
from subbit.models.task import Task, Turn

STRUCTURE = "structure/"
"""Prefix of the state entries that hold structures; the client's number follows."""
Memory = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class View:
    """A decoded broadcast: the overlap of last round's masks and, if they are federated, the real values."""

    overlap: Overlap
    real: Vector | None


class Replies:
    """One round's masks, packed. Unpacking them needs the structures, which are part of the state."""

    def __init__(self, real: WeightedMean | None) -> None:
        self.order_free = real is None
        self.masks: dict[int, tuple[Bits | None, Bits]] = {}
        """By client: its structure, if new, and its bits."""
        self.real = real


class OverlapExchange(Exchange):
    def __init__(self, task: Task, parameters: FedMaskParameters, bound: MaskedNetwork) -> None:
        require(
            task.participants <= MOST_MASKS, f"{task.participants} clients a round: at most {MOST_MASKS} masks add up"
        )
        self.map, self.structures, self.participants = bound, bound.structures, task.participants
        self.codec, self.structured = parameters.up.codec, parameters.up.communication == "structured"
        self.majority = parameters.aggregate.aggregation == "majority"
        self.sends_real = parameters.aggregate.real_values == "federated" and bool(bound.real.size)

    # Payloads.

    def down_parts(self) -> tuple[Part, ...]:
        names = ("overlap",) if self.majority else ("ones", "holders")
        return (*(Part(name, make_codec("counts"), self.map.masked.size) for name in names), *self._real_parts())

    def up_parts(self) -> tuple[Part, ...]:
        size = self.structures.kept_elements if self.structured else self.map.masked.size
        parts = [Part("mask", self.codec, size)]
        if self.structures.units:
            parts.append(Part("structure", make_codec("range"), self.structures.units, optional=True))
        return (*parts, *self._real_parts())

    def _real_parts(self) -> tuple[Part, ...]:
        return (Part("real", make_codec("dense"), self.map.real.size),) if self.sends_real else ()

    def shared(self, part: Part, view: View | None, round_number: int, client: int) -> Shared:
        return Shared(part.size, limit=SHARED if self.majority else self.participants)

    def broadcast(self, state: State, round_number: int) -> Payloads:
        overlap, answered = overlap_of(state), int(state["answered"])
        real = {"real": state.get("real")}
        if self.majority:
            return {"overlap": Counts(SHARED, overlap.as_votes_of_two()), **real}
        return {"ones": Counts(answered, overlap.ones), "holders": Counts(answered, overlap.holders), **real}

    def open(self, payloads: Payloads, round_number: int) -> View:
        if self.majority:
            overlap = Overlap.of_votes_of_two(payloads["overlap"].values)
        else:
            overlap = Overlap(payloads["ones"].values, payloads["holders"].values)
        return View(overlap, payloads.get("real"))

    # Client side.

    def own_mask(self, memory: Memory) -> Booleans:
        """The client's mask; all ones before its first turn."""
        kept, size = memory.get("mask"), self.map.masked.size
        return np.ones(size, dtype=np.bool_) if kept is None else unpack_bits(kept, size)

    def trained(self, view: View, memory: Memory | None = None) -> Tensor:
        """Scores and real values at the start of a turn, for a client with this memory or for a new client."""
        memory, overlap, score = memory or {}, view.overlap, self.map.local.score
        scores = np.where(overlap.merge(self.own_mask(memory)), score, -score)
        if not self.majority:
            mean = overlap.ones / np.maximum(overlap.holders, 1)
            scores = np.where(overlap.decided, score * (2 * mean - 1), scores)
        return torch.from_numpy(self.map.joined(scores, view.real if self.sends_real else memory.get("real")))

    def say(self, view: View, trained: Tensor, turn: Turn) -> tuple[Payloads, dict[str, float]]:
        memory, values = turn.memory, trained.numpy()
        newcomer, own, units = "mask" not in memory, self.own_mask(memory), memory.get("structure")
        structure = self.map.structure(units)
        mask = (values[self.map.masked] >= 0) & structure
        memory["mask"] = pack_bits(mask)
        if self.map.real.size:
            memory["real"] = values[self.map.real]
        sent = mask[structure] if self.structured else mask
        payloads = {"mask": pack_bits(sent), "structure": units if newcomer else None, "real": memory.get("real")}
        empty_rows, empty_columns = empty_groups(mask, self.map.layers)
        return payloads, {
            "ones": np.count_nonzero(mask) / mask.size,
            "flips": np.count_nonzero(mask ^ (own & structure)) / mask.size,
            "empty_rows": empty_rows,
            "empty_columns": empty_columns,
        }

    # Server side.

    def start(self) -> State:
        nobody = Overlap.of_nobody(self.map.masked.size)
        real = {"real": np.zeros(self.map.real.size, dtype=np.float32)} if self.sends_real else {}
        return {"ones": nobody.ones, "holders": nobody.holders, "answered": 0, **real}

    def farthest(self, part: Part, view: View) -> float:
        return FAR * max(1.0, largest(view.real))

    def accumulator(self) -> Replies:
        return Replies(WeightedMean(self.map.real.size) if self.sends_real else None)

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
        overlap = Overlap.of_nobody(self.map.masked.size)
        for client, (new_units, mask) in accumulator.masks.items():
            if new_units is not None:
                after[f"{STRUCTURE}{client}"] = new_units
            units = after.get(f"{STRUCTURE}{client}")
            if units is None and self.structures.units:
                continue  # Omitted its structure without ever sending one: a protocol violation, not counted.
            structure = self.map.structure(units)
            if self.structured:
                spread = np.zeros(self.map.masked.size, dtype=np.bool_)
                spread[structure] = unpack_bits(mask, self.structures.kept_elements)
                mask = pack_bits(spread)
            overlap.add(pack_bits(structure), mask)
        after |= {"ones": overlap.ones, "holders": overlap.holders, "answered": len(accumulator.masks)}
        if accumulator.real is not None:
            # If no participant had examples, there is no mean.
            after["real"] = as_float32(accumulator.real.mean()) if accumulator.real.weight else state["real"]
        return after

    def write(self, state: State, network: str, key: int) -> None:
        """Write the network of a new client."""
        self.map.write_mask(overlap_of(state).merge(self.map.structure(None)), state.get("real"))


def overlap_of(state: State) -> Overlap:
    return Overlap(np.asarray(state["ones"], dtype=np.uint16), np.asarray(state["holders"], dtype=np.uint16))
