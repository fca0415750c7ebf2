from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs.symbols import TOTAL, _scaled, decode_symbols, encode_symbols
from subbit.errors import PayloadError


@given(st.integers(1, 300).flatmap(lambda top: st.tuples(st.just(top), st.lists(st.integers(0, top - 1), max_size=80))))
@settings(deadline=None)
def test_roundtrip(case: tuple[int, list[int]]) -> None:
    alphabet, listed = case
    symbols = np.array(listed, np.uint16)
    assert np.array_equal(decode_symbols(encode_symbols(symbols, alphabet), symbols.size, alphabet), symbols)


def test_the_whole_alphabet() -> None:
    symbols = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(decode_symbols(encode_symbols(symbols, 1 << 16), 1 << 16, 1 << 16), symbols)


@pytest.mark.parametrize("chances", [[0.5, 0.5], [0.999, 0.001], [0.4, 0.3, 0.2, 0.1], [1.0]])
def test_length_is_the_entropy(chances: list[float]) -> None:
    """Entropy of the counts, the table (a varint and two bytes for each symbol but the last), six bytes of state."""
    symbols = np.random.default_rng(0).choice(len(chances), 100_000, p=chances).astype(np.uint16)
    counts = np.bincount(symbols)
    entropy = -np.sum(counts * np.log2(counts / counts.sum())) / 8
    assert entropy <= len(encode_symbols(symbols, len(chances))) <= entropy * 1.0002 + 3 * len(chances) + 6


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=1000))
@settings(deadline=None, max_examples=50)
def test_frequencies_add_up(counts: list[int]) -> None:
    scaled = _scaled(np.array(counts, np.int64))
    assert scaled.sum() == TOTAL
    assert scaled.min() >= 1


def test_by_hand() -> None:
    """Two equally frequent symbols (f = 2^15, c = 0 and 2^15), sequence 1, 0, from state 2^32, the last symbol first:
    0: x = (2^32 // 2^15) 2^16 + 0 + 0 = 2^33; 1: x = (2^33 // 2^15) 2^16 + 0 + 2^15 = 2^34 + 2^15. No word leaves the
    state. Table: two symbols (1), gaps 0 and 0, frequency 0x8000. Then the state, highest word first."""
    assert encode_symbols(np.array([1, 0], np.uint16), 2).hex() == "01" + "0000" + "0080" + "0400" + "0000" + "0080"


def test_damage_is_refused() -> None:
    symbols = (np.arange(400) % 3).astype(np.uint16)
    data = encode_symbols(symbols, 5)
    for forged in (b"", data[:3], data[:-1], data[:-2], data + b"\0", data + b"\0\0", b"\xff" * 40):
        with pytest.raises(PayloadError):
            decode_symbols(forged, 400, 5)
    for count in (0, 1, 399, 401):
        with pytest.raises(PayloadError):
            decode_symbols(data, count, 5)
    with pytest.raises(PayloadError):  # Three symbols need an alphabet of three.
        decode_symbols(data, 400, 2)
    with pytest.raises(PayloadError, match="frequency of zero"):
        decode_symbols(bytes([1, 0, 0, 0, 0]) + data[8:], 400, 5)
    with pytest.raises(PayloadError, match="repeated"):
        decode_symbols(bytes([0, 4]) + b"\0\0", 400, 5)
