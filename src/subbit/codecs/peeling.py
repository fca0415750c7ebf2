"""Solve "the XOR of a key's slots is its fingerprint" for all keys at once, by peeling.

Every key owns one equation over the `arity` slots that its hash names. A slot that only one key names can be set last,
whatever the others turn out to be: that key is peeled off, which may leave other slots with one key, and so on. If all
keys can be peeled, the slots are filled in the opposite order; if not, the caller takes another seed.

Which slot a key gets depends on the succession, and so do the bytes. `peel_stack` keeps that of the FastFilter C header
for binary fuse filters: slots with one key wait on a stack, at first in ascending order, then as the other
slots of a peeled key become such, cyclically. Slots that nobody needs stay 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.hashing import LOW_32, SHIFT_32
from subbit.core.jit import njit

Slots = NDArray[np.uint32]
"""Shape (keys, arity): the slots of each key, all different."""
Fingerprints = NDArray[np.unsignedinteger[Any]]
Peeler = Callable[[Slots, int, NDArray[np.uint32], NDArray[np.uint32]], int]
"""`peel_stack`, or another that peels in a succession of its own."""

ZERO, ONE, WAY_MASK = np.uint64(0), np.uint64(1), np.uint64(3)
COUNT_SHIFT, ONE_KEY = np.uint64(34), np.uint64(1 << 34)


def solve(slots: Slots, wanted: Fingerprints, slot_count: int, peel: Peeler) -> Fingerprints | None:
    """Fingerprints whose XOR over the slots of each key is what it wants, or None if the keys cannot be peeled."""
    order, chosen = np.empty(len(slots), np.uint32), np.empty(len(slots), np.uint32)
    if peel(slots, slot_count, order, chosen) < len(slots):
        return None
    fingerprints = np.zeros(slot_count, wanted.dtype)
    _assign(slots, order, chosen, wanted, fingerprints)
    return fingerprints


@njit
def peel_stack(slots: Slots, slot_count: int, order: NDArray[np.uint32], chosen: NDArray[np.uint32]) -> int:
    """Write the keys in the order in which they come off, and the slot that each one gave up; return how many did."""
    key_count, arity = slots.shape
    # Per slot, in one word because they are needed together: how many keys name it (from bit 34), and the XOR of the
    # ways in which they do (two bits) and of the keys (32 bits), which is way and key of the last one that is left.
    state = np.zeros(slot_count, np.uint64)
    for index in range(key_count):
        for column in range(arity):
            slot = slots[index, column]
            state[slot] = (state[slot] ^ (np.uint64(index) | (np.uint64(column) << SHIFT_32))) + ONE_KEY
    alone = np.empty(slot_count + 1, np.uint32)
    waiting = 0
    for index in range(slot_count):
        alone[waiting] = index
        waiting += state[index] >> COUNT_SHIFT == 1
    peeled, last_way = 0, np.uint64(arity - 1)
    while waiting > 0:
        waiting -= 1
        slot = alone[waiting]
        last = state[slot]
        if last >> COUNT_SHIFT != 1:
            continue
        key, way = last & LOW_32, (last >> SHIFT_32) & WAY_MASK
        order[peeled] = key
        chosen[peeled] = slot
        peeled += 1
        for _ in range(arity - 1):
            way = ZERO if way == last_way else way + ONE
            other = slots[key, way]
            left = (state[other] ^ (key | (way << SHIFT_32))) - ONE_KEY
            state[other] = left
            alone[waiting] = other
            waiting += left >> COUNT_SHIFT == 1
    return peeled


@njit
def _assign(
    slots: Slots,
    order: NDArray[np.uint32],
    chosen: NDArray[np.uint32],
    wanted: Fingerprints,
    fingerprints: Fingerprints,
) -> None:
    key_count, arity = slots.shape
    for step in range(key_count - 1, -1, -1):
        key = order[step]
        value = wanted[key]
        for way in range(arity):
            value ^= fingerprints[slots[key, way]]  # The chosen slot is still 0 and changes nothing.
        fingerprints[chosen[step]] = value
