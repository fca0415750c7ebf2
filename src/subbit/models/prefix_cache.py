"""Keeps what the frozen prefix of a network computes for each example, so that it is computed once.

Matrix products may round differently in batches of another size, so the values kept for an example, which were computed
in a batch of `FILL` examples, need not be those of the whole network in a batch of another size. An exact cache
therefore compares them when a batch size is first used, until `ENOUGH` values were the same. Where one differs, batches
of that size run the whole network. The rounding depends on the shapes, not on the values, and a difference in one layer
is soon one in most values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from subbit.data.examples import Examples
from subbit.models.cache_store import CacheStore
from subbit.models.prefix import Prefix
from subbit.objectives.objective import Objective

FILL = 64
ENOUGH = 10_000
DIFFERENT = -1


class PrefixCache:
    """Without a prefix, and for examples without a row number, `outputs` runs the whole module."""

    def __init__(self, module: nn.Module, objective: Objective) -> None:
        self.module, self.objective = module, objective
        self._prefix: Prefix | None = None
        self._store: CacheStore | None = None
        self._compared: dict[tuple[bool, bool, int], int] = {}
        """By mode of the module and of autograd, and batch size: how many kept values were those that the module
        computes, or `DIFFERENT`."""

    def open(self, prefix: Prefix, store: CacheStore) -> None:
        self._prefix, self._store, self._compared = prefix, store, {}
        self._device = next(self.module.parameters()).device

    @property
    def active(self) -> bool:
        """Whether anything is kept."""
        return self._prefix is not None

    def prepare(self, data: Examples) -> None:
        """Compute what is not yet kept for these examples."""
        if self._prefix is None or self._store is None or data.rows is None:
            return
        missing = torch.nonzero(self._store.filled.index_select(0, data.rows) == 0).flatten()
        for chosen in torch.split(missing, FILL):
            # Always in batches of one size, filled up with repetitions.
            padded = chosen.repeat(-(-FILL // max(1, len(chosen))))[:FILL]
            if len(padded):
                inputs = data.tensor
                values = self._prefix.capture(inputs.index_select(0, padded.to(inputs.device)).to(self._device))
                self._store.keep(data.rows.index_select(0, chosen), values[: len(chosen)].cpu())

    def outputs(self, batch: Examples) -> Any:
        """The module's outputs for the batch."""
        if self._prefix is None or self._store is None or batch.rows is None or not len(batch):
            return self._whole(batch)
        self.prepare(batch)
        values = self._store.values.index_select(0, batch.rows).to(self._device).float()
        if self._store.exact and not self._same(self._prefix, batch, values):
            return self._whole(batch)
        outputs = self._prefix.outputs(batch.tensor, values)
        if any(bool(value.isnan().any()) for value in tree_leaves(outputs) if isinstance(value, Tensor)):
            # Either the network is broken, or it took another way through its layers than when it was watched.
            self._prefix = None
            return self._whole(batch)
        return outputs

    def _same(self, prefix: Prefix, batch: Examples, kept: Tensor) -> bool:
        """Whether the kept values are those that the module would compute in this batch."""
        case = (self.module.training, torch.is_grad_enabled(), len(batch))
        compared = self._compared.get(case, 0)
        if DIFFERENT < compared < ENOUGH:
            same = torch.equal(prefix.capture(batch.tensor), kept)
            compared = self._compared[case] = compared + kept.numel() if same else DIFFERENT
        return compared != DIFFERENT

    def _whole(self, batch: Examples) -> Any:
        return self.objective.outputs(self.module, batch)
