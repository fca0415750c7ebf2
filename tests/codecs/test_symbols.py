from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subbit.codecs.rans import SCALE
from subbit.codecs.symbols import decode_symbols, encode_symbols, fit_alphabet
from subbit.core.errors import PayloadError


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
    """Entropy of the counts, the table (steps of one byte and frequencies of at most three), two states of six
    bytes."""
    symbols = np.random.default_rng(0).choice(len(chances), 100_000, p=chances).astype(np.uint16)
    counts = np.bincount(symbols)
    entropy = -np.sum(counts * np.log2(counts / counts.sum())) / 8
    assert entropy <= len(encode_symbols(symbols, len(chances))) <= entropy * 1.0002 + 4 * len(chances) + 12


@given(st.lists(st.integers(0, 10**9), max_size=1000))
@settings(deadline=None, max_examples=50)
def test_frequencies_add_up(occurrences: list[int]) -> None:
    symbols, frequencies = fit_alphabet(np.array(occurrences, np.int64))
    assert symbols.tolist() == [symbol for symbol, count in enumerate(occurrences) if count]
    assert frequencies.sum() == (SCALE if symbols.size else 0)
    assert (frequencies >= 1).all()


def test_by_hand() -> None:
    """Two equally frequent symbols (f = 2^15, starts 0 and 2^15), sequence 1, 0, 0, 1, from two states 2^32 in turn,
    backwards. First state: 0 gives (2^32 // 2^15) 2^16 = 2^33, then 1 gives (2^33 // 2^15) 2^16 + 2^15 = 2^34 +
    2^15. Second state: 1 gives 2^33 + 2^15, then 0 gives (2^18 + 1) 2^16 + 0 = 2^34 + 2^16. No word leaves a state.
    Table: two symbols (1), steps 0 and 0, frequency 2^15 - 1 as varint FF FF 01.
    """
    first, second = (1 << 34) + (1 << 15), (1 << 34) + (1 << 16)
    data = bytes([1, 0, 0, 0xFF, 0xFF, 1]) + first.to_bytes(6, "little") + second.to_bytes(6, "little")
    assert encode_symbols(np.array([1, 0, 0, 1], np.uint16), 2) == data


def test_one_symbol_costs_its_table() -> None:
    assert encode_symbols(np.full(1000, 7, np.uint16), 9) == bytes([0, 7])
    assert encode_symbols(np.zeros(0, np.uint16), 9) == b""


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
    with pytest.raises(PayloadError, match="frequency of a symbol"):  # 2^16 - 1 of 2^16, and another symbol follows.
        decode_symbols(bytes([1, 0, 0, 0xFF, 0xFF, 3]) + data[8:], 400, 5)
    with pytest.raises(PayloadError, match="nothing open"):
        decode_symbols(bytes([0, 4]) + b"\0\0", 400, 5)
