"""A subspace of the weights, shared by all clients: w = w0 + P z. z = 0 is the start.

`basis=own`: z mixes the inputs that each layer uses most, see `subbit.models.own_directions`. A quarter of the values
are for biases and norms, which move as with `basis=random`.

`basis=random`: every weight belongs to one of `dimensions` values of z, drawn from the seed, and moves with it, up or
down, in units of its own layer:

    w_i = w0_i + s_layer(i) sign_i z_group(i)

The columns of P are orthogonal (as in Uni-LoRA: Li et al., 2025, and in intrinsic dimensions: Li, Farkhoor, Liu,
Yosinski, ICLR 2018; Aghajanyan, Gupta, Zettlemoyer, ACL 2021). s is the root mean square of the layer's weights, so one
unit of z means the same on every network: a step of 0.01 moves every weight by 1% of what is usual in its layer.

With `rotate`, there are as many values as the layers have places for, and in every round others of them move, the
strongest first, see `subbit.maps.taking_turns`. Among so many are directions to which a layer hardly responds; there a
unit moves more than itself (`Directions.evened`).

With `masked` the result is a mask: see `subbit.models.mask_rounding`. Clients train the network that it gives.

The head has values of its own in either case, one for each weight if they are few, else as with `basis=random`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs import Vector
from subbit.core.randomness import derive_key
from subbit.core.registry import register
from subbit.core.values import require
from subbit.maps.bound import BoundMap
from subbit.maps.layer_scales import layer_scales
from subbit.maps.masking import Masking
from subbit.maps.spans import directions, find_spans, share_widths, values_at_once
from subbit.maps.taking_turns import OCTAVE, Rotation, strengths_of
from subbit.models.own_directions import Directions, Mixing, find_directions, place_mixing, share_values
from subbit.models.subspaced import Piece, Rounding, Subspaced, place_piece
from subbit.models.task import Task, Turn

TRAINED, MASKED = "trained", "masked"


@register("map", "subspace")
@dataclass(frozen=True)
class SubspaceMap:
    """A few values, each of which moves many weights together."""

    name: ClassVar[str] = "subspace"
    trains_weights: ClassVar[bool] = True
    dimensions: int | Literal["auto"] = 2048
    """Values that move the weights outside the head. `auto`: 8,192, and 14,336 where there are no classes and so no
    fitted head to start from, e.g. for language models."""
    head_dimensions: int = 1024
    """Values that move the head; where it has no more weights, each has its own."""
    basis: Literal["own", "random"] = "random"
    """What a value moves: how a layer mixes its own main directions, or weights drawn from all of them."""
    rotate: bool | Literal["auto"] = False
    """In every round others of all values outside the head move, `dimensions` at a time; needs basis=own. `auto`: for
    language models, with basis=own."""
    masked: bool = False
    """The result is a mask: every matrix outside the head is its start with some weights left out, those that make it
    respond most like the trained one. Biases, norms and the head stay as trained. Needs basis=own."""

    def __post_init__(self) -> None:
        enough = self.dimensions == "auto" or self.dimensions >= 1
        require(enough, f"dimensions={self.dimensions}: needs at least 1, or auto")
        require(self.rotate is not True or self.basis == "own", "rotate: needs basis=own, where values are many")
        require(not self.masked or self.basis == "own", "masked: needs basis=own, which tells what a layer responds to")
        require(self.head_dimensions >= 1, f"head_dimensions={self.head_dimensions}: needs at least 1")

    def default_selection(self, blocks: int, pretrained: bool) -> str:
        return "all"

    def bind(self, task: Task) -> Subspace:
        return Subspace(self, task)


class Subspace(BoundMap):
    relative = True
    _rotation: Rotation | None = None
    _masking: Masking | None = None
    _known: tuple[Vector, list[Tensor | None]] | None = None
    """A vector and its masks."""

    def __init__(self, piece: SubspaceMap, task: Task) -> None:
        self.task, self.piece = task, piece
        self._spans, self._widths = find_spans(task, piece.basis), share_widths(piece, task)
        self.size = sum(self._widths)
        if piece.masked:
            self.networks, self.primary = (MASKED, TRAINED), MASKED
        pool, at_once = self._widths[0] + self._widths[1], values_at_once(piece, task)
        if at_once < pool:
            self._rotation = Rotation(self._strengths(), at_once, self._widths[2], derive_key(task.seed, "rotation"))
        self.statistics = task.flat.statistics is not None
        self._network: Subspaced | None = None
        purpose = "subspace" if piece.basis == "random" else "own directions"
        told = [*self._widths] if self._rotation is None else [*self._widths, self._rotation.at_once]
        shape = np.array([task.flat.template.size, *told, derive_key(task.seed, purpose)], dtype="<u8")
        turns = b"" if self._rotation is None else self._rotation.strengths.astype("<i8").tobytes()
        # A client that has drawn another subspace, or would take other turns, rejects the broadcast.
        self.vector = f"z-{blake2b(shape.tobytes() + turns, digest_size=4).hexdigest()}"

    @property
    def network(self) -> Subspaced:  # type: ignore[override]
        """Made at its first use: the scale of the head is known once it is fitted."""
        if self._network is None:
            self._network = Subspaced(self.task.flat.initial, [*self._pieces()], self.size)
        return self._network

    @property
    def moves(self) -> int:
        return self.size if self._rotation is None else self._rotation.moves

    def moving(self, round_number: int) -> NDArray[np.int64] | None:
        return None if self._rotation is None else self._rotation.moving(round_number)

    def begin(self, turn: Turn) -> None:
        where = self.moving(turn.round_number)
        self.network.moving = None if where is None else torch.from_numpy(where).to(self.task.flat.device)

    def toward_start(self, trained: Tensor, share: float) -> Tensor:
        where = self.network.moving
        if where is None:
            return share * trained
        return trained.index_put((where,), share * trained[where])

    def _pieces(self) -> Iterator[Piece | Mixing]:
        scales, first = layer_scales(self.task), 0
        for part, (span, width) in enumerate(zip(self._spans, self._widths, strict=True)):
            if part == 0 and self.piece.basis == "own":
                yield from self._mixings()
                first += width
                continue
            for rows in span.runs if width else ():
                columns = slice(first, first + width)
                if width == span.count:
                    done = sum(run.stop - run.start for run in span.runs if run.stop <= rows.start)
                    columns = slice(first + done, first + done + rows.stop - rows.start)
                key = derive_key(self.task.seed, "subspace", part, rows.start)
                yield place_piece(rows, columns, scales[rows], key, self.task.flat.device)
            first += width

    def _mixings(self) -> Iterator[Mixing]:
        first = 0
        for rows, own, places in self._own:
            found = own if self._rotation is None else own.evened()
            yield place_mixing(rows, slice(first, first + len(places)), found, places)
            first += len(places)

    @cached_property
    def _own(self) -> list[tuple[slice, Directions, NDArray[np.int64]]]:
        """Of every matrix that moves: its weights, its directions, and the places of R that have a value."""
        template, found = self.task.flat.template, []
        most = [each or 0 for each in directions(self.task, "own")]
        matrices = zip(template.offsets, template.views(self.task.flat.initial), strict=True)
        for (offset, matrix), places in zip(matrices, share_values(most, self._widths[0]), strict=True):
            if len(places):
                key = derive_key(self.task.seed, "own directions", offset)
                own = find_directions(matrix, int(places.max()) + 1, key)
                found.append((slice(offset, offset + matrix.numel()), own, places))
        return found

    def _strengths(self) -> NDArray[np.int64]:
        """How far each value outside the head moves outputs. A value in row i and column j of R passes an input along
        v_j, which grows with the layer's response to it, on as what W0 makes of v_i: |W0 v_i| |W0 v_j|^1/2. A bias or
        norm moves by its scale.
        """
        found = [np.zeros(0, dtype=np.int64)]
        for _, own, places in self._own:
            octaves = strengths_of(own.norms, OCTAVE // 2)
            found.append(2 * octaves[places[:, 0]] + octaves[places[:, 1]])
        scales = layer_scales(self.task)
        found += [strengths_of(scales[run].astype(np.float64)) for run in self._spans[1].runs]
        return np.concatenate(found)

    def received(self, vector: Vector) -> Tensor:
        """Clients train what will be used: what becoming a mask changes in the weights is part of the network."""
        if self.piece.masked:
            values = self.task.flat.place(vector.copy())
            weights = self._unrounded(values)
            change = -weights
            self.masking.apply(self._masks(vector), weights)
            self.network.rounding = Rounding(values, change.add_(weights))
        return super().received(vector)

    @property
    def masking(self) -> Masking:
        if self._masking is None:
            self._masking = Masking(self.task, {rows.start for rows, _, _ in self._own})
        return self._masking

    def _masks(self, vector: Vector) -> list[Tensor | None]:
        """All clients of a process receive the same vector, and the server scores what it has just tried."""
        if self._known is None or not np.array_equal(self._known[0], vector):
            weights = self._unrounded(self.task.flat.place(vector.copy()))
            self._known = vector.copy(), self.masking.find(weights)
        return self._known[1]

    def _unrounded(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        """The weights that the values stand for."""
        weights = torch.empty_like(self.task.flat.initial) if out is None else out
        self.network.rounding = None
        self.network.write(values, weights, 0)
        return weights

    def start(self) -> Vector:
        return np.zeros(self.size, dtype=np.float32)

    def write(self, vector: Vector, network: str, key: int) -> None:
        values = self.task.flat.place(np.require(vector, requirements="W"))
        self._unrounded(values, self.task.flat.weights)
        if network == MASKED:
            self.masking.apply(self._masks(vector), self.task.flat.weights)
