"""Peak memory of a server that receives many clients' masks through the streaming path.

    python -m benchmarks.bench.server_memory 100

runs one server process with 1,000 nodes, of which the given number take part in one round of DeltaMask over a million
weights. A simulated grid encodes each upload when it is requested, so that the process holds only what a server holds.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import torch
from flwr.app import Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from subbit.codecs.packed import bits_of_positions
from subbit.config.resolve import resolve, write_toml
from subbit.data import Examples
from subbit.flower.announcement import announcement
from subbit.flower.engine import FlowerEngine
from subbit.flower.records import reply_to_records
from subbit.runtime.messages import Reply, decode_parts, encode_parts
from subbit.runtime.problem import Problem
from subbit.runtime.round import Cohort, ServerState, run_round
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import down, up
from subbit.wire.ledger import Ledger

CLIENTS, WIDTH = 1_000, 1_000
FLIPPED = 0.01


class PlayedNodes:
    """Client K is node K + 1. Each flips one position in a hundred."""

    def __init__(self, workplace: Workplace) -> None:
        self._method = workplace.method("main")
        self._configuration = write_toml(workplace.settings)
        self._asked: dict[str, tuple[str, int]] = {}
        self._view: Any = None

    def get_node_ids(self) -> Iterable[int]:
        return range(1, CLIENTS + 1)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            names.append(f"{message.metadata.message_type}/{message.metadata.dst_node_id}")
            self._asked[names[-1]] = (message.metadata.message_type, message.metadata.dst_node_id - 1)
            if message.metadata.message_type == MessageType.TRAIN and self._view is None:
                frames = tuple(cast(dict[str, bytes], message.content["broadcast"]).values())
                payloads, _ = decode_parts(self._method, "main", down(0), frames, None)
                self._view = self._method.open(payloads, 0)
        return names

    def pull_messages(self, names: Iterable[str]) -> Iterable[Message]:
        return [self._answer(name, *self._asked.pop(name)) for name in names if name in self._asked]

    def _answer(self, name: str, kind: str, client: int) -> Message:
        question = Message(RecordDict(), 1, kind)
        question.metadata.__dict__["_message_id"] = name
        if kind == MessageType.QUERY:
            return Message(announcement(client, CLIENTS, lambda: self._configuration), reply_to=question)
        size = self._method.size
        positions = np.sort(np.random.default_rng(client).choice(size, int(FLIPPED * size), replace=False))
        flips = bits_of_positions(positions.astype(np.uint32), size)
        frames = encode_parts(self._method, "main", up(0, client), {"flips": flips}, self._view, examples=1)
        return Message(reply_to_records(Reply(client, frames)), reply_to=question)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(participants: int) -> dict[str, float]:
    # Messages carry the identity of the process that writes them. Flower sets it before starting an app.
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    settings = resolve(
        {
            "method": "deltamask",
            "clients": CLIENTS,
            "participation": participants / CLIENTS,
            "head": "keep",
            "select": "all: weights",
            "engine": "deployment",
        }
    )
    examples = Examples(torch.zeros(CLIENTS, WIDTH), torch.zeros(CLIENTS, dtype=torch.int64))
    problem = Problem(
        module=nn.Linear(WIDTH, WIDTH, bias=False),
        train=examples,
        parts=tuple(np.array([client]) for client in range(CLIENTS)),
        test=examples,
        classes=WIDTH,
        pretrained=True,
        model_name="linear",
        dataset_name="zeros",
    )
    workplace = Workplace(problem, settings, "0" * 32)
    grid = PlayedNodes(workplace)
    engine = FlowerEngine(cast(Any, grid), workplace)
    state = ServerState("main", 0, workplace.method("main").start())
    before = peak_megabytes()
    cohort = Cohort(problem.clients_with_data(), settings.run.quorum)
    report = run_round(workplace.method("main"), state, engine, Ledger(), cohort)
    return {"participants": len(report.answered), "before_mb": before, "peak_mb": peak_megabytes()}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
