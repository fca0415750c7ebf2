"""Clients chosen by their loss: some are drawn and asked, those of highest loss train.

Cho, Wang, Joshi: "Towards Understanding Biased Client Selection in Federated Learning", AISTATS 2022 (power of choice);
paper 001 draws 20 clients and trains 10.

    server  draws `drawn` clients as it would draw participants, and sends them the broadcast
    client  the mean cross entropy of that network on its own training data: one float32 in a frame of its own
    server  the clients of highest loss, among equals the lower number, are sent their orders for the round

A loss is a client's word. So that nobody can talk itself into every round, losses above `loss_cap` count as equal and
are ranked by lot, and who was chosen `MOST_IN_A_ROW` times in a row yields its place the next time that it is asked.

This costs a broadcast for everyone who is asked, and both it and the answers are in the ledger. Who is asked keeps
nothing, so who is chosen is sent the broadcast once more. And it tells the server something about every client that it
asks, which a mean of changes would not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from subbit.codecs import make_codec
from subbit.core.errors import ConfigError, FrameError, PayloadError
from subbit.core.randomness import derive_key
from subbit.data.examples import Examples
from subbit.local.training import TrainingError
from subbit.methods.method import Method, Turn
from subbit.runtime.messages import Frames, channel_of
from subbit.wire.channel import Part, up

BATCH = 128
LOSS = Part("loss", make_codec("dense"), 1)
MOST_IN_A_ROW = 3


def share_of(participation: float, clients: int) -> int:
    """How many clients take part: rounded down as in the papers, at least one. 0.29 of 100 are 29, though the product
    of the two floats is below it."""
    return max(1, math.floor(participation * clients + 1e-9))


def check_selection(method: Method[Any], drawn: int) -> None:
    """Whether this method's clients can tell a loss before they train, and whether there is a choice at all."""
    if not method.personal and not method.broadcasts_network:
        raise ConfigError(
            f"selection=high-loss: a broadcast of {method.name} is not a network whose loss a client could tell; "
            "use a method that trains weights, or selection=uniform"
        )
    if drawn < method.task.participants:
        raise ConfigError(
            f"drawn={drawn}: fewer than the {method.task.participants} clients that train in a round; need as many"
        )


def own_loss(method: Method[Any], view: Any, data: Examples, turn: Turn) -> float:
    """The mean cross entropy of the network as it was broadcast, or of the client's own where methods are personal."""
    if method.personal:
        method.personalise(view, data, turn)
    else:
        method.write_broadcast(view)
    flat, total = method.task.flat, 0.0
    flat.evaluation_mode()
    with torch.no_grad():
        for start in range(0, len(data), BATCH):
            batch = data.select(np.arange(start, min(len(data), start + BATCH)))
            total += float(functional.cross_entropy(flat.module(batch.inputs), batch.labels, reduction="sum"))
    loss = total / len(data)
    if not np.isfinite(loss):
        raise TrainingError(f"the loss of the broadcast network is {loss}")
    return loss


def pack_loss(method: Method[Any], loss: float, turn: Turn) -> bytes:
    payload = np.array([loss], dtype=np.float32)
    return channel_of(method, "main", LOSS).pack(payload, up(turn.round_number, turn.client))


def unpack_loss(method: Method[Any], frames: Frames, round_number: int, client: int) -> float:
    if len(frames) != 1:
        raise FrameError("length", f"the message has {len(frames)} frames, expected one, with a loss")
    payload, _ = channel_of(method, "main", LOSS).unpack(frames[0], up(round_number, client))
    loss = float(payload[0])
    if not loss >= 0:
        raise PayloadError(f"a loss of {loss}: cross entropy is 0 or more", "value")
    return loss


def loss_cap(classes: int) -> float:
    """Five times the loss of guessing: a network that is so wrong is just wrong."""
    return 5 * math.log(max(2, classes))


def of_highest_loss(
    losses: Mapping[int, float],
    count: int,
    chosen: Mapping[int, int] = MappingProxyType({}),
    cap: float = math.inf,
    key: int = 0,
) -> tuple[int, ...]:
    """That many clients, in their own order. `chosen` says how often in a row each was chosen before.

    >>> of_highest_loss({0: 1.0, 3: 2.5, 4: 1.0, 7: 0.5}, 2)
    (0, 3)
    >>> of_highest_loss({0: 1.0, 3: 2.5, 4: 1.0, 7: 0.5}, 2, {3: MOST_IN_A_ROW})
    (0, 4)
    """

    def rank(client: int) -> tuple[bool, float, int, int]:
        loss = min(losses[client], cap)
        lot = derive_key(key, "lot", client=client) if loss == cap else 0
        return chosen.get(client, 0) >= MOST_IN_A_ROW, -loss, lot, client

    return tuple(sorted(sorted(losses, key=rank)[:count]))


def count_choices(chosen: dict[int, int], asked: Iterable[int], participants: tuple[int, ...]) -> None:
    """Bring `chosen` up to date for those who were asked."""
    for client in asked:
        if client in participants:
            chosen[client] = chosen.get(client, 0) + 1
        else:
            chosen.pop(client, None)
