"""Maps from the trained vector to the weights of the network, and the gradient back.

    Identity        w = s                                dL/ds = g
    BernoulliMask   w = w0 * [u < theta]                 dL/ds = g * w0 * theta (1 - theta)
    ThresholdMask   w = w0 * [theta >= threshold]        the same
    SignMask        w = w0 * sign(s) on survivors, or 0  dL/ds = g * w0 where |s| <= 1

with theta = sigmoid(s), u uniform, g = dL/dw. A sampled bit has no derivative: the straight-through estimator (Bengio,
Leonard, Courville, "Estimating or propagating gradients through stochastic neurons", 2013) passes dL/dm to theta as if
the bit were theta itself. Masks on frozen weights: Zhou et al., "Deconstructing lottery tickets", NeurIPS 2019; Isik et
al., "Sparse random networks for communication-efficient federated learning" (FedPM), ICLR 2023. FedPM's published code
has one more factor theta in the gradient (`straight_through="theta"`), so weights with small theta hardly recover.

On the CPU masks are compiled kernels, elsewhere operations of torch. Both draw the same bits from the same key and
theta, and both compute the same weights; a sigmoid may differ between devices in its last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.codecs.sampler import hash_place, subkeys
from subbit.core.errors import ModelError
from subbit.core.jit import njit
from subbit.models.draws import in_blocks, uniforms_24

SCORE_LIMIT = 10.0
"""sigmoid(10) = 0.99995. From about 17 on theta is 1.0 in float32, so the derivative is zero and the score stuck."""
BLOCK = 1 << 17  # Places at a time, so that their probabilities stay in the cache.
SHIFT_8 = np.uint32(8)
UNIT_24 = np.float32(2.0**-24)  # 24 random bits are exact in float32.

Array = NDArray[np.float32]


def clamp_scores_(scores: Tensor) -> Tensor:
    """Clamp scores to the range where their sigmoid has a gradient. In place; call it after each step."""
    return scores.clamp_(-SCORE_LIMIT, SCORE_LIMIT)


class Reparametrisation(ABC):
    """A map from a trained vector of `size` values into the weights of a flat model."""

    size: int
    elementwise: bool = False
    """Whether each weight depends on the trained value at its own place only. `pull_back` may then write over the
    gradient of the weights."""

    @abstractmethod
    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        """Compute the weights in place. All random values are drawn from `key`."""

    @abstractmethod
    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        """Compute dL/d trained from dL/d weights and write it to `out`."""


class Identity(Reparametrisation):
    """The weights themselves are trained."""

    def __init__(self, size: int) -> None:
        self.size = size

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        weights.copy_(trained.detach())

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        out.copy_(gradient)


class _Mask(Reparametrisation):
    """Base class of the masks: scores are trained, weights stay frozen."""

    elementwise = True

    def __init__(self, initial: Tensor) -> None:
        """`initial` is only read."""
        self.size = initial.numel()
        self.frozen = initial.detach()
        self.compiled = initial.device.type == "cpu"
        if self.compiled:
            self.initial = _array(initial, self.size, "initial")
            self._theta = torch.empty(min(BLOCK, self.size))

    def _probabilities(self, trained: Tensor) -> Iterator[tuple[slice, Array]]:
        """theta in blocks, each in a buffer that the next one overwrites."""
        _array(trained, self.size, "trained")
        for start in range(0, self.size, BLOCK):
            part = slice(start, min(start + BLOCK, self.size))
            yield part, torch.sigmoid(trained.detach()[part], out=self._theta[: part.stop - start]).numpy()

    def _blocks(self, *vectors: Tensor) -> Iterator[tuple[slice, list[Tensor]]]:
        """Without kernels: blocks of places, with the frozen weights and these vectors there."""
        for part in in_blocks(self.size):
            yield part, [self.frozen[part], *(vector.detach()[part] for vector in vectors)]

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        if not self.compiled:
            for _, (frozen, slope, scores, there) in self._blocks(gradient, trained, out):
                theta = torch.sigmoid(scores)
                torch.mul(slope * frozen, theta * (1 - theta), out=there)
            return
        values, found = _array(gradient, self.size, "gradient"), _array(out, self.size, "out")
        for part, chances in self._probabilities(trained):
            _straight_through(values[part], self.initial[part], chances, found[part])

    def _write_thresholded(self, trained: Tensor, weights: Tensor, threshold: float) -> None:
        if not self.compiled:
            for _, (frozen, scores, there) in self._blocks(trained, weights):
                there.copy_(torch.where(torch.sigmoid(scores) >= threshold, frozen, 0.0))
            return
        out = _array(weights, self.size, "weights")
        for part, theta in self._probabilities(trained):
            out[part] = np.where(theta >= np.float32(threshold), self.initial[part], np.float32(0.0))


class BernoulliMask(_Mask):
    """Keeps each weight with probability theta; draws a new mask in every step."""

    def __init__(self, initial: Tensor, straight_through: Literal["identity", "theta"] = "identity") -> None:
        if straight_through not in ("identity", "theta"):
            raise ModelError(f"straight_through={straight_through!r}: there are identity, theta")
        super().__init__(initial)
        self.straight_through = straight_through

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        if not self.compiled:
            for part, (frozen, scores, there) in self._blocks(trained, weights):
                drawn = uniforms_24(key, part.start, part.stop - part.start, scores.device)
                there.copy_(torch.where(drawn < torch.sigmoid(scores), frozen, 0.0))
            return
        words, out = subkeys(key), _array(weights, self.size, "weights")
        with np.errstate(over="ignore"):
            for part, theta in self._probabilities(trained):
                _keep(*words, np.uint32(part.start), theta, self.initial[part], out[part])

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        super().pull_back(gradient, trained, out)
        if self.straight_through == "theta":
            out.mul_(torch.sigmoid(trained.detach()))

    def expected(self, trained: Tensor, weights: Tensor) -> None:
        """w0 * theta: the mean over all masks."""
        if not self.compiled:
            torch.mul(self.frozen, torch.sigmoid(trained.detach()), out=weights)
            return
        out = _array(weights, self.size, "weights")
        for part, theta in self._probabilities(trained):
            np.multiply(self.initial[part], theta, out=out[part])

    def thresholded(self, trained: Tensor, weights: Tensor) -> None:
        """w0 * [theta >= 1/2]: the most likely mask."""
        self._write_thresholded(trained, weights, 0.5)


class ThresholdMask(_Mask):
    """Keeps each weight whose theta reaches a threshold. Deterministic."""

    def __init__(self, initial: Tensor, threshold: float = 0.5) -> None:
        if not 0.0 <= threshold <= 1.0:
            raise ModelError(f"threshold={threshold}: a probability lies between 0 and 1")
        super().__init__(initial)
        self.threshold = threshold

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        self._write_thresholded(trained, weights, self.threshold)


class SignMask(Reparametrisation):
    """Each surviving weight keeps its magnitude and learns its sign, with sign(0) = 1; all others are zero."""

    def __init__(self, initial: Tensor, survivors: Tensor) -> None:
        self.size = survivors.numel()
        self.survivors = survivors
        self.initial = initial[survivors]

    def write(self, trained: Tensor, weights: Tensor, key: int) -> None:
        self.scaled(torch.where(trained.detach() >= 0, 1.0, -1.0), weights)

    def scaled(self, factors: Tensor, weights: Tensor) -> None:
        """w0 * factor on the survivors, 0 elsewhere."""
        weights.zero_().index_copy_(0, self.survivors, self.initial * factors)

    def pull_back(self, gradient: Tensor, trained: Tensor, out: Tensor) -> None:
        # Beyond 1 a score would only move further in the direction of its sign.
        torch.mul(gradient[self.survivors] * self.initial, trained.detach().abs() <= 1, out=out)


def _array(tensor: Tensor, size: int, name: str) -> Array:
    """The memory of a tensor as a numpy array, after checking it: kernels do not check bounds."""
    if tensor.shape != (size,) or tensor.dtype != torch.float32 or tensor.device.type != "cpu":
        raise ModelError(
            f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}: needs float32 ({size},) on the CPU"
        )
    array: Array = tensor.detach().numpy()
    return array


@njit
def _keep(
    first: np.uint32,
    second: np.uint32,
    third: np.uint32,
    start: np.uint32,
    theta: Array,
    initial: Array,
    weights: Array,
) -> None:
    """The draws of `subbit.codecs.sampler.uniforms` from `start` on, compared at 24 bits."""
    for place in range(weights.size):
        hashed = hash_place(np.uint32(start + np.uint32(place)), first, second, third)
        uniform = np.float32(hashed >> SHIFT_8) * UNIT_24
        weights[place] = initial[place] if uniform < theta[place] else np.float32(0.0)


@njit
def _straight_through(gradient: Array, initial: Array, theta: Array, out: Array) -> None:
    one = np.float32(1.0)
    for place in range(out.size):
        out[place] = gradient[place] * initial[place] * (theta[place] * (one - theta[place]))
