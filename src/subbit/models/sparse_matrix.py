"""Weights as a random sparse map of fewer trained values: w = Q z.

Villani, Natale, Mallmann-Trenn: "Trading-off Accuracy and Communication Cost in Federated Learning", 2024. Row i of Q
has `degree` values at distinct columns, drawn from N(0, scale_i^2). Q is never sent and never stored densely: every
machine draws it from a key. The entry number e = degree * i + k has one 64-bit hash h of (key, e):

    column   Floyd's choice without replacement: t = floor(h >> 32, scaled to 0..columns - degree + k), or, if the
             row has t already, the largest of that range. Every set of columns is equally likely.
    value    quantile number h mod 4096 of the normal distribution, from a table of multiples of 2^-16; or, in a
             `SignProjection`, -1 for the lower half of the numbers and 1 for the upper half

Both depend on integers only, so differences between math libraries have no effect. Stored entries take 6 bytes each. A
matrix that would need more than `STORED_BYTES` is redrawn, block by block, whenever it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from math import prod

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.hashing import murmur64
from subbit.core.errors import ModelError
from subbit.core.jit import njit
from subbit.models.flat import FlatModel
from subbit.models.quantiles import NORMAL_LEVELS, normal_table

Array = NDArray[np.float32]
Columns = NDArray[np.uint32]
Levels = NDArray[np.uint16]

STORED_BYTES = 1 << 28
BLOCK_ENTRIES = 1 << 18
"""Number of entries drawn at a time if nothing is stored: 1.5 MB."""
LEVEL_MASK = np.uint64(NORMAL_LEVELS - 1)
SHIFT_32, ONE = np.uint64(32), np.uint64(1)


class Projection:
    """Q: one row per weight, `columns` columns, `degree` values in each row, all drawn from `key`."""

    def __init__(
        self, scales: NDArray[np.floating], columns: int, degree: int, key: int, stored_bytes: int = STORED_BYTES
    ) -> None:
        if not 1 <= degree <= columns:
            raise ModelError(f"degree={degree}: a row of {columns} columns has 1 to {columns} distinct ones")
        self.scales: Array = np.ascontiguousarray(scales, dtype=np.float32)
        self.rows, self.columns, self.degree, self.key = self.scales.size, columns, degree, key
        entry_bytes = np.dtype(np.uint32).itemsize + np.dtype(np.uint16).itemsize
        self.stored: tuple[Columns, Levels] | None = None
        if self.rows * degree * entry_bytes <= stored_bytes:
            self.stored = self._draw(0, self.rows, np.zeros(columns, dtype=np.bool_))

    @property
    def table(self) -> Array:
        """Value of each of the 4096 levels, before the scale of the row."""
        return normal_table()

    def blocks(self) -> Iterator[tuple[slice, Columns, Levels]]:
        """Blocks of rows with their columns and the levels of their values, both [rows, degree]."""
        if self.stored is not None:
            yield slice(0, self.rows), *self.stored
            return
        taken = np.zeros(self.columns, dtype=np.bool_)
        step = max(1, BLOCK_ENTRIES // self.degree)
        for start in range(0, self.rows, step):
            stop = min(start + step, self.rows)
            yield slice(start, stop), *self._draw(start, stop, taken)

    def _draw(self, start: int, stop: int, taken: NDArray[np.bool_]) -> tuple[Columns, Levels]:
        columns = np.empty((stop - start, self.degree), dtype=np.uint32)
        levels = np.empty((stop - start, self.degree), dtype=np.uint16)
        with np.errstate(over="ignore"):
            _draw_rows(np.uint64(self.key), start, self.columns, taken, columns, levels)
        return columns, levels

    def multiply(self, values: Array, out: Array) -> None:
        """out = Q values."""
        check_array(values, self.columns, "values")
        check_array(out, self.rows, "out")
        for rows, columns, levels in self.blocks():
            _gather(columns, levels, self.table, self.scales[rows], values, out[rows])

    def multiply_transposed(self, values: Array, out: Array) -> None:
        """out = Q' values."""
        check_array(values, self.rows, "values")
        check_array(out, self.columns, "out")
        out[:] = 0
        for rows, columns, levels in self.blocks():
            _scatter(columns, levels, self.table, self.scales[rows], values[rows], out)

    def dense(self) -> Array:
        """The whole matrix, for tests and small examples."""
        matrix = np.zeros((self.rows, self.columns), dtype=np.float32)
        for rows, columns, levels in self.blocks():
            values = self.table[levels] * self.scales[rows, None]
            np.put_along_axis(matrix[rows], columns.astype(np.int64), values, axis=1)
        return matrix

    def empty_columns(self) -> int:
        """Columns without any entry: trained values that no weight depends on.

        The expected number is columns * (1 - degree / columns)^rows.
        """
        used = np.zeros(self.columns, dtype=np.bool_)
        for _, columns, _ in self.blocks():
            used[columns.reshape(-1)] = True
        return int(self.columns - used.sum())

    def fingerprint(self) -> str:
        """Eight characters that differ if Q differs: a receiver with another Q should reject the values."""
        shape = np.array([self.rows, self.columns, self.degree, self.key], dtype="<u8")
        return blake2b(shape.tobytes() + self.scales.astype("<f4").tobytes(), digest_size=4).hexdigest()


class SignProjection(Projection):
    """One column for each row, with the value 1 or -1 times the scale of the row: columns are orthogonal."""

    def __init__(self, scales: NDArray[np.floating], columns: int, key: int) -> None:
        super().__init__(scales, columns, 1, key)

    @property
    def table(self) -> Array:
        return np.where(np.arange(NORMAL_LEVELS) < NORMAL_LEVELS // 2, -1.0, 1.0).astype(np.float32)


def fan_ins(flat: FlatModel) -> NDArray[np.int64]:
    """For every weight of the flat model, the number of inputs of its neuron; a bias has those of its matrix.

    A vector without a matrix, e.g. the gains of a normalisation layer, counts its own length.
    """
    found = np.empty(flat.template.size, dtype=np.int64)
    start = 0
    for name, shape in zip(flat.template.names, flat.template.shapes, strict=True):
        if len(shape) < 2:
            owner = flat.module.get_submodule(name.rpartition(".")[0])
            beside = [tuple(other.shape) for other in owner.parameters(recurse=False) if other.dim() >= 2]
            inputs = prod(beside[0][1:]) if beside else prod(shape)
        else:
            inputs = prod(shape[1:])
        found[start : start + prod(shape)] = max(1, inputs)
        start += prod(shape)
    return found


def check_array(array: Array, size: int, name: str) -> None:
    """Check the array, since kernels do not check bounds."""
    if array.shape != (size,) or array.dtype != np.float32:
        raise ModelError(f"{name} is {array.dtype} {array.shape}: needs float32 ({size},)")


@njit
def _draw_rows(
    key: np.uint64, first_row: int, width: int, taken: NDArray[np.bool_], columns: Columns, levels: Levels
) -> None:
    """`taken` must be all false and is all false afterwards."""
    rows, degree = columns.shape
    for row in range(rows):
        entry = np.uint64(first_row + row) * np.uint64(degree) + key
        for index in range(degree):
            hashed = murmur64(entry + np.uint64(index))
            choices = np.uint64(width - degree + index + 1)
            chosen = ((hashed >> SHIFT_32) * choices) >> SHIFT_32
            if taken[chosen]:
                chosen = choices - ONE
            taken[chosen] = True
            columns[row, index] = chosen
            levels[row, index] = hashed & LEVEL_MASK
        for index in range(degree):
            taken[columns[row, index]] = False


@njit
def _gather(columns: Columns, levels: Levels, table: Array, scales: Array, values: Array, out: Array) -> None:
    rows, degree = columns.shape
    for row in range(rows):
        total = np.float32(0.0)
        for index in range(degree):
            total += table[levels[row, index]] * values[columns[row, index]]
        out[row] = scales[row] * total


@njit
def _scatter(columns: Columns, levels: Levels, table: Array, scales: Array, values: Array, out: Array) -> None:
    rows, degree = columns.shape
    for row in range(rows):
        value = scales[row] * values[row]
        for index in range(degree):
            out[columns[row, index]] += table[levels[row, index]] * value
