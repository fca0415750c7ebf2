"""FedCode: quantise the values of a vector to a small codebook.

Khalilian, Tsouvalas, Ozcelebi, Meratnia, "FedCode: Communication-Efficient Federated Learning via Transferring
Codebooks", IEEE EDGE 2024. The codebook is fitted by k-means on the values, which in one dimension needs only one sort,
then binary searches and differences of prefix sums. On the wire: the number of centroids, the centroids, and the index
of each value's centroid by rANS (at most log2 of the number of centroids per value).

The rounds of the paper that send only a codebook are up to the method, which uses `fit_codebook`, `assign` and
`apply_codebook`.
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
    """Replace each value by one of at most `clusters` centroids, each the mean of a group of neighbouring values."""

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
    """Fit at most `clusters` ascending centroids, a local minimum of k-means. Deterministic; exact for few distinct
    values.
    """
    _check_clusters(clusters)
    ordered = np.sort(vector) + np.float32(0)  # Adding zero turns -0 into 0, so that both share a centroid.
    distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered
    if distinct.size <= clusters:
        return distinct
    sums = np.append(0.0, np.cumsum(ordered, dtype=np.float64))
    centroids = _start(ordered, clusters)
    edges = np.zeros(0, np.int64)
    for _ in range(MOST_ITERATIONS):
        middles = (centroids[1:] + centroids[:-1]) / 2
        inner = np.searchsorted(ordered, middles.astype(np.float32))  # float64 would copy all values first.
        new_edges = np.unique(np.concatenate([[0], inner, [ordered.size]]))  # Removes empty clusters.
        if np.array_equal(new_edges, edges):
            break
        edges = new_edges
        centroids = np.diff(sums[edges]) / np.diff(edges)
    return np.unique(centroids.astype(np.float32))


def assign(vector: Vector, codebook: Vector) -> NDArray[np.uint8]:
    """Index of the centroid nearest to each value; the upper one if a value is half-way between two."""
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
    """Initial centroids with density proportional to density^(1/3), which is optimal for many of them. Quantiles would
    leave too few for the tails.

    Between neighbouring quantiles of equal mass the density is 1 / width, so density^(1/3) integrates to width^(2/3).
    """
    places = np.linspace(0, ordered.size - 1, 8 * clusters + 1).astype(np.int64)
    quantiles = ordered[places].astype(np.float64)
    weights = np.append(0.0, np.cumsum(np.diff(quantiles) ** (2 / 3)))
    wanted = (np.arange(clusters) + 0.5) / clusters * weights[-1]
    return np.asarray(np.interp(wanted, weights, quantiles))
