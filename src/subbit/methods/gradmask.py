"""Gradient masks: fine-tuning in which a client may change only a share of the weights.

Parpikhodjaev, Kuchkorov, Karimov, Kadirov: "Sparse Updates as a Regularizer in Federated Learning: An Experimental
Study on Non-IID Data". (Paper 001.)

    down   w
    client a mask M of exactly k = ceil(active_fraction d) places: drawn, of smallest or largest |w|, or of smallest or
           largest sensitivity (diagonal Fisher information, `subbit.methods.sensitivity`);
           w_k = w after local training by SGD with momentum that leaves all other places alone (`SparseSGDM`)
    up     w_k - w where M is one
    server w <- w + sum_k n_k (w_k - w) / sum_k n_k, a frozen place counting as a change of zero

What goes up depends on who can know the mask. A drawn one follows from a key, one of magnitudes from the broadcast:
both sides have it, and the values alone are sent. With a new drawn mask in every epoch those of all epochs together are
sent. A client's own sensitivities are its secret, so the places go up with the values. Own masks that change from epoch
to epoch have a union of a size that nobody knows beforehand: then the whole change goes up.

`mask_scope=global` with sensitivities is one mask for everybody and for the whole run: in the first
`calibration_rounds` rounds nothing is trained, clients send their sensitivities (32 bits each), and the server chooses
by their mean; from then on the mask, entropy-coded, is part of the broadcast.

The paper's result is confounded with its step size and its split: `docs/gradient-masks.md`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from subbit.codecs import Shared, make_codec
from subbit.codecs.bits import pack_bits, unpack_bits
from subbit.codecs.sampler import uniforms
from subbit.config.values import require
from subbit.data.examples import Examples
from subbit.exchange.honest import check_not_negative
from subbit.methods.base import Part, Payloads, State, Task, Turn, Update, as_float32
from subbit.methods.gradmask_parameters import GradMaskParameters
from subbit.methods.local import train_locally
from subbit.methods.sensitivity import Kept, keep_exactly, places_of_share
from subbit.methods.weights import WeightMethod
from subbit.models.reparametrisation import Identity
from subbit.models.sparse_sgd import SparseSGDM
from subbit.randomness import NOBODY, derive_key


class GradMask(WeightMethod[GradMaskParameters]):
    name = "gradmask"
    title = "Gradient masks: clients change only a share of the weights"
    paper = "001"
    citation = "Parpikhodjaev et al., Sparse Updates as a Regularizer in Federated Learning"
    sends_up = (
        "changes of the active weights, float32 or compressed, with their places where only the client knows them"
    )
    sends_down = "trained weights, float32; a global mask of sensitivities with them"
    Parameters = GradMaskParameters
    presets: ClassVar = {
        "default": {},
        "paper": {
            "learning_rate": 0.001,
            "schedule": "cosine",
            "epochs": 4,
            "batch_size": 32,
            "mask_every": "epoch",
            "mask_momentum": "none",
            "calibration_examples": None,
            "send": "all",
            "weighting": "clients",
        },
    }

    def __init__(self, parameters: GradMaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.count = places_of_share(self.size, parameters.active_fraction)
        self.calibration = parameters.calibration()
        mixed = task.flat.batchnorm == "batch" and any(
            isinstance(layer, _NormBase) for layer in task.flat.module.modules()
        )
        require(
            not (mixed and parameters.by_sensitivity and parameters.fisher == "per-sample"),
            "batchnorm=batch mixes the examples of a batch, so that none has a gradient of its own: use fisher=batch, "
            "or batchnorm=frozen",
        )
        require(
            not parameters.asks_everybody or task.rounds > parameters.calibration_rounds,
            f"rounds={task.rounds}: the mask takes {parameters.calibration_rounds} of them, and none is left to train",
        )

    def calibrating(self, round_number: int) -> bool:
        return bool(self.parameters.asks_everybody) and round_number < self.parameters.calibration_rounds

    # What travels.

    def known_parts(self) -> tuple[Part, ...]:
        mask = (Part("mask", make_codec("mask"), self.size),) if self.parameters.asks_everybody else ()
        return (*super().known_parts(), *mask)

    def up_parts(self) -> tuple[Part, ...]:
        weights, *others = super().up_parts()
        if self.parameters.tells_places:
            # A frozen place changed by zero, so the k largest changes are those of the active places: nothing is lost.
            weights = Part("weights", make_codec("topk", fraction=self.parameters.active_fraction), self.size)
        if self.parameters.asks_everybody:
            others.append(Part("sensitivity", make_codec("dense"), self.size))
        return (weights, *others)

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        known = super().shared(part, view, round_number, client)
        if view is not None and part.name == "weights" and not self.parameters.tells_places:
            return replace(known, size=int(np.count_nonzero(self.sent_places(view, round_number, client))))
        if part.name == "sensitivity" and not self.calibrating(round_number):
            return replace(known, size=0)
        return known

    def sent_places(self, view: Payloads, round_number: int, client: int) -> Kept:
        """The places whose changes go up in order. Both sides work it out for themselves."""
        parameters = self.parameters
        if self.calibrating(round_number):
            return np.zeros(self.size, dtype=np.bool_)
        if parameters.sends_everything:
            return np.ones(self.size, dtype=np.bool_)
        if parameters.asks_everybody:
            return self._opened_mask(view)
        if parameters.mask == "random":
            epochs = parameters.epochs if parameters.mask_every == "epoch" else 1
            drawn = [self._drawn(round_number, client, epoch) for epoch in range(epochs)]
            together: Kept = np.logical_or.reduce(drawn)
            return together
        return keep_exactly(np.abs(view["weights"]), self.count, parameters.takes_largest)

    def _opened_mask(self, view: Payloads) -> Kept:
        return unpack_bits(view["mask"], self.size)

    def _drawn(self, round_number: int, client: int, epoch: int) -> Kept:
        owner = client if self.parameters.mask_scope == "client" else NOBODY
        key = derive_key(self.task.seed, "gradient-mask", round_number, owner, epoch)
        return keep_exactly(uniforms(key, 0, self.size), self.count, largest=False)

    # The client half.

    def train(self, view: Payloads, data: Examples, turn: Turn) -> Update:
        self.write(view)
        weights, statistics = view["weights"], view.get("statistics")
        trained, observed = torch.from_numpy(weights.copy()), {}
        sensitivity = np.zeros(0, dtype=np.float32)
        if self.calibrating(turn.round_number):
            key = derive_key(self.task.seed, "sensitivity", turn.round_number, turn.client)
            scores = self.calibration.measure(self.task.flat, trained, self._opened_mask(view), data, key)
            sensitivity = as_float32(scores)
        else:
            observed["loss"] = self._train_under_masks(trained, view, data, turn)
        change = as_float32(trained.numpy() - weights)
        observed["changed"] = np.count_nonzero(change) / self.size
        if not self.parameters.tells_places:
            change = change[self.sent_places(view, turn.round_number, turn.client)]
        payloads: Payloads = {"weights": change, "sensitivity": sensitivity}
        if self.task.flat.statistics is not None:
            payloads["statistics"] = as_float32(self.task.flat.statistics.numpy() - statistics)
        return Update({part.name: payloads[part.name] for part in self.up_parts()}, len(data), observed)

    def _train_under_masks(self, trained: Tensor, view: Payloads, data: Examples, turn: Turn) -> float:
        parameters = self.parameters
        optimizer = SparseSGDM(
            trained,
            self._frozen(trained, view, data, turn, epoch=0),
            parameters.learning_rate,
            parameters.momentum,
            parameters.weight_decay,
            parameters.mask_momentum,
        )

        def change_mask(epoch: int, loss: float) -> bool:
            if parameters.mask_every == "epoch" and epoch + 1 < parameters.epochs:
                optimizer.freeze(self._frozen(trained, view, data, turn, epoch + 1))
                self.task.flat.training_mode()
            return False

        identity = Identity(self.size)
        return train_locally(
            self.task, parameters, identity, trained, data, turn, finished=change_mask, optimizer=optimizer
        )

    def _frozen(self, weights: Tensor, view: Payloads, data: Examples, turn: Turn, epoch: int) -> Tensor:
        """Where the weights, as they are at the start of that epoch, must not change."""
        parameters, where = self.parameters, (turn.round_number, turn.client)
        if parameters.asks_everybody:
            active = self._opened_mask(view)
        elif parameters.mask == "random":
            active = self._drawn(*where, epoch)
        elif parameters.by_sensitivity:
            key = derive_key(self.task.seed, "sensitivity", *where, epoch)
            share, largest = parameters.active_fraction, parameters.takes_largest
            active = self.calibration.choose(self.task.flat, weights, data, share, largest, key)
        else:
            active = keep_exactly(weights.abs().numpy(), self.count, parameters.takes_largest)
        return torch.from_numpy(~active)

    # The server half: that of all weights, on whole changes.

    def start(self) -> State:
        state = super().start()
        if self.parameters.asks_everybody:
            state["mask"] = pack_bits(np.ones(self.size, dtype=np.bool_))
            state["sensitivity"] = np.zeros(self.size, dtype=np.float32)
        return state

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        super().examine(view, payloads, examples, client)
        if "sensitivity" in payloads:
            check_not_negative(payloads["sensitivity"], "sensitivity")

    def farthest(self, part: Part, view: Any) -> float:
        # Squares of gradients can be anything; all that is made of them is an order of places.
        return float(np.finfo(np.float32).max) if part.name == "sensitivity" else super().farthest(part, view)

    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        whole = dict(payloads)
        if not self.parameters.tells_places:
            whole["weights"] = np.zeros(self.size, dtype=np.float32)
            whole["weights"][self.sent_places(view, round_number, client)] = payloads["weights"]
        if self.parameters.asks_everybody and not self.calibrating(round_number):
            whole["sensitivity"] = np.zeros(self.size, dtype=np.float32)
        weight = examples if self.parameters.weighting == "examples" else min(examples, 1)
        super().accumulate(accumulator, view, whole, weight, round_number, client)

    def step(self, state: State, accumulator: Any, round_number: int) -> State:
        after = super().step(state, accumulator, round_number)
        if not self.parameters.asks_everybody:
            return after
        scores, mask = np.asarray(after["sensitivity"]), np.asarray(state["mask"])
        after["mask"], after["sensitivity"] = mask, np.zeros_like(scores)
        if self.calibrating(round_number):
            left = self.calibration.count_after(self.size, self.parameters.active_fraction, round_number + 1)
            kept = keep_exactly(scores, left, self.parameters.takes_largest, unpack_bits(mask, self.size))
            after["mask"] = pack_bits(kept)
        return after
