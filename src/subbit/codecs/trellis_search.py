"""Search of the path through a trellis that is nearest to a vector (Viterbi), and the values along a path.

A path is a string of bits. The last `memory` of them are the state, and every state stands for values of a table. Step
t takes the bits from t B / T on, up to (t + 1) B / T, and stands for the values from t n / T on, up to (t + 1) n / T;
with n values, B bits and T = min(n, B) steps each takes at least one of either. So below one bit a state stands for
several values, and above it a step takes several bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Vector
from subbit.core.jit import njit

Path = NDArray[np.uint8]
"""Bits as they are sent: bit i is bit (i % 8) of byte i // 8."""
FAR = np.float32(1e30)
RENEW = 256
"""After so many steps costs are counted anew from the least, so that float32 suffices for them."""


@njit
def nearest_path(values: Vector, bits: int, table: Vector, scale: np.float32, path: Path) -> None:
    """Write the bits of the path whose values, times the scale, are nearest to these; `path` must be zero."""
    states, steps = table.size, min(values.size, bits)
    memory = 0
    while 1 << memory < states:
        memory += 1
    books = _books(table, (values.size + steps - 1) // steps, scale)
    costs, best, errors = np.full(states, FAR), np.empty(states, np.float32), np.empty(states, np.float32)
    costs[0] = np.float32(0)
    origins = np.zeros((steps, states >> (bits // steps)), np.uint8)
    if bits == steps:
        costs = _search_bit_by_bit(values, books, costs, origins)
    for step in range(0 if bits > steps else steps, steps):
        first_bit, last_bit = step * bits // steps, (step + 1) * bits // steps
        _cheapest(costs, last_bit - first_bit, best, origins[step])
        start = step * values.size // steps
        _add_errors(values[start : (step + 1) * values.size // steps], books, errors)
        _branch(best, errors, last_bit - first_bit, costs)
        if step % RENEW == RENEW - 1:
            costs -= costs.min()
    state = np.argmin(costs)
    for step in range(steps - 1, -1, -1):
        first_bit, last_bit = step * bits // steps, (step + 1) * bits // steps
        for place in range(last_bit - 1, first_bit - 1, -1):
            path[place >> 3] |= np.uint8((state & 1) << (place & 7))
            state >>= 1
        state += np.int64(origins[step, state]) << (memory - (last_bit - first_bit))


@njit
def _search_bit_by_bit(values: Vector, books: NDArray[np.float32], costs: Vector, origins: NDArray[np.uint8]) -> Vector:
    """All steps, where each takes one bit: what `_cheapest`, `_add_errors` and `_branch` do, in the same order, but in
    loops over neighbours, which a processor runs ten times as fast. Returns the costs after them."""
    steps, span = origins.shape
    # Of the states that end in 0, and of those that end in 1.
    even, odd = np.ascontiguousarray(books[:, 0::2]), np.ascontiguousarray(books[:, 1::2])
    zero, one, after = np.empty(span, np.float32), np.empty(span, np.float32), np.empty(costs.size, np.float32)
    for step in range(steps):
        start, end = step * values.size // steps, (step + 1) * values.size // steps
        _distances(values[start], even[0], zero)
        _distances(values[start], odd[0], one)
        for place in range(start + 1, end):
            _add_distances(values[place], even[place - start], zero)
            _add_distances(values[place], odd[place - start], one)
        _merge(costs, zero, one, after, origins[step])
        costs, after = after, costs
        if step % RENEW == RENEW - 1:
            costs -= costs.min()
    return costs


@njit
def _distances(value: np.float32, book: Vector, errors: Vector) -> None:
    for state in range(book.size):
        distance = value - book[state]
        errors[state] = distance * distance


@njit
def _add_distances(value: np.float32, book: Vector, errors: Vector) -> None:
    for state in range(book.size):
        distance = value - book[state]
        errors[state] += distance * distance


@njit
def _merge(costs: Vector, zero: Vector, one: Vector, after: Vector, origins: NDArray[np.uint8]) -> None:
    span = origins.size
    low, high = costs[:span], costs[span:]
    for state in range(span):
        higher = high[state] < low[state]
        best = high[state] if higher else low[state]
        origins[state] = higher
        after[2 * state] = best + zero[state]
        after[2 * state + 1] = best + one[state]


@njit
def values_of_path(path: Path, bits: int, table: Vector, values: Vector) -> None:
    """Write the values along a path."""
    mask, steps, state = table.size - 1, min(values.size, bits), 0
    for step in range(steps):
        for place in range(step * bits // steps, (step + 1) * bits // steps):
            bit = (int(path[place >> 3]) >> (place & 7)) & 1
            state = ((state << 1) | bit) & mask
        start = step * values.size // steps
        for place in range(start, (step + 1) * values.size // steps):
            values[place] = table[_entry(state, place - start, mask)]


@njit
def _entry(state: int, place: int, mask: int) -> int:
    """Of the table, for the value at this place of a step. A permutation of the states for every place."""
    return (state * (2 * place * 0x9E3779B1 + 1) + place * 0x85EBCA6B) & mask


@njit
def _books(table: Vector, places: int, scale: np.float32) -> NDArray[np.float32]:
    """For every place of a step, the value of each state."""
    books = np.empty((places, table.size), np.float32)
    for place in range(places):
        for state in range(table.size):
            books[place, state] = scale * table[_entry(state, place, table.size - 1)]
    return books


@njit
def _cheapest(costs: Vector, bits: int, best: Vector, origins: NDArray[np.uint8]) -> None:
    """For the states that agree in all but their oldest bits, which now drop out: the least cost, and whose it is."""
    span = costs.size >> bits
    best[:span] = costs[:span]
    for origin in range(1, 1 << bits):
        others = costs[origin * span : (origin + 1) * span]
        for state in range(span):
            if others[state] < best[state]:
                best[state] = others[state]
                origins[state] = origin


@njit
def _add_errors(values: Vector, books: NDArray[np.float32], errors: Vector) -> None:
    """Squared distance of the values of a step to those of every state."""
    errors[:] = np.float32(0)
    for place in range(values.size):
        _add_distances(values[place], books[place], errors)


@njit
def _branch(best: Vector, errors: Vector, bits: int, costs: Vector) -> None:
    """Costs after a step: a state comes from the one whose last bits are its own without the new ones."""
    branches = 1 << bits
    for state in range(errors.size // branches):
        for new in range(branches):
            costs[state * branches + new] = best[state] + errors[state * branches + new]
