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

from subbit.codecs.jit import njit

Slots = NDArray[np.uint32]
"""Shape (keys, arity): the slots of each key, all different."""
Fingerprints = NDArray[np.unsignedinteger[Any]]
Peeler = Callable[[Slots, int, NDArray[np.uint32], NDArray[np.uint32]], int]
"""`peel_stack`, or another that peels in a succession of its own."""


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
    degree = np.zeros(slot_count, np.uint32)
    combined = np.zeros(slot_count, np.uint32)  # XOR of the keys of a slot: the key itself where the degree is 1.
    for key in range(key_count):
        for way in range(arity):
            slot = slots[key, way]
            degree[slot] += np.uint32(1)
            combined[slot] ^= np.uint32(key)
    alone = np.empty(slot_count + 1, np.uint32)
    waiting = 0
    for index in range(slot_count):
        alone[waiting] = index
        waiting += degree[index] == 1
    peeled = 0
    while waiting > 0:
        waiting -= 1
        slot = alone[waiting]
        if degree[slot] != 1:
            continue
        key = combined[slot]
        order[peeled] = key
        chosen[peeled] = slot
        peeled += 1
        way = 0
        while slots[key, way] != slot:
            way += 1
        for _ in range(arity):
            way = 0 if way == arity - 1 else way + 1
            other = slots[key, way]
            degree[other] -= np.uint32(1)
            combined[other] ^= key
            alone[waiting] = other
            waiting += degree[other] == 1
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
