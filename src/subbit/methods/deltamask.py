"""DeltaMask: only the flips against a mask that both sides can draw go up.

Tsouvalas, Asano, Saeed: "Federated Fine-Tuning of Vision Foundation Models via Probabilistic Masking", 2023.
(Paper 000.)

    down   theta, as in FedPM; everybody draws m_g = [u < theta] from a shared key
    client trains scores as in FedPM, then m_k = [u' < sigmoid(s)];  D = {i: m_k != m_g}
           keeps the share kappa of D with the largest KL(theta_k || theta_g)
    up     D, exactly coded by default, in a 4-wise binary fuse filter in the paper
    server m_k = m_g xor D; the rest as in FedPM

The paper does not say whether u' = u. With the same uniforms ("shared" coupling) a flip happens with probability
|theta_k - theta_g|; with independent ones about half of the undecided places flip, which costs more than the mask
itself. Its bit rates need shared ones, so that is the default. The paper also uses one u for all clients, which
makes their errors add up instead of averaging out: the default here is one key per client (`seed_scope`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from subbit.aggregate import MaskCounts
from subbit.codecs import Codec, Shared, make_codec
from subbit.codecs.base import Bits
from subbit.codecs.bits import bits_of_positions, count_ones, positions_of_bits
from subbit.codecs.sampler import Thresholds, sample_bits, uniforms
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.methods.base import Part, Payloads, Turn, Update
from subbit.methods.masks import MaskMethod, MaskParameters
from subbit.methods.scores import FULL
from subbit.randomness import NOBODY, derive_key


@dataclass(frozen=True)
class DeltaMaskParameters(MaskParameters):
    kappa: float = 0.8
    """Share of the flips that is sent (at the start, with the cosine schedule)."""
    kappa_schedule: Literal["cosine", "const"] = "cosine"
    """`cosine` rises from kappa to 1 over the rounds; `const` stays."""
    order: Literal["kl", "random"] = "kl"
    """Which flips are kept: those with the largest KL divergence, or a random choice (the paper's ablation)."""
    coupling: Literal["shared", "independent"] = "shared"
    seed_scope: Literal["client", "round"] = "client"
    codec: Literal["flips", "rice", "range", "context", "packed", "bfuse", "xor", "lane"] = "flips"
    """How the flips go up: exact codes (`flips` takes the smallest) or filters with false positives."""
    filter_bits: Literal[8, 16, 32] = 8
    filter_arity: Literal[3, 4] = 4
    container: Literal["deflate", "png", "raw", "smallest"] = "deflate"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.kappa <= 1, f"kappa={self.kappa}: needs a share between 0 and 1")


class DeltaMask(MaskMethod[DeltaMaskParameters]):
    name = "deltamask"
    title = "DeltaMask: stochastic masks, only the flips are sent"
    paper = "000"
    citation = "Tsouvalas et al., Federated Fine-Tuning of Vision Foundation Models via Probabilistic Masking, 2023"
    sends_up = "positions of flipped mask bits, exactly coded (paper: binary fuse filter + DEFLATE)"
    sends_down = "mask probabilities, as entropy-coded counts (paper: float32)"
    Parameters = DeltaMaskParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"codec": "bfuse", "seed_scope": "round", "theta": "float32", "evaluation": "sampled"},
    }

    # What both sides can work out for themselves.

    def up_parts(self) -> tuple[Part, ...]:
        return (Part("flips", self._codec(), self.size),)

    def _codec(self) -> Codec[Bits]:
        parameters = self.parameters
        if parameters.codec == "bfuse":
            return make_codec(
                "bfuse", bits=parameters.filter_bits, arity=parameters.filter_arity, container=parameters.container
            )
        if parameters.codec == "xor":
            return make_codec("xor", bits=parameters.filter_bits, container=parameters.container)
        return make_codec(parameters.codec)

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        known = super().shared(part, view, round_number, client)
        if part.name == "theta":
            return known
        coupled = self.parameters.coupling == "shared"
        uniforms_key = self._reference_key(round_number, client) if coupled else None
        return Shared(self.size, key=known.key, thresholds=view, uniforms_key=uniforms_key)

    def _reference_key(self, round_number: int, client: int) -> int:
        owner = client if self.parameters.seed_scope == "client" else NOBODY
        return derive_key(self.task.seed, "reference-mask", round_number, owner)

    def kappa(self, round_number: int) -> float:
        start: float = self.parameters.kappa
        if self.parameters.kappa_schedule == "const" or self.task.rounds == 1:
            return start
        return 1 + (start - 1) * 0.5 * (1 + math.cos(math.pi * round_number / (self.task.rounds - 1)))

    # The client half.

    def train(self, view: Thresholds, data: Examples, turn: Turn) -> Update:
        trained, loss, after, before = self.train_scores(view, data, turn)
        reference_key = self._reference_key(turn.round_number, turn.client)
        own_key = reference_key
        if self.parameters.coupling == "independent":
            own_key = derive_key(self.task.seed, "client-mask", turn.round_number, turn.client)
        flips = sample_bits(trained, own_key) ^ sample_bits(view, reference_key)
        kept = self._most_important(flips, after, before, turn)
        observations = {
            "loss": loss,
            "flips": count_ones(flips),
            "flips_kept": count_ones(kept),
            "moved": float(np.abs(trained.astype(np.float64) - view).mean() / FULL),
        }
        return Update({"flips": kept}, len(data), observations)

    def _most_important(self, flips: Bits, after: Tensor, before: Tensor, turn: Turn) -> Bits:
        """The share kappa of the flips; ties go to the lower index, so that every machine keeps the same ones."""
        positions = positions_of_bits(flips, self.size)
        keep = math.ceil(self.kappa(turn.round_number) * len(positions))
        if keep == len(positions):
            return flips
        if self.parameters.order == "kl":
            where = torch.from_numpy(positions.astype(np.int64))
            rank = -bernoulli_divergence(after[where].double(), before[where].double()).numpy()
        else:
            key = derive_key(self.task.seed, "random-order", turn.round_number, turn.client)
            rank = uniforms(key, 0, len(positions))
        chosen = np.sort(np.argsort(rank, kind="stable")[:keep])
        return bits_of_positions(positions[chosen], self.size)

    # The server half.

    def accumulate(
        self,
        accumulator: MaskCounts,
        view: Thresholds,
        payloads: Payloads,
        examples: int,
        round_number: int,
        client: int,
    ) -> None:
        reference = sample_bits(view, self._reference_key(round_number, client))
        accumulator.add(reference ^ payloads["flips"])


def bernoulli_divergence(after: Tensor, before: Tensor) -> Tensor:
    """KL(Bern(sigmoid(after)) || Bern(sigmoid(before))) without ever forming log(theta).

    sigmoid(a) (a - b) + softplus(b) - softplus(a)
    """
    return torch.sigmoid(after) * (after - before) + functional.softplus(before) - functional.softplus(after)
