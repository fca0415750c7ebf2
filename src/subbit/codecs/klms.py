"""KLMS: send a sample of the sender's mask distribution for little more than its divergence from the receiver's prior.

Isik, Pase, Gunduz, Koyejo, Weissman, Zorzi, "Adaptive Compression in Federated Learning via Side Information", AISTATS
2024, based on the minimal random coding of Havasi, Peharz, Hernandez-Lobato, "Minimal Random Code Learning", ICLR 2019.
Both sides know the prior p (the broadcast thresholds); only the sender knows the posterior q. For each block of
positions

    candidates x_c ~ p, c = 0 ... 2^candidate_bits - 1      drawn by both sides: [hash(c, position) < threshold]
    c is chosen with a probability proportional to q(x_c) / p(x_c) = exp(sum of slopes where x_c is one) x constant
    slope = logit(q) - logit(p)

and only c is sent. x_c is nearly a sample of q while the block's divergence KL(q || p), in bits, is well below
candidate_bits. So a block grows while its divergence is at most `rate`, in steps of positions. The sender chooses the
step from the mean divergence, so that a block has about 16 steps; it has at most 256. The candidate is chosen in the
log domain, by adding Gumbel noise to each sum of slopes and taking the largest, so nothing can overflow.

On the wire: log2 of the step, number of blocks, bit planes of the choices, lengths of the blocks in steps by rANS.
Decoding uses integers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Bits, Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.packed import check_bits, pack_bits, unpack_bits
from subbit.codecs.planes import pack_planes, plane_bytes, unpack_planes
from subbit.codecs.sampler import Thresholds, hash_place, subkeys, uniforms
from subbit.codecs.symbols import decode_symbols, encode_symbols
from subbit.codecs.varint import read_varint, write_varint
from subbit.core.errors import ConfigError, PayloadError
from subbit.core.jit import njit

Values = NDArray[np.float64]
Places = NDArray[np.int64]

MOST_CANDIDATE_BITS = 12
LONGEST = 256
USUAL = 16
"""Steps per block: `LONGEST` is the maximum, `USUAL` what the sender aims at."""
LARGEST_STEP_BITS = 12
CLOSEST = 2.0**-24
"""Minimum distance of posteriors from 0 and 1, which keeps slopes finite. For priors it is half of one threshold."""
CANDIDATE_PURPOSE, CHOICE_PURPOSE = 0x4B4C4D5343616E64, 0x4B4C4D5343686F69


@register_codec
@dataclass(frozen=True)
class Klms(Codec[Bits]):
    """`encode` takes the posterior: float32 probabilities of a one, or packed bits as a posterior of zeros and ones.

    `decode` returns packed bits drawn approximately from the posterior. They neither equal the input nor contain it.
    """

    name = "klms"
    number = 40
    kind = Kind.BITS
    exact = False
    lossy_input: ClassVar[bool] = True
    """The payload is a distribution, and the receiver gets a sample of it."""
    summary = "a sample of the posterior at the cost of its divergence from the shared prior"

    rate: float = 3.0
    candidate_bits: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.candidate_bits <= MOST_CANDIDATE_BITS:
            raise ConfigError(f"candidate_bits is {self.candidate_bits}, it lies between 1 and {MOST_CANDIDATE_BITS}")
        if not 0 < self.rate < np.inf:
            raise ConfigError(f"rate is {self.rate}, it must be finite and above zero")

    def encode(self, payload: Bits | Vector, shared: Shared) -> bytes:
        prior, posterior = _prior(shared), _posterior(payload, shared)
        if shared.size == 0:
            return b""
        slopes, divergence = _slopes(posterior, prior)
        step_bits = self._step_bits(float(divergence.mean()))
        lengths = np.zeros(-(-shared.size >> step_bits), np.uint16)
        per_step = np.add.reduceat(divergence, np.arange(0, shared.size, 1 << step_bits))
        lengths = lengths[: _cut(per_step, self.rate, lengths)]
        starts = _bounds(lengths, step_bits, shared.size)[:-1]
        best, choices = np.full(starts.size, -np.inf), np.zeros(starts.size, np.uint16)
        terms = np.empty(shared.size, np.float32)
        for candidate in range(1 << self.candidate_bits):
            draws = uniforms((shared.key ^ CANDIDATE_PURPOSE) + candidate, 0, shared.size)
            _slopes_of_ones(draws, prior, slopes, terms)
            noise = uniforms((shared.key ^ CHOICE_PURPOSE) + candidate, 0, starts.size)
            scores = np.add.reduceat(terms, starts) - np.log(-np.log((noise + 0.5) / 2.0**32))
            choices[scores > best] = candidate
            np.maximum(best, scores, out=best)
        header = bytes([step_bits]) + write_varint(choices.size)
        return header + pack_planes(choices, 0, self.candidate_bits) + encode_symbols(lengths - 1, LONGEST)

    def decode(self, data: bytes, shared: Shared) -> Bits:
        prior = _prior(shared)
        if shared.size == 0:
            if data:
                raise PayloadError(f"{len(data)} bytes for no places", "size")
            return np.zeros(0, np.uint8)
        if not data or data[0] > LARGEST_STEP_BITS:
            raise PayloadError(f"the step of the blocks is missing or above 2^{LARGEST_STEP_BITS}", "value")
        steps = -(-shared.size >> data[0])
        count, offset = read_varint(data, 1, steps, "number of blocks")
        end = offset + plane_bytes(count, self.candidate_bits)
        choices = np.zeros(count, np.uint16)
        unpack_planes(data[offset:end], 0, self.candidate_bits, choices)
        lengths = decode_symbols(data[end:], count, LONGEST) + np.uint16(1)
        if lengths.sum(dtype=np.int64) != steps:
            raise PayloadError(
                f"{count} blocks of {lengths.sum(dtype=np.int64)} steps, expected {steps} steps", "value"
            )
        bounds = _bounds(lengths, data[0], shared.size)
        first_key = shared.key ^ CANDIDATE_PURPOSE
        keys = np.array([subkeys(first_key + candidate) for candidate in range(1 << self.candidate_bits)], np.uint32)
        ones = np.zeros(shared.size, np.bool_)
        with np.errstate(over="ignore"):
            _draw(choices, bounds, keys, prior, ones)
        return pack_bits(ones)

    def _step_bits(self, divergence: float) -> int:
        """log2 of the step size for which a block with this mean divergence per position has about `USUAL` steps."""
        longest = USUAL << LARGEST_STEP_BITS
        length = self.rate / divergence if divergence * longest > self.rate else longest
        return max(0, round(math.log2(length / USUAL)))


def _bounds(lengths: NDArray[np.uint16], step_bits: int, size: int) -> Places:
    """First position of each block, and the end of the last block."""
    ends = np.cumsum(lengths, dtype=np.int64) << step_bits
    return np.append(0, np.minimum(ends, size))


def _prior(shared: Shared) -> Thresholds:
    if shared.thresholds is None or shared.thresholds.shape != (shared.size,):
        raise ConfigError(f"klms needs a prior: one shared threshold for each of {shared.size} places")
    return np.ascontiguousarray(shared.thresholds, np.uint32)


def _posterior(payload: Bits | Vector, shared: Shared) -> Values:
    if payload.dtype != np.float32:
        return unpack_bits(check_bits(np.asarray(payload), shared.size), shared.size).astype(np.float64)
    if payload.shape != (shared.size,) or not ((payload >= 0) & (payload <= 1)).all():
        raise PayloadError(f"a posterior is {shared.size} probabilities between 0 and 1", cause="value")
    return payload.astype(np.float64)


def _slopes(posterior: Values, thresholds: Thresholds) -> tuple[Vector, Values]:
    """logit(q) - logit(p), and KL(q || p) in bits, for each position."""
    q = np.clip(posterior, CLOSEST, 1 - CLOSEST)
    p = np.clip(thresholds / 2.0**32, 2.0**-33, 1 - 2.0**-33)
    of_one, of_zero = np.log(q / p), np.log1p(-q) - np.log1p(-p)
    return (of_one - of_zero).astype(np.float32), np.maximum(0, q * of_one + (1 - q) * of_zero) / np.log(2)


@njit
def _cut(divergence: Values, rate: float, lengths: NDArray[np.uint16]) -> int:
    """Number of blocks; writes their lengths in steps. A block grows while it is within the rate. A single step may
    exceed it.
    """
    running, block = 0.0, -1
    for step in range(divergence.size):
        running += divergence[step]
        if block < 0 or running > rate or lengths[block] == LONGEST:
            block += 1
            running = divergence[step]
        lengths[block] += 1
    return block + 1


@njit
def _slopes_of_ones(draws: Thresholds, thresholds: Thresholds, slopes: Vector, terms: Vector) -> None:
    for place in range(draws.size):
        terms[place] = slopes[place] if draws[place] < thresholds[place] else np.float32(0)


@njit
def _draw(
    choices: NDArray[np.uint16],
    bounds: Places,
    keys: NDArray[np.uint32],
    thresholds: Thresholds,
    ones: NDArray[np.bool_],
) -> None:
    """Draw the chosen candidate of each block, hashing each position as `uniforms` does."""
    for block in range(choices.size):
        first, second, third = keys[choices[block]]
        for place in range(bounds[block], bounds[block + 1]):
            ones[place] = hash_place(np.uint32(place), first, second, third) < thresholds[place]
