"""Federated LoRA as a plain loop of torch and peft, without anything of subbit: what a run is compared with.

Everything travels in float32 and is averaged by the number of rows. `federated` takes the same number of steps as a run
with the same numbers: every client its rows once per turn, with a new Adam. `central` takes as many steps, with one
Adam, on the rows of all clients together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Rows = tuple[Tensor, Tensor]
"""Tokens and their attention, int64 [n, length]."""


@dataclass(frozen=True)
class Plan:
    rounds: int
    participants: int
    batch_size: int
    learning_rate: float
    rank: int
    alpha: int
    targets: tuple[str, ...]
    cosine: bool = True
    """The learning rate falls from round to round."""
    seed: int = 0

    def rate(self, progress: float) -> float:
        return self.learning_rate * ((1 + math.cos(math.pi * progress)) / 2 if self.cosine else 1.0)


def with_lora(model: Any, plan: Plan) -> Any:
    import peft

    torch.manual_seed(plan.seed)  # peft initialises from the global generator.
    config = peft.LoraConfig(r=plan.rank, lora_alpha=plan.alpha, target_modules=list(plan.targets))
    return peft.get_peft_model(model, config)


def loss(model: Any, tokens: Tensor, attention: Tensor) -> Tensor:
    labels = tokens.masked_fill(attention == 0, -100)
    found: Tensor = model(input_ids=tokens, attention_mask=attention, labels=labels).loss
    return found


@torch.no_grad()
def perplexity(model: Any, rows: Rows) -> float:
    """Per token, over all rows."""
    model.eval()
    total, count = 0.0, 0
    for tokens, attention in zip(rows[0].split(16), rows[1].split(16), strict=True):
        predicted = int(attention[:, 1:].sum())
        if predicted:
            total += loss(model, tokens, attention).item() * predicted
            count += predicted
    return math.exp(total / count)


def mean_perplexity(model: Any, tests: Sequence[Rows]) -> float:
    return float(np.mean([perplexity(model, rows) for rows in tests]))


def federated(model: Any, clients: Sequence[Rows], plan: Plan) -> None:
    """`model` has LoRA. Its trained parameters are changed in place."""
    trained = [value for value in model.parameters() if value.requires_grad]
    generator = np.random.default_rng(plan.seed)
    for number in range(plan.rounds):
        start = [value.detach().clone() for value in trained]
        total, examples = [torch.zeros_like(value) for value in start], 0
        for client in generator.choice(len(clients), plan.participants, replace=False):
            rows = clients[client]
            with torch.no_grad():
                for value, first in zip(trained, start, strict=True):
                    value.copy_(first)
            order = torch.from_numpy(generator.permutation(len(rows[0])))
            _steps(model, rows, order, plan.batch_size, torch.optim.Adam(trained, plan.rate(number / plan.rounds)))
            for into, value in zip(total, trained, strict=True):
                into += len(rows[0]) * value.detach()
            examples += len(rows[0])
        with torch.no_grad():
            for value, into in zip(trained, total, strict=True):
                value.copy_(into / examples)


def central(model: Any, clients: Sequence[Rows], plan: Plan) -> None:
    trained = [value for value in model.parameters() if value.requires_grad]
    tokens, attention = (torch.cat([rows[part] for rows in clients]) for part in (0, 1))
    mean_steps = float(np.mean([math.ceil(len(rows[0]) / plan.batch_size) for rows in clients]))
    steps = round(plan.rounds * plan.participants * mean_steps)
    generator, optimiser = np.random.default_rng(plan.seed), torch.optim.Adam(trained, plan.learning_rate)
    order = np.concatenate(
        [generator.permutation(len(tokens)) for _ in range(1 + steps * plan.batch_size // len(tokens))]
    )
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = plan.rate(step / steps)
        chosen = torch.from_numpy(order[step * plan.batch_size : (step + 1) * plan.batch_size])
        _steps(model, (tokens, attention), chosen, plan.batch_size, optimiser)


def _steps(model: Any, rows: Rows, order: Tensor, batch_size: int, optimiser: torch.optim.Optimizer) -> None:
    model.train()
    for chosen in order.split(batch_size):
        optimiser.zero_grad()
        loss(model, rows[0][chosen], rows[1][chosen]).backward()
        optimiser.step()
