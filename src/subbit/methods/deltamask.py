"""DeltaMask: clients upload only the flips against a mask that both sides can draw.

Tsouvalas, Asano, Saeed: "Federated Fine-Tuning of Vision Foundation Models via Probabilistic Masking", 2023. (Paper
000.)

    down   theta, as in FedPM; all sides draw m_g = [u < theta] from a shared key
    client trains scores as in FedPM, then m_k = [u' < sigmoid(s)];  D = {i: m_k != m_g}
           keeps the share kappa of D with the largest KL(theta_k || theta_g)
    up     D, exactly coded by default, in a 4-wise binary fuse filter in the paper
    server m_k = m_g xor D; the rest as in FedPM

The paper does not say whether u' = u. With the same uniforms (`coupling=shared`) a flip has probability
|theta_k - theta_g|; with independent ones 2 theta (1 - theta) even if nothing was learnt, which costs more than the
mask itself until the probabilities have gone to 0 and 1. The paper draws one m_g for all clients; with shared
uniforms their errors then add up instead of averaging out, so the default here is one key per client (`seed_scope`).
docs/deltamask.md has 100 rounds of each reading.

A vector codec, e.g. `codec=ternary`, sends the change of the scores instead, which the server averages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from subbit.codecs import Codec
from subbit.codecs.codec import Bits
from subbit.codecs.packed import bits_of_positions, count_ones, positions_of_bits
from subbit.codecs.sampler import Thresholds, sample_bits, uniforms
from subbit.codecs.smallest import Flips
from subbit.core.pieces import choice, only_with
from subbit.core.randomness import NOBODY, derive_key
from subbit.core.values import require
from subbit.exchange.by_codec import bits_or_vectors, carries_bits, follows_from_codec, loses_changes
from subbit.exchange.posterior import BitsAggregate, BitsDown, BitsExchange, BitsUp, Moved
from subbit.local.trainer import Trainer
from subbit.local.training import Local
from subbit.maps.bound import FULL, blocks
from subbit.maps.masks import MaskMap, bernoulli_divergence
from subbit.maps.weights import MapChoice
from subbit.methods.fedpm import carries_masks
from subbit.methods.method import Method
from subbit.models.task import Task, Turn

EVERY_ROUND = -1
"""Stands for the number of the round in the key of a draw that all rounds share."""


@dataclass(frozen=True)
class FlipsUp(BitsUp):
    """Uploads the most important flips."""

    part: ClassVar[str] = "flips"
    codec: Codec[Any] = choice("codec", Flips(), accepts=carries_masks)
    """Exact codes (`flips` takes the smallest of them) or filters with false positives."""
    kappa: float = only_with("codec", carries_bits, 0.8)
    """Share of the flips that is sent (at the start, with the cosine schedule)."""
    kappa_schedule: Literal["cosine", "const"] = only_with("codec", carries_bits, "cosine")
    """`cosine` rises from kappa to 1 over the rounds; `const` keeps it constant."""
    order: Literal["kl", "random"] = only_with("codec", carries_bits, "kl")
    """Which flips are kept: those with the largest KL divergence, or a random choice (the paper's ablation)."""
    coupling: Literal["shared", "independent"] = only_with("codec", carries_bits, "shared")
    """Whether a client draws its mask with the uniforms of the reference mask, or with its own."""
    seed_scope: Literal["client", "round", "client-run", "run"] = only_with("codec", carries_bits, "client")
    """The uniforms of the reference mask: new ones for each client and round, or the same for all clients of a round
    (`round`), for a client in all its rounds (`client-run`), for all clients and rounds (`run`)."""
    error_feedback: bool | Literal["auto"] = only_with("codec", loses_changes, "auto")
    """Where changes of scores are sent: the client adds what was lost to its next change; `auto`: for biased codecs."""

    def __post_init__(self) -> None:
        require(0 <= self.kappa <= 1, f"kappa={self.kappa}: needs a share between 0 and 1")

    def share(self, round_number: int, rounds: int) -> float:
        """kappa in the given round."""
        if self.kappa_schedule == "const" or rounds == 1:
            return self.kappa
        return 1 + (self.kappa - 1) * 0.5 * (1 + math.cos(math.pi * round_number / (rounds - 1)))

    def reference_key(self, task: Task, round_number: int, client: int) -> int:
        owner = client if self.seed_scope in ("client", "client-run") else NOBODY
        turn = round_number if self.seed_scope in ("client", "round") else EVERY_ROUND
        return derive_key(task.seed, "reference-mask", turn, owner)

    def uniforms_key(self, exchange: BitsExchange, round_number: int, client: int) -> int | None:
        return self.reference_key(exchange.task, round_number, client) if self.coupling == "shared" else None

    def say(self, exchange: BitsExchange, view: Thresholds, moved: Moved, turn: Turn) -> tuple[Bits, dict[str, float]]:
        task, where = exchange.task, (turn.round_number, turn.client)
        reference_key = self.reference_key(task, *where)
        own_key = reference_key if self.coupling == "shared" else derive_key(task.seed, "client-mask", *where)
        flips = sample_bits(moved.thresholds, own_key) ^ sample_bits(view, reference_key)
        kept = self._most_important(flips, moved, task, turn)
        observations = {
            "flips": count_ones(flips),
            "flips_kept": count_ones(kept),
            "moved": mean_distance(moved.thresholds, view),
        }
        return kept, observations

    def _most_important(self, flips: Bits, moved: Moved, task: Task, turn: Turn) -> Bits:
        """The share kappa of the flips; ties go to the lower index, so that every machine keeps the same ones."""
        size = moved.thresholds.size
        positions = positions_of_bits(flips, size)
        keep = math.ceil(self.share(turn.round_number, task.rounds) * len(positions))
        if keep == len(positions):
            return flips
        if self.order == "kl":
            before, after = moved.scores_at(positions.astype(np.int64))
            rank = -bernoulli_divergence(after, before).numpy()
        else:
            rank = uniforms(derive_key(task.seed, "random-order", turn.round_number, turn.client), 0, len(positions))
        chosen = np.sort(np.argsort(rank, kind="stable")[:keep])
        return bits_of_positions(positions[chosen], size)

    def mask(self, exchange: BitsExchange, view: Thresholds, payload: Bits, where: tuple[int, int]) -> Bits:
        key = self.reference_key(exchange.task, *where)
        if self.seed_scope in ("round", "run"):
            mask: Bits = exchange.drawn(view, key) ^ payload
            return mask
        mask = sample_bits(view, key)
        mask ^= payload
        return mask


def mean_distance(one: Thresholds, two: Thresholds) -> float:
    """Mean change of the probabilities. Integers, so that the order of summation does not matter."""
    total = sum(int(np.abs(one[part].astype(np.int64) - two[part]).sum()) for part in blocks(one.size))
    return total / max(1, one.size) / FULL


@dataclass(frozen=True)
class DeltaMaskParameters:
    map: MapChoice = MapChoice(MaskMap())
    local: Local = Local(learning_rate=0.1)
    up: FlipsUp = FlipsUp()
    down: BitsDown = BitsDown()
    aggregate: BitsAggregate = BitsAggregate()
    implied = staticmethod(follows_from_codec)


class DeltaMask(Method[DeltaMaskParameters]):
    name = "deltamask"
    title = "DeltaMask: stochastic masks, only the flips are sent"
    paper = "000"
    citation = "Tsouvalas et al., Federated Fine-Tuning of Vision Foundation Models via Probabilistic Masking, 2023"
    sends_up = "positions of flipped mask bits, exactly coded (paper: binary fuse filter + DEFLATE)"
    sends_down = "mask probabilities, as entropy-coded counts (paper: float32)"
    Parameters = DeltaMaskParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"codec": "bfuse", "seed_scope": "round", "down_codec": "dense", "evaluation": "sampled"},
    }

    def __init__(self, parameters: DeltaMaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.map = parameters.map.map.bind(task)
        self.trainer = Trainer(task, parameters.local, self.map)
        self.exchange = bits_or_vectors(task, parameters, self.map)
