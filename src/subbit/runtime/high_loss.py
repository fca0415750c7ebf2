"""Client selection by loss: some clients are drawn and asked for their loss, those with the highest loss train.

Cho, Wang, Joshi: "Towards Understanding Biased Client Selection in Federated Learning", AISTATS 2022 (power of choice);
paper 001 draws 20 clients and trains 10.

    server  draws `drawn` clients uniformly, like participants, and sends them the broadcast
    client  the mean loss of that network on its own training data: one float32 in its own frame
    server  the clients with the highest loss (ties: the lower number) are sent their orders for the round

Losses are self-reported. So that no client can get itself selected in every round, losses above
`Objective.highest_loss` count as equal and are ranked at random, and a client selected `MOST_IN_A_ROW` times in a row
is ranked last the next time.

Each client asked costs a broadcast, which the ledger counts, as well as the replies. Clients keep nothing when asked,
so the selected ones are sent the broadcast again. The server also learns the loss of each individual client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from subbit.codecs import make_codec
from subbit.core.errors import ConfigError, FrameError, PayloadError
from subbit.core.randomness import derive_key
from subbit.data.examples import Data
from subbit.local.training import TrainingError
from subbit.methods.method import Method, Turn
from subbit.runtime.messages import Frames, channel_of
from subbit.wire.channel import Part, up

BATCH = 128
LOSS = Part("loss", make_codec("dense"), 1)
MOST_IN_A_ROW = 3


def share_of(participation: float, clients: int) -> int:
    """Number of participants: rounded down as in the papers, at least one. The tolerance makes 0.29 of 100 equal 29,
    although the floating-point product is smaller."""
    return max(1, math.floor(participation * clients + 1e-9))


def check_selection(method: Method[Any], drawn: int) -> None:
    """Check that clients of this method can compute a loss before training, and that there are clients to choose
    from."""
    if not method.personal and not method.broadcasts_network:
        raise ConfigError(
            f"selection=high-loss: a broadcast of {method.name} is not a network whose loss a client could tell; "
            "use a method that trains weights, or selection=uniform"
        )
    if drawn < method.task.participants:
        raise ConfigError(
            f"drawn={drawn}: fewer than the {method.task.participants} clients that train in a round; need as many"
        )


def own_loss(method: Method[Any], view: Any, data: Data, turn: Turn) -> float:
    """The mean loss of the broadcast network, or of the client's own network for personal methods."""
    if method.personal:
        method.personalise(view, data, turn)
    else:
        method.write_received(view)
    loss = method.task.mean_loss(data, BATCH)
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
    lowest = method.task.objective.losses_from
    if not loss >= lowest:
        raise PayloadError(f"a loss of {loss}: needs {lowest:g} or more", "value")
    return loss


def of_highest_loss(
    losses: Mapping[int, float],
    count: int,
    chosen: Mapping[int, int] = MappingProxyType({}),
    cap: float = math.inf,
    key: int = 0,
) -> tuple[int, ...]:
    """The `count` selected clients, in ascending order. `chosen` is how often in a row each was selected before.

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
    """Update `chosen` for the clients that were asked."""
    for client in asked:
        if client in participants:
            chosen[client] = chosen.get(client, 0) + 1
        else:
            chosen.pop(client, None)
