"""FedMask: every client learns a sparse mask of its own on frozen random weights; masks meet where they overlap.

Li, Sun, Zeng, Zhang, Li, Chen: "FedMask: Joint Computation and Communication-Efficient Personalized Federated Learning
via Heterogeneous Masking", SenSys 2021. (Paper 004.)

    down     of each element: one, zero, or open (`subbit.aggregate.overlap`)
    first    the client trains scores for one epoch and keeps the share `keep_rate` of the last layers that this moved
             most, weighted by |w0|: its structure, for good
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

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.aggregate import WeightedMean
from subbit.aggregate.overlap import SHARED, Overlap
from subbit.codecs import Counts, Shared, make_codec
from subbit.codecs.base import Bits
from subbit.codecs.bits import pack_bits, unpack_bits
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.errors import ConfigError, PayloadError
from subbit.methods.base import Method, Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.local import LocalTraining, train_locally
from subbit.methods.masks import MOST_MASKS, MaskMethod
from subbit.models.hard_mask import HardMask, frozen_weights
from subbit.models.structure import Structures, empty_groups, group_lasso, masked_layers, places_of
from subbit.randomness import derive_key

Booleans = NDArray[np.bool_]

STRUCTURE = "structure/"
"""Before the number of a client: where the state keeps its structure."""
HALF = 0.5
"""Share of ones in a mask, about, once it is trained."""
LEAST_MEAN = 0.05
"""Of an average: closer to 0 or 1 it would start a score where sigmoid has no slope."""


@dataclass(frozen=True)
class FedMaskParameters(LocalTraining):
    epochs: int = 5
    learning_rate: float = 0.1
    weights: Literal["auto", "keep", "signed", "kaiming"] = "auto"
    """The frozen weights: the module's own (`keep`), their signs times sqrt(2 / fan-in), or from N(0, 2 / fan-in), the
    fan-in being what pruning and a mask of half ones leave of it. `auto`: `keep` if pre-trained, else `kaiming`."""
    pruned_layers: int = 2
    """So many of the last modules with weights are pruned, the classifier being one of them."""
    keep_rate: float = 0.2
    """Share that survives the pruning."""
    prune: Literal["elements", "rows"] = "elements"
    """What is pruned: single elements, or whole rows (units, filters), which always shrinks the exported network."""
    prune_scope: Literal["layer", "network"] = "layer"
    """The same share of every pruned layer, or the best of all together."""
    prune_epochs: int = 1
    saliency: Literal["value", "change"] = "value"
    """|w0| times the size of the score, as in the paper's algorithm, or times how far it moved, as in its text: that
    also keeps the weights that training would rather be without."""
    forward: Literal["hard", "soft"] = "hard"
    """Local training sees the mask that is sent, or sigmoid(s), which is then cut to it."""
    score: float = 1.0
    """A turn starts from +score for ones and -score for zeros."""
    lasso: float = 2e-4
    """Strength of the group lasso over rows and columns."""
    lasso_scaled: bool = False
    """Each group's norm times the root of its size, as in the original group lasso."""
    aggregation: Literal["majority", "average"] = "majority"
    """What goes down: the majority (two bits at most), or counts, from which scores start at logit(mean)."""
    communication: Literal["structured", "dense"] = "structured"
    """A turn's upload: bits inside the structure alone, or one for each masked weight."""
    codec: Literal["mask", "range", "packed"] = "mask"
    """`mask` takes the smallest code; `packed` costs exactly one bit for each bit."""
    output_gate: Literal["real", "masked"] = "real"
    """Of an LSTM: masking all four gates costs it accuracy."""
    real_values: Literal["local", "federated"] = "local"
    """Weights without a mask (output gates, selected biases) stay with the client or are averaged, 32 bits each."""
    real_rate: float = 0.01
    """Learning rate of weights without a mask, as a multiple of that of the masks."""
    evaluation: Literal["trained", "merged"] = "trained"
    """The client's network: its mask as it last trained it, or as it is after the aggregation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.pruned_layers >= 0, f"pruned_layers={self.pruned_layers}: needs 0 or more")
        require(0 < self.keep_rate <= 1, f"keep_rate={self.keep_rate}: needs a share above 0, at most 1")
        require(self.prune_epochs >= 1, f"prune_epochs={self.prune_epochs}: needs at least 1")
        require(0 < self.score <= 10, f"score={self.score}: needs a number above 0, at most 10")
        require(self.lasso >= 0, f"lasso={self.lasso}: needs a number from 0 up")
        require(self.real_rate > 0, f"real_rate={self.real_rate}: needs a number above 0")
        require(
            self.prune == "elements" or self.prune_scope == "layer",
            "prune=rows keeps a share of each layer's rows: needs prune_scope=layer",
        )


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
        self.layers = masked_layers(task.flat, parameters.output_gate == "masked")
        if not self.layers:
            raise ConfigError("fedmask masks weights, and none of them is selected: use select='all: weights'")
        self.structures = Structures(
            self.layers,
            parameters.pruned_layers,
            parameters.keep_rate,
            parameters.prune == "rows",
            parameters.prune_scope == "layer",
        )
        self.masked = places_of(self.layers)
        self.real = np.setdiff1d(np.arange(self.size), self.masked)
        self._sends_real = parameters.real_values == "federated" and bool(self.real.size)
        form, self.frozen = parameters.weights, task.flat.initial
        if form == "auto":
            form = "keep" if task.pretrained else "kaiming"
        if form != "keep":
            shares = [HALF * (parameters.keep_rate if layer in self.structures.layers else 1) for layer in self.layers]
            key = derive_key(task.seed, "frozen-weights")
            self.frozen = frozen_weights(self.frozen, self.layers, form, shares, key)

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
            structure = self._structure(units)
            if self.parameters.communication == "structured":
                spread = np.zeros(self.masked.size, dtype=np.bool_)
                spread[structure] = unpack_bits(mask, self.structures.kept_elements)
                mask = pack_bits(spread)
            overlap.add(pack_bits(structure), mask)
        after |= {"ones": overlap.ones, "holders": overlap.holders, "answered": len(accumulator.masks)}
        if accumulator.real is not None:
            after["real"] = as_float32(accumulator.real.mean())
        return after

    def _structure(self, units: Any) -> Booleans:
        """Which masked places a client holds: all of them before it has pruned any."""
        if units is None:
            return np.ones(self.masked.size, dtype=np.bool_)
        return self.structures.elements(unpack_bits(units, self.structures.units))

    # The client half.

    def train(self, view: View, data: Examples, turn: Turn) -> Update:
        parameters, memory = self.parameters, turn.memory
        newcomer = "mask" not in memory
        start, own = self._start(view, memory), self._own_mask(memory)
        if newcomer and self.structures.units:
            memory["structure"] = self._prune(start, data, turn)
        units = memory.get("structure")
        structure = self._structure(units)
        hard_mask = self._hard_mask(structure)

        def add_lasso(trained: Tensor, gradient: Tensor, epoch: int, step: int) -> None:
            _, slope = group_lasso(trained, hard_mask.alive, self.layers, parameters.lasso_scaled)
            gradient.add_(slope, alpha=parameters.lasso)

        trained = start.clone()
        loss = train_locally(
            self.task,
            parameters,
            hard_mask,
            trained,
            data,
            turn,
            constrain=hard_mask.clamp_,
            adjust=add_lasso if parameters.lasso else None,
        )
        mask = (trained.numpy()[self.masked] >= 0) & structure
        memory["mask"] = pack_bits(mask)
        if self.real.size:
            memory["real"] = trained.numpy()[self.real]
        sent = mask[structure] if parameters.communication == "structured" else mask
        payloads = {"mask": pack_bits(sent), "structure": units if newcomer else None, "real": memory.get("real")}
        empty_rows, empty_columns = empty_groups(mask, self.layers)
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
            mean = (overlap.ones / np.maximum(overlap.holders, 1)).clip(LEAST_MEAN, 1 - LEAST_MEAN)
            scores = np.where(overlap.decided, np.log(mean / (1 - mean)), scores)
        return self._vector(scores, view.real if self._sends_real else memory.get("real"))

    def _vector(self, scores: NDArray[Any], real: Any) -> Tensor:
        vector = np.zeros(self.size, dtype=np.float32)
        vector[self.masked] = scores
        if real is not None:
            vector[self.real] = real
        return torch.from_numpy(vector)

    def _prune(self, start: Tensor, data: Examples, turn: Turn) -> Bits:
        """The client's structure, from where training without one takes the scores."""
        everything = self._hard_mask(self._structure(None))
        after = start.clone()
        settings = replace(self.parameters, epochs=self.parameters.prune_epochs)
        train_locally(self.task, settings, everything, after, data, turn, constrain=everything.clamp_)
        scores = after - start if self.parameters.saliency == "change" else after
        magnitude = self.frozen.numpy()[self.structures.places]
        magnitude = np.abs(magnitude)
        return pack_bits(self.structures.prune(magnitude * np.abs(scores.numpy()[self.structures.places]), magnitude))

    def _hard_mask(self, structure: Booleans) -> HardMask:
        alive = np.zeros(self.size, dtype=np.float32)
        alive[self.masked] = structure
        soft = self.parameters.forward == "soft"
        return HardMask(
            self.frozen, torch.from_numpy(alive), torch.from_numpy(self.real), self.parameters.real_rate, soft
        )

    # Evaluation.

    def personalise(self, view: View, data: Examples, turn: Turn) -> None:
        memory = turn.memory
        mask, real = self._own_mask(memory), memory.get("real")
        if self.parameters.evaluation == "merged" or "mask" not in memory:
            mask = view.overlap.merge(mask) & self._structure(memory.get("structure"))
            real = view.real if self._sends_real else real
        self._write(mask, real)

    def write_network(self, state: State, network: str, key: int) -> None:
        """The network of a newcomer."""
        self._write(overlap_of(state).merge(self._structure(None)), state.get("real"))

    def _write(self, mask: Booleans, real: Any) -> None:
        vector = self._vector(np.where(mask, 1, -1), real)
        self._hard_mask(self._structure(None)).write_hard(vector, self.task.flat.weights)


def overlap_of(state: State) -> Overlap:
    return Overlap(np.asarray(state["ones"], dtype=np.uint16), np.asarray(state["holders"], dtype=np.uint16))
