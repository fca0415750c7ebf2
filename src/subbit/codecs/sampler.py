"""The shared sampler: all machines draw the same masks, without floating-point operations.

Position i of a mask is one if u_i < thresholds[i], with u_i a 32-bit hash of (key, i). The hash is counter-based
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a slice can be drawn without the values before
it, and the order of draws does not matter. With k0, k1, k2 three 32-bit words from splitmix64(key), all arithmetic
modulo 2^32:

    x = i ^ k0;   x = (x ^ x >> 16) * 0x7feb352d
    x = x + k1;   x = (x ^ x >> 15) * 0x846ca68b
    x = x ^ k2;   x = (x ^ x >> 14) * 0x9e3779b1
    u = x ^ x >> 15

The key enters before and between the rounds, so that two keys do not merely permute one stream. For one key u is a
bijection of i. That makes it more even than independent draws over all 2^32 positions, and indistinguishable from them
over the few million of a model. The words have 32 bits because AVX2 has no 64-bit multiplication. This is not a
cryptographic generator.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import MAXIMUM_SIZE, Bits
from subbit.core.errors import ConfigError
from subbit.core.jit import njit

Thresholds = NDArray[np.uint32]
Keys = tuple[np.uint32, np.uint32, np.uint32]

MASK_32 = (1 << 32) - 1
MASK_64 = (1 << 64) - 1
SHIFT_14, SHIFT_15, SHIFT_16 = np.uint32(14), np.uint32(15), np.uint32(16)
MULTIPLIER_1, MULTIPLIER_2, MULTIPLIER_3 = np.uint32(0x7FEB352D), np.uint32(0x846CA68B), np.uint32(0x9E3779B1)
WORD = 32
WEIGHTS = np.left_shift(np.uint32(1), np.arange(WORD, dtype=np.uint32))


def sample_bits(thresholds: Thresholds, key: int, start: int = 0) -> Bits:
    """Packed bits [u_i < thresholds[i - start]] for i = start, start + 1, ..."""
    thresholds = np.ascontiguousarray(thresholds, dtype=np.uint32)
    size = thresholds.size
    words = np.zeros((size + WORD - 1) // WORD, dtype=np.uint32)
    with np.errstate(over="ignore"):
        _sample_words(thresholds, *subkeys(key), _checked_start(start, size), words)
    return words.astype("<u4", copy=False).view(np.uint8)[: (size + 7) // 8]


def uniforms(key: int, start: int, count: int) -> NDArray[np.uint32]:
    """u_start ... u_{start + count - 1}."""
    out = np.empty(count, dtype=np.uint32)
    with np.errstate(over="ignore"):
        _fill_uniforms(*subkeys(key), _checked_start(start, count), out)
    return out


def thresholds_of_counts(
    total: int,
    estimator: Literal["mode", "mean"] = "mode",
    *,
    clamp_numerator: int = 1,
    clamp_denominator: int = 100,
    prior: int = 1,
) -> Thresholds:
    """Table of total + 1 thresholds: the estimated probability of a one for each count in `total` masks. Integers only.

        mode: floor(2^32 count / total) within [e, 2^32 - 1 - e], e = floor(2^32 clamp_numerator / clamp_denominator)
        mean: floor(2^32 (prior + count) / (2 prior + total)), the Beta(prior, prior) posterior mean

    Without any mask (total = 0) both are one half.
    """
    if total < 0 or total > 65535:
        raise ConfigError(f"total is {total}, a count of masks lies between 0 and 65535")
    if estimator == "mean":
        if prior < 1:
            raise ConfigError(f"prior is {prior}, the posterior mean needs a prior of at least 1")
        table = [((prior + count) << 32) // (2 * prior + total) for count in range(total + 1)]
    elif estimator == "mode":
        if not 0 <= 2 * clamp_numerator < clamp_denominator:
            raise ConfigError(f"clamp is {clamp_numerator}/{clamp_denominator}, it must be at least 0 and below 1/2")
        edge = (clamp_numerator << 32) // clamp_denominator
        modes = [(count << 32) // total for count in range(total + 1)] if total else [1 << 31]
        table = [min(max(mode, edge), MASK_32 - edge) for mode in modes]
    else:
        raise ConfigError(f"unknown estimator {estimator!r}; there are: mode, mean")
    return np.array(table, dtype=np.uint32)


def _checked_start(start: int, count: int) -> np.uint32:
    if start < 0 or start + count > MAXIMUM_SIZE:
        raise ConfigError(f"places {start} to {start + count} lie outside 0 to {MAXIMUM_SIZE}")
    return np.uint32(start)


def subkeys(key: int) -> Keys:
    """The three words of a key for `hash_place`, for kernels that draw in their own order."""
    first, second = _splitmix64(key), _splitmix64(key + 0x9E3779B97F4A7C15)
    return np.uint32(first & MASK_32), np.uint32(first >> 32), np.uint32(second & MASK_32)


def _splitmix64(value: int) -> int:
    """A bijection of 64-bit words in which every bit of the key affects every bit of the subkeys."""
    value &= MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK_64
    return value ^ (value >> 31)


@njit
def hash_place(x: np.uint32, first: np.uint32, second: np.uint32, third: np.uint32) -> np.uint32:
    """u of position x under the key with these three words."""
    # The casts keep numba at 32 bits, where AVX2 has eight lanes; it would widen every product to 64.
    x = np.uint32(x ^ first)
    x = np.uint32(np.uint32(x ^ (x >> SHIFT_16)) * MULTIPLIER_1)
    x = np.uint32(x + second)
    x = np.uint32(np.uint32(x ^ (x >> SHIFT_15)) * MULTIPLIER_2)
    x = np.uint32(x ^ third)
    x = np.uint32(np.uint32(x ^ (x >> SHIFT_14)) * MULTIPLIER_3)
    return np.uint32(x ^ (x >> SHIFT_15))


@njit
def _fill_uniforms(
    first: np.uint32, second: np.uint32, third: np.uint32, start: np.uint32, out: NDArray[np.uint32]
) -> None:
    for place in range(out.size):
        out[place] = hash_place(np.uint32(start + np.uint32(place)), first, second, third)


@njit
def _sample_words(
    thresholds: Thresholds,
    first: np.uint32,
    second: np.uint32,
    third: np.uint32,
    start: np.uint32,
    words: NDArray[np.uint32],
) -> None:
    full = thresholds.size // WORD
    # With a constant trip count of 32 and a table of weights instead of a shift, LLVM turns the inner loop into four
    # vectors of eight lanes and one OR-reduction, which runs at memory speed.
    for word in range(full):
        bits = np.uint32(0)
        base = np.uint32(start + np.uint32(word * WORD))
        for lane in range(WORD):
            uniform = hash_place(np.uint32(base + np.uint32(lane)), first, second, third)
            bits = np.uint32(bits | (WEIGHTS[lane] if uniform < thresholds[word * WORD + lane] else np.uint32(0)))
        words[word] = bits
    for place in range(full * WORD, thresholds.size):
        if hash_place(np.uint32(start + np.uint32(place)), first, second, third) < thresholds[place]:
            words[full] = np.uint32(words[full] | WEIGHTS[place % WORD])
