"""FedMask's overlap rule, by hand and against a loop over elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from subbit.aggregate.overlap import Overlap
from subbit.codecs.packed import pack_bits

Row = Sequence[int]


def overlap_of(structures: Sequence[Row], masks: Sequence[Row]) -> Overlap:
    overlap = Overlap.of_nobody(len(structures[0]))
    for structure, mask in zip(structures, masks, strict=True):
        overlap.add(pack_bits(np.array(structure, dtype=np.bool_)), pack_bits(np.array(mask, dtype=np.bool_)))
    return overlap


def merged(overlap: Overlap, own: Row) -> list[int]:
    return overlap.merge(np.array(own, dtype=np.bool_)).astype(int).tolist()


def test_a_worked_example() -> None:
    """Three clients, six elements; a dot is a pruned element.

        A     1 1 0 . 1 .
        B     1 0 0 1 0 .
        C     0 . 0 . 1 .      held by  3 2 3 1 3 0      ones  2 1 0 1 2 0

    Decided: 1 (two of three), open (a tie), 0, open (one holder), 1 (two of three), open (nobody has it).
    """
    structures = [[1, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 0], [1, 0, 1, 0, 1, 0]]
    overlap = overlap_of(structures, [[1, 1, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]])
    assert overlap.holders.tolist() == [3, 2, 3, 1, 3, 0]
    assert overlap.ones.tolist() == [2, 1, 0, 1, 2, 0]
    assert overlap.as_votes_of_two().tolist() == [2, 1, 0, 1, 2, 1]
    assert merged(overlap, [0, 0, 1, 0, 0, 0]) == [1, 0, 0, 0, 1, 0]
    assert merged(overlap, [1, 1, 1, 1, 1, 1]) == [1, 1, 0, 1, 1, 1]


def test_ones_outside_a_structure_are_no_votes() -> None:
    overlap = overlap_of([[1, 0], [1, 0], [1, 1]], [[0, 1], [0, 1], [1, 0]])
    assert overlap.ones.tolist() == [1, 0]
    assert overlap.holders.tolist() == [3, 1]


@given(some.lists(some.tuples(some.integers(0, 511), some.integers(0, 511)), max_size=7), some.integers(0, 511))
def test_it_is_the_rule_and_survives_the_way_down(clients: list[tuple[int, int]], own: int) -> None:
    def bits(number: int) -> list[int]:
        return [number >> place & 1 for place in range(9)]

    structures, masks = [bits(one) for one, _ in clients], [bits(two) for _, two in clients]
    overlap = overlap_of(structures, masks) if clients else Overlap.of_nobody(9)
    expected = bits(own)
    for place in range(9):
        votes = [mask[place] for structure, mask in zip(structures, masks, strict=True) if structure[place]]
        if len(votes) >= 2 and sum(votes) * 2 != len(votes):
            expected[place] = int(sum(votes) * 2 > len(votes))
    assert merged(overlap, bits(own)) == expected
    assert merged(Overlap.of_votes_of_two(overlap.as_votes_of_two()), bits(own)) == expected
