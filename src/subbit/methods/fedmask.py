"""FedMask: every client learns its own sparse mask on frozen random weights; masks are aggregated where they overlap.

Li, Sun, Zeng, Zhang, Li, Chen: "FedMask: Joint Computation and Communication-Efficient Personalized Federated Learning
via Heterogeneous Masking", SenSys 2021. (Paper 004.)

    down     for each element: one, zero, or open (`subbit.aggregate.overlap`)
    first    the client trains the scores of a mask of ones for one epoch and keeps the share `keep_rate` of the last
             layers where |w0| times the change of s is largest: its structure, which never changes
    client   own bits <- bits of the broadcast where they are decided;  s = +c for a one, -c for a zero
             every step descends on L(w0 * [s >= 0]) + lasso * R(s), inside the structure (`subbit.models.hard_mask`,
             `subbit.models.structure`); own bits <- [s >= 0]
    up       the bits inside the structure (or one per weight); the structure itself, once
    server   counts, for each element, this round's clients that hold it and the ones among their bits

A client that was not sampled for some rounds merges when it is sampled again. Its network is w0 * (its bits). The only
common network is the one a new client starts from, with ones where the broadcast is open.

Only weights are masked. Selected biases and norms, and by default the output gate of an LSTM, are trained directly and
stay with the client (`real_values`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from subbit.codecs.codec import Bits
from subbit.codecs.packed import pack_bits
from subbit.core.devices import host, moved
from subbit.data.examples import Data
from subbit.exchange.exchange import Update
from subbit.local.backward import refuse_pieces
from subbit.local.training import Hooks, train_locally
from subbit.methods.fedmask_exchange import OverlapExchange, View
from subbit.methods.fedmask_network import Booleans, MaskedNetwork
from subbit.methods.fedmask_parameters import FedMaskParameters
from subbit.methods.method import Method
from subbit.models.structure import group_lasso
from subbit.models.task import Task, Turn
from subbit.privacy.mechanism import GaussianMechanism


class FedMask(Method[FedMaskParameters]):
    name = "fedmask"
    title = "FedMask: personal sparse masks on frozen random weights"
    paper = "004"
    citation = "Li et al., FedMask: Joint Computation and Communication-Efficient Personalized FL, SenSys 2021"
    sends_up = "mask bits inside the client's structure (paper: of all weights); the structure once"
    sends_down = "majority of the masks where they overlap: one, zero or open, entropy-coded"
    Parameters = FedMaskParameters
    presets: ClassVar = {
        "default": {},
        "paper": {"weights": "kaiming", "communication": "dense", "codec": "packed"},
    }
    personal = True
    mechanism: GaussianMechanism | None = None
    map: MaskedNetwork
    exchange: OverlapExchange

    def __init__(self, parameters: FedMaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        refuse_pieces(task, parameters.local.micro_batch)
        self.map = MaskedNetwork(parameters, task)
        self.exchange = OverlapExchange(task, parameters, self.map)

    def train(self, view: View, data: Data, turn: Turn) -> Update:
        start = self.exchange.trained(view, turn.memory)
        if "mask" not in turn.memory and self.map.structures.units:
            turn.memory["structure"] = self._prune(data, turn.client)
        trained, loss = self._train(start, self.map.structure(turn.memory.get("structure")), data, turn)
        payloads, observed = self.exchange.say(view, trained, turn)
        return Update(payloads, len(data), {"loss": loss, **observed})

    def _prune(self, data: Data, client: int) -> Bits:
        """Train the mask of all ones without a structure, then choose the client's structure from the scores.

        It depends on nothing that other clients sent, so it is the same whenever a client prunes: as if all had pruned
        before the first round, as in the paper's algorithm, without a round for that.
        """
        pruning, structures, everything = self.parameters.pruning, self.map.structures, self.map.network
        settings, first = replace(self.parameters.local, epochs=pruning.prune_epochs), Turn(0, client, {})
        start = torch.from_numpy(self.map.start())
        after = start.clone()
        with moved(after, self.task.flat.device) as there:
            train_locally(self.task, settings, everything, there, data, first, Hooks(constrain=everything.clamp_))
        merit = (after - start).abs() if pruning.saliency == "change" else torch.sigmoid(after)
        magnitude = np.abs(host(self.map.frozen)[structures.places])
        return pack_bits(structures.prune(magnitude * merit.numpy()[structures.places], magnitude))

    def _train(self, start: Tensor, structure: Booleans, data: Data, turn: Turn) -> tuple[Tensor, float]:
        """Returns the trained vector and the mean loss of the last epoch."""
        local, network, trained = self.parameters.local, self.map.inside(structure), start.clone()

        def add_lasso(trained: Tensor, gradient: Tensor) -> None:
            _, slope = group_lasso(trained, network.alive, self.map.layers, local.lasso_scaled)
            gradient.add_(slope, alpha=local.lasso)

        hooks = Hooks(constrain=network.clamp_, adjust=add_lasso if local.lasso else None)
        with moved(trained, self.task.flat.device) as there:
            loss = train_locally(self.task, local, network, there, data, turn, hooks)
        return trained, loss

    def personalise(self, view: View, data: Data, turn: Turn) -> None:
        memory = turn.memory
        mask, real, units = self.exchange.own_mask(memory), memory.get("real"), memory.get("structure")
        if self.parameters.map.evaluation == "merged" or "mask" not in memory:
            if units is None and self.map.structures.units:
                units = self._prune(data, turn.client)
            mask = view.overlap.merge(mask) & self.map.structure(units)
            real = view.real if self.exchange.sends_real else real
        self.map.write_mask(mask, real)
