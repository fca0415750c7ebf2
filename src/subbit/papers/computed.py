"""Numbers of the papers that need no run: parameter counts, bits of codes, formulas. Protocols call them by name."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from subbit.core.errors import ConfigError
from subbit.core.values import nearest

FUNCTIONS: dict[str, Callable[..., float]] = {}
FLOAT_BYTES = 4
MEGABYTE = 1e6


def computed(function: Callable[..., float]) -> Callable[..., float]:
    FUNCTIONS[function.__name__] = function
    return function


def compute(name: str, options: dict[str, Any]) -> float:
    """Once in a process: some need seconds, and a protocol is judged at several scales."""
    return _compute(name, json.dumps(options, sort_keys=True))


@cache
def _compute(name: str, options: str) -> float:
    if name not in FUNCTIONS:
        raise ConfigError(f"function {name!r}: {nearest(name, [*FUNCTIONS])}")
    try:
        return float(FUNCTIONS[name](**json.loads(options)))
    except TypeError as error:
        raise ConfigError(f"function {name!r}: {error}") from None


# Parameters and messages.


@computed
def tuned_parameters(model: str, tuning: str, classes: int, **words: Any) -> float:
    """What a tuning of FedPEFT trains, as `subbit params` counts it on the real modules without weights."""
    return _tuned(model, tuning, classes, tuple(sorted(words.items())))


@cache
def _tuned(model: str, tuning: str, classes: int, words: tuple[tuple[str, Any], ...]) -> float:
    from subbit.core.pieces import Tables
    from subbit.methods.fedpeft import FedPeft, FedPeftParameters
    from subbit.peft.parameter_counts import count

    values = {**dict(words), "tuning": tuning}
    parameters = Tables(FedPeftParameters, values).build(values)
    return count(model, classes, partial(FedPeft.prepare, parameters=parameters, classes=classes, key=0)).trained


@computed
def message_mb(
    model: str, tuning: str, classes: int, clients: int = 1, unit: int = 1 << 20, rounded: bool = False, **words: Any
) -> float:
    """Bytes of a round, one way, four for each parameter. `rounded`: the count rounded to ten thousand, as printed."""
    parameters = tuned_parameters(model, tuning, classes, **words)
    return FLOAT_BYTES * (round(parameters, -4) if rounded else parameters) * clients / unit


@computed
def rounds_over_full(tuning: str, rounds: int) -> float:
    """Bytes of so many rounds of a tuning over those of one round of full tuning, ViT-B/16 with 100 classes."""
    return rounds * tuned_parameters("vit-b16", tuning, 100) / tuned_parameters("vit-b16", "full", 100)


@computed
def network_parameters(model: str, shape: list[int], classes: int) -> float:
    """Of a built-in network for inputs of this shape."""
    return float(sum(parameter.numel() for parameter in _built_in(model, shape, classes)))


def _built_in(model: str, shape: list[int], classes: int) -> list[Any]:
    import torch

    from subbit.models.load_model import SMALL_MODELS

    with torch.device("meta"):
        return [*SMALL_MODELS[model](tuple(shape), classes).parameters()]


@computed
def network_mb(model: str, shape: list[int], classes: int, bits: float = 32) -> float:
    return network_parameters(model, shape, classes) * bits / 8 / MEGABYTE


@computed
def pruned_network_mb(model: str, shape: list[int], classes: int, layers: int, keep: float) -> float:
    """With this share of the weights of the last layers kept, as floats, without the cost of their positions."""
    weights = [each.numel() for each in _built_in(model, shape, classes) if each.ndim > 1]
    dropped = (1 - keep) * sum(weights[-layers:])
    return float(network_parameters(model, shape, classes) - dropped) * FLOAT_BYTES / MEGABYTE


@computed
def transmission_hours(megabytes: float, rounds: int, megabytes_per_second: float) -> float:
    """Both ways, one client."""
    return 2 * rounds * megabytes / megabytes_per_second / 3600


# Bits of DeltaMask's filters.


@computed
def filter_bits_per_key(keys: int, kind: str = "bfuse", bits: int = 8, arity: int = 4) -> float:
    """Of a real filter of so many random keys, its header included."""
    from subbit.codecs import Shared, make_codec
    from subbit.codecs.packed import pack_bits

    size = 16 * keys
    flipped = np.zeros(size, dtype=bool)
    flipped[np.random.default_rng(0).choice(size, keys, replace=False)] = True
    options: dict[str, Any] = {"bits": bits, "arity": arity} if kind == "bfuse" else {"bits": bits}
    return 8 * len(make_codec(kind, **options).encode(pack_bits(flipped), Shared(size))) / keys


@computed
def filter_ratio(keys: int, bits: int) -> float:
    """Bits of a Xor filter over those of a 4-wise binary fuse filter of the same keys."""
    return filter_bits_per_key(keys, "xor", bits) / filter_bits_per_key(keys, "bfuse", bits)


@computed
def head_bpp(width: int, classes: int, rounds: int, masked: int) -> float:
    """Bits of a head that is sent once, for each masked parameter and round."""
    return 32 * (width + 1) * classes / rounds / masked


@computed
def flips_bpp(flipped: float, kappa: float = 0.8, bits_per_key: float = 8.62) -> float:
    """Bits per parameter if this share of the mask flips and the share kappa of the flips is sent."""
    return flipped * kappa * bits_per_key


@computed
def false_share(bpp: float, bits_per_key: float = 8.62, bits: int = 8) -> float:
    """Share of the flips that a server reads out of a filter which no client meant."""
    sent = bpp / bits_per_key
    false = (1 - sent) / 2**bits
    return float(false / (sent + false))


@computed
def aggregated_probability(ones: int, clients: int, masks: str, estimator: str) -> float:
    """Of a place where `ones` of the clients have a one, from Beta(1, 1): with the sum or the mean of the masks."""
    total = float(ones) if masks == "sum" else ones / clients
    alpha, beta = 1 + total, 1 + clients - total
    return (alpha - 1) / (alpha + beta - 2) if estimator == "mode" else alpha / (alpha + beta)


@computed
def estimation_error(theta: float, bits: int) -> float:
    """Equation 12 of paper 000 for one parameter, times 4K: the bound of equation 13 says at most 1."""
    rate, variance = 2.0**-bits, theta * (1 - theta)
    return 4 * (variance - 4 * rate * variance + rate)


@computed
def row_mean(values: list[float]) -> float:
    return statistics.fmean(values)


@computed
def sum_of(values: list[float]) -> float:
    return math.fsum(values)


@computed
def ratio(left: float, right: float) -> float:
    return left / right


@computed
def difference(left: float, right: float) -> float:
    return left - right


@computed
def relative_gain(value: float, base: float) -> float:
    """In percent."""
    return 100 * (value / base - 1)


# Lemmas of Zampling.


@computed
def nonzero_weights(rows: int, columns: int, degree: int) -> float:
    """Lemma 2.2: the share of weights that are not zero, of one matrix and one draw of bits."""
    draw = np.random.default_rng(0)
    bits = draw.random(columns) < draw.random(columns)
    return float(bits[_places(rows, columns, degree)].any(axis=1).mean())


@computed
def empty_columns(rows: int, columns: int, degree: int, form: str) -> float:
    """Lemma 2.3: the share of columns without an entry. `form`: limit, exact, or drawn, one matrix."""
    if form == "limit":
        return math.exp(-degree)
    if form == "exact":
        return (1 - degree / columns) ** rows
    return 1 - len(np.unique(_places(rows, columns, degree))) / columns


def _places(rows: int, columns: int, degree: int) -> Any:
    """Distinct places in every row, drawn from the seed 1."""
    draw = np.random.default_rng(1)
    if degree == 1:
        return draw.integers(columns, size=(rows, 1))
    return np.stack([draw.choice(columns, degree, replace=False) for _ in range(rows)])


@computed
def weight_variance(fan_in: int, moment: float) -> float:
    """Lemma 2.1: variance of a weight times the fan-in; He's is 2. `moment`: E[p^2] is 1/3, E[z^2] is 1/2."""
    return 6 * moment if fan_in else math.nan


@computed
def savings(compression: float, way: str) -> float:
    """Bits of all weights as floats over what zampling sends: n bits up, n floats down."""
    return compression * (32 if way == "up" else 1)


# Split and privacy.


@computed
def starved_examples(classes: int, clients: int, images: int, classes_per_client: int = 2) -> float:
    """Share of the images that the notebook of paper 001 gives to anybody: a hundredth of each drawn class."""
    each = images // classes // clients
    return clients * classes_per_client * each / images
