"""A mask by a threshold: nothing is drawn, in training or after it.

What paper 000 compares with under the name FedMask: the thresholded mask of Li, Sun, Zeng, Zhang, Li, Chen, "FedMask:
Joint Computation and Communication-Efficient Personalized Federated Learning via Heterogeneous Masking", SenSys 2021,
made global: one mask for everybody, and none of that paper's pruning and personal structures.

    down   theta, the share of clients that kept each weight
    client s = logit(theta); every step descends on L(w0 * [sigmoid(s) >= tau]), straight through to sigmoid(s)
    up     m_k = [sigmoid(s) >= tau], one bit per weight or less
    server theta = mean of m_k, kept off 0 and 1;  the network is w0 * [theta >= tau]

With tau below every theta (0 above all) the mask is all ones and stays so until training pushes a theta under it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from subbit.codecs.base import Bits
from subbit.codecs.bits import pack_bits, unpack_bits
from subbit.codecs.sampler import Thresholds
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.methods.base import State, Task, Turn, Update
from subbit.methods.fedpm import FedPM, FedPMParameters
from subbit.methods.masks import counts_of
from subbit.methods.scores import FULL
from subbit.models.reparametrisation import ThresholdMask


@dataclass(frozen=True)
class ThresholdMaskParameters(FedPMParameters):
    tau: float = 0.5
    """A weight is kept where its theta is at least this."""
    straight_through: Literal["identity"] = "identity"
    """The factor theta belongs to the code of FedPM, which draws its masks."""
    evaluation: Literal["expected", "sampled", "thresholded"] = "thresholded"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.tau < 1, f"tau={self.tau}: needs a probability from 0 up to, not including, 1")


class ThresholdMasks(FedPM):
    """FedPM with a threshold in the place of the draw."""

    name = "threshold-mask"
    title = "Threshold mask: deterministic masks, sent whole (FedMask in paper 000)"
    paper = "000 (baseline)"
    citation = "Li et al., FedMask, SenSys 2021, in the global form of Tsouvalas et al., 2023"
    sends_up = "one thresholded mask, entropy-coded (paper: packed, one bit per parameter)"
    Parameters = ThresholdMaskParameters
    presets: ClassVar = {"default": {}, "paper": {"codec": "packed", "theta": "float32"}}

    def __init__(self, parameters: ThresholdMaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.reparametrisation = ThresholdMask(self.frozen, parameters.tau)
        self.cut = math.ceil(parameters.tau * FULL)

    def mask(self, thresholds: Thresholds) -> Bits:
        """[theta >= tau], decided by integers: theta is threshold / 2^32."""
        return pack_bits(thresholds >= self.cut)

    def train(self, view: Thresholds, data: Examples, turn: Turn) -> Update:
        trained, loss, _, _ = self.train_scores(view, data, turn)
        return Update({"mask": self.mask(trained)}, len(data), {"loss": loss})

    def write_network(self, state: State, network: str, key: int) -> None:
        if network != "thresholded":
            super().write_network(state, network, key)
            return
        kept = unpack_bits(self.mask(self.thresholds(counts_of(state))), self.size).astype(np.float32)
        torch.mul(self.frozen, torch.from_numpy(kept), out=self.task.flat.weights)
