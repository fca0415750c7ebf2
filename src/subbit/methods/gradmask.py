"""Gradient masks: fine-tuning in which a client may change only a share of the weights.

Parpikhodjaev, Kuchkorov, Karimov, Kadirov: "Sparse Updates as a Regularizer in Federated Learning: An Experimental
Study on Non-IID Data". (Paper 001.)

    down   w
    client a mask M of exactly k = ceil(active_fraction d) places: drawn, of smallest or largest |w|, or of smallest or
           largest sensitivity (diagonal Fisher information, `subbit.methods.sensitivity`);
           w_k = w after local training by SGD with momentum that leaves all other places unchanged (`SparseSGDM`)
    up     w_k - w where M is one
    server w <- w + sum_k n_k (w_k - w) / sum_k n_k, a frozen place counting as a change of zero

The upload depends on who knows the mask. A random mask follows from a key, a magnitude mask from the broadcast: both
sides know it, and only the values are sent. With a new random mask in every epoch the values of the union are sent. A
client's sensitivities are known only to itself, so the indices are uploaded with the values. If a mask that depends on
local training changes every epoch, the size of their union is not known in advance, and the whole change is uploaded.

`mask_scope=global` with sensitivities is one mask for all clients and the whole run. In the first `calibration_rounds`
rounds nothing is trained: clients send their sensitivities (32 bits each), and the server chooses by their mean. From
then on the mask, entropy-coded, is part of the broadcast.

The paper's result is confounded with its step size and its split, see `docs/gradient-masks.md`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from subbit.codecs import Shared, Vector, make_codec
from subbit.codecs.packed import pack_bits, unpack_bits
from subbit.codecs.topk import TopK
from subbit.core.devices import host, moved
from subbit.core.randomness import NOBODY, derive_key
from subbit.core.values import require
from subbit.data.examples import Data
from subbit.exchange.exchange import Part, Payloads, State, Update, as_float32
from subbit.exchange.honest import check_not_negative, check_within
from subbit.exchange.vectors import VectorExchange, VectorUp
from subbit.local.trainer import Trainer
from subbit.local.training import Hooks
from subbit.maps.weights import WeightMap
from subbit.methods.gradmask_masks import Kept, Scene
from subbit.methods.gradmask_parameters import GradMaskParameters
from subbit.methods.method import Method
from subbit.methods.sensitivity import LeastSensitive
from subbit.models.sparse_sgd import SparseSGDM
from subbit.models.task import Task, Turn


class GradMask(Method[GradMaskParameters]):
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
        "paper": {"learning_rate": 0.001, "schedule": "cosine", "epochs": 4, "batch_size": 32, "send": "all"}
        | {"mask_every": "epoch", "mask_momentum": "none", "calibration_examples": None, "weighting": "clients"},
    }
    exchange: VectorExchange

    def __init__(self, parameters: GradMaskParameters, task: Task) -> None:
        super().__init__(parameters, task)
        self.masking, local, mask = parameters.mask, parameters.local, parameters.mask.mask
        self.map = WeightMap().bind(task)
        self.trainer = Trainer(task, local, self.map)
        self.exchange = VectorExchange(task, parameters, self.map)
        self.calibration: LeastSensitive | None = None
        """How sensitivities are measured, if they are averaged into one global mask; otherwise none."""
        if isinstance(mask, LeastSensitive):
            mixes = any(isinstance(layer, _NormBase) for layer in task.flat.module.modules())
            require(
                mask.fisher == "batch" or task.flat.batchnorm != "batch" or not mixes,
                "batchnorm=batch mixes the examples of a batch, so that none has a gradient of its own: use "
                "fisher=batch, or batchnorm=frozen",
            )
            if self.masking.mask_scope == "global":
                self.calibration = mask
                self.exchange.also_down = (Part("mask", make_codec("mask"), self.size),)
                self.exchange.also_up = (Part("sensitivity", make_codec("dense"), self.size),)
                taken = mask.calibration_rounds
                require(
                    task.rounds > taken,
                    f"rounds={task.rounds}: the mask takes {taken} of them, and none is left to train",
                )
        if self.masking.tells_places:
            # Frozen places change by zero, so the k largest changes are those of the active places: nothing is lost.
            self.exchange.up = VectorUp(TopK(self.masking.active_fraction), error_feedback=False)

    def calibrating(self, round_number: int) -> bool:
        return self.calibration is not None and round_number < self.calibration.calibration_rounds

    # Payloads.

    def shared(self, part: Part, view: Any, round_number: int, client: int) -> Shared:
        known = self.exchange.shared(part, view, round_number, client)
        if view is not None and part.name == "weights" and not self.masking.tells_places:
            return replace(known, size=int(np.count_nonzero(self.sent_places(view, round_number, client))))
        if part.name == "sensitivity" and not self.calibrating(round_number):
            return replace(known, size=0)
        return known

    def sent_places(self, view: Payloads, round_number: int, client: int) -> Kept:
        """The places whose changes are uploaded, in order. Both sides compute it independently."""
        if self.calibrating(round_number):
            return np.zeros(self.size, dtype=np.bool_)
        if self.masking.sends_everything:
            return np.ones(self.size, dtype=np.bool_)
        epochs = self.parameters.local.epochs if self.masking.mask_every == "epoch" else 1
        masks = [self._active(view["weights"], view, None, (round_number, client, epoch)) for epoch in range(epochs)]
        together: Kept = np.logical_or.reduce(masks)
        return together

    def _active(self, weights: Vector, view: Payloads, data: Data | None, where: tuple[int, int, int]) -> Kept:
        """The places that may change (`where`: round, client, epoch), given the weights at the start of the epoch."""
        if self.calibration is not None:
            return unpack_bits(view["mask"], self.size)
        round_number, client, epoch = where
        owner = client if self.masking.mask_scope == "client" else NOBODY
        return self.masking.mask.choose(self._scene(weights, data, (round_number, owner, epoch)))

    def _scene(self, weights: Vector, data: Data | None, where: tuple[int, ...]) -> Scene:
        purpose = "sensitivity" if self.masking.mask.follows == "examples" else "gradient-mask"
        key = derive_key(self.task.seed, purpose, *where)
        share = self.masking.active_fraction
        return Scene(self.task.flat, weights, share, key, self.parameters.local.batch_size, data, self.task.objective)

    # Client side.

    def train(self, view: Payloads, data: Data, turn: Turn) -> Update:
        trained, observed, measured = self.exchange.trained(view), {}, {}
        where = (turn.round_number, turn.client)
        if self.calibration is not None:
            measured["sensitivity"] = np.zeros(0, dtype=np.float32)
        if self.calibration is not None and self.calibrating(turn.round_number):
            scene, kept = self._scene(trained.numpy(), data, where), unpack_bits(view["mask"], self.size)
            measured["sensitivity"] = as_float32(self.calibration.measure(scene, kept))
        else:
            observed = self._train_under_masks(trained, view, data, turn)
        payloads, _ = self.exchange.say(view, trained, turn)
        observed["changed"] = np.count_nonzero(payloads["weights"]) / self.size
        if not self.masking.tells_places:
            payloads["weights"] = payloads["weights"][self.sent_places(view, *where)]
        return Update({**payloads, **measured}, len(data), observed)

    def _train_under_masks(self, trained: Tensor, view: Payloads, data: Data, turn: Turn) -> dict[str, float]:
        local, optimizer = self.parameters.local, self.parameters.local.optimizer
        with moved(trained, self.task.flat.device) as there:
            sparse = SparseSGDM(
                there,
                self._frozen(there, view, data, turn, epoch=0),
                local.rate,
                optimizer.momentum,
                optimizer.weight_decay,
                self.masking.mask_momentum,
            )

            def change_mask(epoch: int, loss: float) -> bool:
                if self.masking.mask_every == "epoch" and epoch + 1 < local.epochs:
                    sparse.freeze(self._frozen(there, view, data, turn, epoch + 1))
                    self.task.flat.training_mode()
                return False

            return self.trainer.train(there, data, turn, Hooks(finished=change_mask, optimizer=sparse))

    def _frozen(self, weights: Tensor, view: Payloads, data: Data, turn: Turn, epoch: int) -> Tensor:
        """Where the weights must not change, given their values at the start of the epoch."""
        where = (turn.round_number, turn.client, epoch)
        return self.task.flat.place(~self._active(host(weights), view, data, where))

    # Server side: aggregates dense changes, as for all weights.

    def start(self) -> State:
        state = self.exchange.start()
        if self.calibration is not None:
            state["mask"] = pack_bits(np.ones(self.size, dtype=np.bool_))
            state["sensitivity"] = np.zeros(self.size, dtype=np.float32)
        return state

    def examine(self, view: Any, payloads: Payloads, examples: int, client: int) -> None:
        self.exchange.examine(view, {**payloads, "sensitivity": None}, examples, client)
        if "sensitivity" in payloads:
            # Squared gradients have no natural bound; only their order is used.
            check_within(payloads["sensitivity"], float(np.finfo(np.float32).max), "sensitivity")
            check_not_negative(payloads["sensitivity"], "sensitivity")

    def accumulate(
        self, accumulator: Any, view: Any, payloads: Payloads, examples: int, round_number: int, client: int
    ) -> None:
        whole = dict(payloads)
        if not self.masking.tells_places:
            whole["weights"] = np.zeros(self.size, dtype=np.float32)
            whole["weights"][self.sent_places(view, round_number, client)] = payloads["weights"]
        if self.calibration is not None and not self.calibrating(round_number):
            whole["sensitivity"] = np.zeros(self.size, dtype=np.float32)
        self.exchange.accumulate(accumulator, view, whole, examples, round_number, client)

    def step(self, state: State, accumulator: Any, round_number: int) -> State:
        after = self.exchange.step(state, accumulator, round_number)
        if self.calibration is None:
            return after
        scores, mask = np.asarray(after["sensitivity"]), np.asarray(state["mask"])
        after["mask"], after["sensitivity"] = mask, np.zeros_like(scores)
        if self.calibrating(round_number):
            kept, share = unpack_bits(mask, self.size), self.masking.active_fraction
            after["mask"] = pack_bits(self.calibration.narrowed(kept, scores, share, round_number + 1))
        return after
