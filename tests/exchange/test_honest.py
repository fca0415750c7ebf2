"""Bounds on uploads."""

from __future__ import annotations

import numpy as np

from subbit.exchange.honest import KeptLargest, largest


def test_the_largest_value_of_a_broadcast_is_looked_for_once_and_of_the_next_again() -> None:
    kept, first = KeptLargest(), np.array([1.0, -3.0], np.float32)
    assert kept(first) == largest(first) == 3
    first[0] = 7  # A broadcast never changes: this only shows that nobody looked.
    assert kept(first) == 3
    assert kept(np.array([5.0], np.float32)) == 5  # This array is gone at once, and its place may be taken.
    assert kept(first) == 7
