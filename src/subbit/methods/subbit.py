"""subbit: a few values that move all weights together, one bit each, both ways.

Our own method; docs/flagship.md has the experiments behind it.

    weights  W = W0 (1 + V R V')  V: the inputs that a layer uses most; z: all values of R, and the head's own
    client   trains z by Adam for three epochs from the z it received: z_k
             If z_k raises the loss on its own examples, its step is halved (`guard`)
    up       E(z_k - z), E: a trellis code at one bit a value, with a rotation of its own for every client and round
    server   z <- z + mean_k E(z_k - z)
    down     E(z - held): what receivers hold follows z, and what one broadcast loses is in the next one

A shorter vector loses less than fewer bits on a longer one. Relative to what a layer computes already, a step means the
same on every network: at a rate of 0.0025 it changes the response along a direction by 0.25%. Several small epochs cost
no byte and take the place of more rounds. The noise of one bit averages out over clients (up) and over rounds (down).
Where there are no classes there is no fitted head to start from: more values and larger steps. Those of a language
model take turns.

A network with random weights computes nothing worth moving around. There the weights themselves are trained, with a bit
for each, both ways. For so many values EDEN takes the place of the trellis code, which is slower.

`bytes` is the budget of a client in a round, `run_bytes` that of a whole run. The number of values follows from it, and
if all weights have one of their own, the number of bits.

The influence of one client is bounded by `clip_norm` and, where `aggregator=agreement`, `trimmed` or `median`, by the
other clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from subbit.codecs.eden import Eden
from subbit.codecs.trellis import Trellis
from subbit.core.values import require
from subbit.exchange.spending import Sized, Spending, missed_broadcasts
from subbit.exchange.vectors import VectorAggregate, VectorDown, VectorExchange, VectorUp
from subbit.local.trainer import LocalWeights, Trainer
from subbit.maps.bound import BoundMap
from subbit.maps.spans import most_values, rotates, share_widths
from subbit.maps.subspace import SubspaceMap
from subbit.maps.weights import WeightMap
from subbit.methods.method import Method
from subbit.methods.variants import Variant
from subbit.models.task import Task

HEAD_SHARE = 3
"""One in so many values of a budget is for the head."""


CODE = Trellis(bits=1.0, memory=12)
MOST_IN_CODE = 2**16
"""Values that are encoded in a twentieth of a second; for more, EDEN."""
DIMENSIONS = SubspaceMap(basis="own", dimensions="auto", rotate="auto")
RATE, RATE_WITHOUT_CLASSES, RATE_IN_TURNS = 0.0025, 0.005, 0.01
"""A network with classes ended lower at the larger rates, a language model better: see the runs in docs/flagship.md.
Values that take turns have a round or two for their way."""
RATE_OF_RANDOM_WEIGHTS = 0.001
"""Of the weights themselves."""
RATE_OF_RANDOM_MASKS = 0.01
"""A mask on random weights has far to go."""


@dataclass(frozen=True)
class SubbitParameters:
    map: SubspaceMap = DIMENSIONS
    local: LocalWeights = LocalWeights(
        epochs=3, batch_size=32, learning_rate="auto", schedule="auto", guard="start", calibrate=True
    )
    """`learning_rate=auto`: 0.0025; 0.005 where there are no classes, and 0.01 for a language model, whose values
    take turns. For a network with random weights 0.001, of the weights themselves. `schedule=auto`: cosine, and
    constant where values take turns: those whose turn comes late need their steps, too."""
    up: VectorUp = VectorUp(codec=CODE)
    down: VectorDown = VectorDown(codec=CODE)
    """A trellis code with memory=12, both ways; EDEN where more than 65,536 values move in a round."""
    aggregate: VectorAggregate = VectorAggregate()
    bytes: int | None = None
    """Bytes of a client in a round, up and down together, headers and missed broadcasts included, on average over the
    run. Decides `dimensions` and `head_dimensions`."""
    run_bytes: int | None = None
    """Instead of `bytes`: those of all clients in all rounds. What it takes to fit the head is not included."""

    def __post_init__(self) -> None:
        require(self.bytes is None or self.run_bytes is None, "bytes and run_bytes: give one of them")
        for name, budget in (("bytes", self.bytes), ("run_bytes", self.run_bytes)):
            if budget is None:
                continue
            sized = isinstance(self.up.codec, Sized) and isinstance(self.down.codec, Sized)
            require(sized, f"{name}={budget}: needs a codec and a down_codec whose length is known, eden or trellis")
            plain = (self.map.dimensions, self.map.head_dimensions) == (
                DIMENSIONS.dimensions,
                DIMENSIONS.head_dimensions,
            )
            require(plain, f"{name}={budget}: decides dimensions and head_dimensions; leave these out")
            one = isinstance(self.up.codec, Sized) and self.up.codec.bits == 1.0
            one = one and isinstance(self.down.codec, Sized) and self.down.codec.bits == 1.0
            require(one, f"{name}={budget}: decides bits and down_bits; leave these out")


class Subbit(Method[SubbitParameters]):
    name = "subbit"
    title = "subbit: a shared subspace, one bit a value, both ways"
    paper = "ours"
    citation = "this library, docs/flagship.md"
    sends_up = "change of a few values that move all weights, one bit each"
    sends_down = "their change since the last broadcast, one bit each"
    Parameters = SubbitParameters
    presets: ClassVar = {"default": {}, "paper": {}}

    def __init__(self, parameters: SubbitParameters, task: Task) -> None:
        budget = parameters.bytes
        if parameters.run_bytes is not None:
            budget = parameters.run_bytes // max(task.participants * task.rounds, 1)  # rounds=0 only fits the head.
        if budget is not None:
            parameters = within_budget(parameters, budget, task)
        if parameters.map.dimensions == "auto" and not parameters.map.masked and not task.pretrained:
            bound: BoundMap = WeightMap().bind(task)
            rate = RATE_OF_RANDOM_WEIGHTS
        else:
            bound = parameters.map.bind(task)
            rate = RATE_IN_TURNS if bound.moves < bound.size else RATE_WITHOUT_CLASSES
            rate = RATE if task.objective.labels_are_classes else rate
            rate = rate if task.pretrained or not parameters.map.masked else RATE_OF_RANDOM_MASKS
        turns = bound.moves < bound.size
        parameters = replace(parameters, local=settled(parameters.local, rate, turns, task))
        if bound.moves > MOST_IN_CODE:
            parameters = replace(parameters, up=quick(parameters.up), down=quick(parameters.down))
        super().__init__(parameters, task)
        self.map = bound
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = VectorExchange(task, parameters, self.map)


def settled(local: LocalWeights, rate: float, turns: bool, task: Task) -> LocalWeights:
    """With what `auto` stands for. Random weights know nothing that clients could forget: they are no start to go back
    to, and what each client has to say counts in full."""
    if local.learning_rate == "auto":
        local = replace(local, learning_rate=rate)
    if local.schedule == "auto":
        local = replace(local, schedule="constant" if turns else "cosine")
    return local if task.pretrained else replace(local, guard=bool(local.guard), calibrate=False)


Way = TypeVar("Way", VectorUp, VectorDown)


def quick(way: Way) -> Way:
    """With EDEN in place of the default code."""
    codec = way.codec
    return replace(way, codec=Eden(codec.bits)) if isinstance(codec, Trellis) and codec.memory == CODE.memory else way


def within_budget(parameters: SubbitParameters, budget: int, task: Task) -> SubbitParameters:
    """As many values as the budget allows; if it allows one for each weight, more bits."""
    up, down = parameters.up.codec, parameters.down.codec
    assert isinstance(up, Sized)
    assert isinstance(down, Sized)
    statistics = task.flat.statistics
    body, head = most_values(task, parameters.map.basis)
    held = sum(share_widths(replace(parameters.map, dimensions=1), task)) if rotates(parameters.map, task) else 0
    spending = Spending(up, down, missed_broadcasts(task), 0 if statistics is None else statistics.numel(), held)
    values = spending.most_values(budget, body + head)
    if values == body + head:
        spending = spending.most_bits(budget, values)
    in_head = min(head, max(values // HEAD_SHARE, values - body))
    return replace(
        parameters,
        bytes=None,
        run_bytes=None,
        map=replace(parameters.map, dimensions=max(values - in_head, 1), head_dimensions=max(in_head, 1)),
        up=replace(parameters.up, codec=spending.up),
        down=replace(parameters.down, codec=spending.down),
    )


SUBBIT_MASKS = Variant(
    Subbit,
    name="subbit-masks",
    title="subbit-masks: a mask on the start, from a few values",
    citation="this library, docs/subbit-masks.md",
    sends_up=Subbit.sends_up,
    words={"masked": True},
    presets=Subbit.presets,
    paper="ours",
)
"""Every machine finds the mask from the values that it has: it is not sent."""
