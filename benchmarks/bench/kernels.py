"""Kernels against their references, each pair measured within a minute on the same input.

The sampler is compared with a copy of its thresholds (no sampler that reads them can be faster than memory) and with
torch.bernoulli; the range coder with a probability per position with constriction; the binary fuse filter with the C
header; and the lane filter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.bench.drifts import server_logits, thresholds_of_logits
from benchmarks.bench.flips import random_flips
from benchmarks.bench.measure import best_seconds, mean_build, nanoseconds, transfer
from benchmarks.bench.references import clipped, decode_constriction, encode_constriction, measure_c_fuse
from subbit.codecs import Shared, make_codec
from subbit.codecs.fuse import build_fuse, fuse_shape, query_fuse, seed_counter
from subbit.codecs.hashing import seed_of_attempt
from subbit.codecs.lane import build_lane, lane_seed, lane_shape, query_lane
from subbit.codecs.packed import positions_of_bits, unpack_bits
from subbit.codecs.sampler import Thresholds, sample_bits
from subbit.core.machine import one_torch_thread
from subbit.core.randomness import derive_key, torch_generator

FILTER_RATE = 0.01


def measure_sampler(thresholds: Thresholds) -> dict[str, Any]:
    size, copy = thresholds.size, np.empty_like(thresholds)
    probabilities = torch.from_numpy((thresholds / 2.0**32).astype(np.float32))
    generator = torch_generator(0)
    sampler_seconds, _ = best_seconds(lambda: sample_bits(thresholds, derive_key(0, "bench sampler")))
    copy_seconds, _ = best_seconds(lambda: np.copyto(copy, thresholds))
    with one_torch_thread():
        torch_seconds, _ = best_seconds(lambda: torch.bernoulli(probabilities, generator=generator))
    return {
        "sampler_ns": nanoseconds(sampler_seconds, size),
        "memcpy_ns": nanoseconds(copy_seconds, size),
        "torch_bernoulli_ns": nanoseconds(torch_seconds, size),
    }


def measure_range_prior(thresholds: Thresholds) -> dict[str, Any]:
    """A mask drawn from probabilities that both sides know. constriction gets values and probabilities in the types it
    needs; the conversion is not timed.
    """
    size = thresholds.size
    mask = sample_bits(thresholds, derive_key(0, "bench prior mask"))
    ours = transfer(make_codec("range-prior"), mask, Shared(size=size, thresholds=thresholds))
    values = unpack_bits(mask, size).astype(np.int32)
    probabilities = clipped(thresholds / 2.0**32)
    encode_seconds, words = best_seconds(lambda: encode_constriction(values, probabilities))
    decode_seconds, decoded = best_seconds(lambda: decode_constriction(words, probabilities, size))
    return {
        "range_prior": ours.summary(size),
        "constriction": {
            "bpp": 8 * words.nbytes / size,
            "encode_ns": nanoseconds(encode_seconds, size),
            "decode_ns": nanoseconds(decode_seconds, size),
        },
        "identical": bool(np.array_equal(ours.decoded, mask) and np.array_equal(decoded, values)),
    }


def measure_filters(size: int) -> dict[str, Any]:
    """Build per key and query per position of 3-wise 8-bit filters, without container and frame.

    About one construction in forty fails and starts again with the next seed, which doubles its time. So builds are
    averaged over several seeds, for ours and for the reference.
    """
    positions = positions_of_bits(random_flips(size, FILTER_RATE), size)
    keys = positions.size
    byte = np.dtype(np.uint8)
    attempt, fingerprints = build_fuse(positions, 0, 3, byte)
    fuse_build = mean_build(lambda key: build_fuse(positions, key, 3, byte))
    seed, shape = seed_of_attempt(seed_counter(0), attempt), fuse_shape(keys, 3)
    fuse_query, answers = best_seconds(lambda: query_fuse(fingerprints, seed, shape, 3, size))
    lane_attempt, lanes = build_lane(positions, 0)
    lane_build = mean_build(lambda key: build_lane(positions, key))
    lanes_seed, lanes_shape = lane_seed(0, lane_attempt), lane_shape(keys, lane_attempt)
    lane_query, _ = best_seconds(lambda: query_lane(lanes, lanes_seed, lanes_shape, size))
    reference = measure_c_fuse(positions, size)
    return {
        "rate": FILTER_RATE,
        "keys": keys,
        "fuse_build_ns_per_key": nanoseconds(fuse_build, keys),
        "fuse_query_ns": nanoseconds(fuse_query, size),
        "lane_build_ns_per_key": nanoseconds(lane_build, keys),
        "lane_query_ns": nanoseconds(lane_query, size),
        "pyfusefilter_build_ns_per_key": nanoseconds(reference.build_seconds, keys),
        "pyfusefilter_query_ns": nanoseconds(reference.query_seconds, size),
        "pyfusefilter_note": "its C function, called once per place from a compiled loop: it has no bulk query",
        "same_answers": bool(np.array_equal(answers, reference.answers)),
    }


def measure_kernels(size: int, report: Callable[[str], None]) -> dict[str, Any]:
    thresholds = thresholds_of_logits(server_logits(size))
    kernels = {"sampler": measure_sampler(thresholds)}
    report(f"sampler {kernels['sampler']['sampler_ns']:.2f}, memcpy {kernels['sampler']['memcpy_ns']:.2f} ns per place")
    kernels["range_prior"] = measure_range_prior(thresholds)
    report("range coder with a probability per place")
    kernels["filters"] = measure_filters(size)
    report(f"binary fuse filter {kernels['filters']['fuse_query_ns']:.2f} ns per place")
    return kernels
