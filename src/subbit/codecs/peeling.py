"""Solve "the XOR of a key's slots is its fingerprint" for all keys at once, by peeling.

Every key has one equation over the `arity` slots given by its hash. A slot used by only one key can be set last,
whatever the other slots are. That key is peeled off, which may leave other slots with one key, and so on. If all keys
can be peeled, the slots are filled in reverse order; if not, the caller tries another seed.

The order of peeling determines which slot a key gets, and thereby the bytes. `peel_stack` uses the order of the
FastFilter C header for binary fuse filters: slots with one key are put on a stack, first in ascending order, then,
cyclically, as the other slots of a peeled key come down to one key. Unused slots stay 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.hashing import LOW_32, SHIFT_32
from subbit.core.jit import njit

Slots = NDArray[np.uint32]
"""Shape (keys, arity): the slots of each key, all distinct."""
Fingerprints = NDArray[np.unsignedinteger[Any]]
Peeler = Callable[[Slots, int, NDArray[np.uint32], NDArray[np.uint32]], int]
"""`peel_stack`, or another function that peels in its own order."""

ZERO, ONE, WAY_MASK = np.uint64(0), np.uint64(1), np.uint64(3)
COUNT_SHIFT, ONE_KEY = np.uint64(34), np.uint64(1 << 34)


def solve(slots: Slots, wanted: Fingerprints, slot_count: int, peel: Peeler) -> Fingerprints | None:
    """Find slots whose XOR is the wanted fingerprint of each key; None if the keys cannot be peeled."""
    order, chosen = np.empty(len(slots), np.uint32), np.empty(len(slots), np.uint32)
    if peel(slots, slot_count, order, chosen) < len(slots):
        return None
    fingerprints = np.zeros(slot_count, wanted.dtype)
    _assign(slots, order, chosen, wanted, fingerprints)
    return fingerprints


@njit
def peel_stack(slots: Slots, slot_count: int, order: NDArray[np.uint32], chosen: NDArray[np.uint32]) -> int:
    """Write the keys in the order of peeling and the slot of each one; return how many were peeled."""
    key_count, arity = slots.shape
    # State of a slot, packed into one word because the parts are used together: the number of keys that use it (from
    # bit 34), the XOR of their indices within the key (two bits) and the XOR of the keys (32 bits). With one key left,
    # these XORs are its index and the key itself.
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
            value ^= fingerprints[slots[key, way]]  # The chosen slot is still 0 and has no effect.
        fingerprints[chosen[step]] = value
