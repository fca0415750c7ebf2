"""FedCode: the values of a vector snapped to a small codebook.

Khalilian, Tsouvalas, Ozcelebi, Meratnia, "FedCode: Communication-Efficient Federated Learning via Transferring
Codebooks", IEEE EDGE 2024. The codebook is fitted by k-means on the values alone, which in one dimension needs a sort
once and then only bisections and differences of prefix sums. On the wire: the number of centroids, the centroids, and
for each value which one, by rANS (log2 of their number is the most that it takes).

The rounds of the paper in which only a codebook travels are a matter of the method: it has `fit_codebook`, `assign` and
`apply_codebook` for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subbit.codecs.codec import Codec, Kind, Shared, Vector, register_codec
from subbit.codecs.float_format import check_vector, count_boundaries, values_from_bytes, values_to_bytes
from subbit.codecs.symbols import decode_symbols, encode_symbols
from subbit.core.errors import ConfigError, PayloadError

MOST_CLUSTERS = 256
MOST_ITERATIONS = 300


@register_codec
@dataclass(frozen=True)
class FedCode(Codec[Vector]):
    """At most `clusters` different values arrive: the means of as many groups of neighbouring values."""

    name = "fedcode"
    number = 54
    kind = Kind.VECTOR
    exact = False
    summary = "k-means codebook of the values and entropy-coded assignments; clusters=64"

    clusters: int = 64

    def __post_init__(self) -> None:
        _check_clusters(self.clusters)

    def encode(self, payload: Vector, shared: Shared) -> bytes:
        vector = check_vector(payload, shared)
        if vector.size == 0:
            return b""
        codebook = fit_codebook(vector, self.clusters)
        symbols = assign(vector, codebook).astype(np.uint16)
        header = bytes([codebook.size - 1]) + values_to_bytes(codebook, "float32")
        return header + encode_symbols(symbols, codebook.size)

    def decode(self, data: bytes, shared: Shared) -> Vector:
        if shared.size == 0 or not data:
            if shared.size or data:
                raise PayloadError(f"{len(data)} bytes for {shared.size} values")
            return np.zeros(0, np.float32)
        count = data[0] + 1
        if count > min(self.clusters, shared.size):
            raise PayloadError(f"{count} centroids where at most {min(self.clusters, shared.size)} make sense", "value")
        codebook = values_from_bytes(data[1 : 1 + 4 * count], count, "float32", "the codebook")
        if not (codebook[1:] > codebook[:-1]).all():
            raise PayloadError("the centroids of the codebook do not rise", cause="value")
        return apply_codebook(decode_symbols(data[1 + 4 * count :], shared.size, count), codebook)


def fit_codebook(vector: Vector, clusters: int = 64) -> Vector:
    """At most `clusters` rising centroids of a local minimum of k-means. Deterministic; exact for few distinct
    values."""
    _check_clusters(clusters)
    ordered = np.sort(vector) + np.float32(0)  # Adding zero turns -0 into 0: one value, one centroid.
    distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered
    if distinct.size <= clusters:
        return distinct
    sums = np.append(0.0, np.cumsum(ordered, dtype=np.float64))
    centroids = _start(ordered, clusters)
    edges = np.zeros(0, np.int64)
    for _ in range(MOST_ITERATIONS):
        middles = (centroids[1:] + centroids[:-1]) / 2
        inner = np.searchsorted(ordered, middles.astype(np.float32))  # In float64 it would copy all values first.
        new_edges = np.unique(np.concatenate([[0], inner, [ordered.size]]))  # A cluster without values disappears.
        if np.array_equal(new_edges, edges):
            break
        edges = new_edges
        centroids = np.diff(sums[edges]) / np.diff(edges)
    return np.unique(centroids.astype(np.float32))


def assign(vector: Vector, codebook: Vector) -> NDArray[np.uint8]:
    """Which centroid each value is nearest to; half-way between two it is the upper one."""
    levels = np.zeros(vector.size, np.uint8)
    middles = ((codebook[1:].astype(np.float64) + codebook[:-1]) / 2).astype(np.float32)
    count_boundaries(vector, middles, levels)
    return levels


def apply_codebook(levels: NDArray[np.uint8] | NDArray[np.uint16], codebook: Vector) -> Vector:
    """The centroid of each value."""
    return codebook[levels]


def _check_clusters(clusters: int) -> None:
    if not 1 <= clusters <= MOST_CLUSTERS:
        raise ConfigError(f"clusters is {clusters}, a codebook has 1 to {MOST_CLUSTERS} centroids")


def _start(ordered: Vector, clusters: int) -> NDArray[np.float64]:
    """Centroids in proportion to density^(1/3), the best for many of them, where quantiles would starve the tails.

    Between neighbouring quantiles of equal mass the density is 1 / width, so density^(1/3) adds up to width^(2/3).
    """
    places = np.linspace(0, ordered.size - 1, 8 * clusters + 1).astype(np.int64)
    quantiles = ordered[places].astype(np.float64)
    weights = np.append(0.0, np.cumsum(np.diff(quantiles) ** (2 / 3)))
    wanted = (np.arange(clusters) + 0.5) / clusters * weights[-1]
    return np.asarray(np.interp(wanted, weights, quantiles))
