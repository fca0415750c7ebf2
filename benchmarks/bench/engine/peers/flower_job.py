"""FedAvg in Flower's simulation, with Flower's own strategy and numpy arrays, on all cores of the machine.

python -m benchmarks.bench.engine.peers.flower_job DATA.npz mlp 100 10 20 ROUNDS
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
# Ray gives its processes 15 to 30 s to start, which is too short on a busy machine.
os.environ |= {"RAY_raylet_start_wait_time_s": "180", "RAY_agent_register_timeout_ms": "180000"}

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.bench.engine.peers.networks import make_network, read_clients
from benchmarks.bench.engine.peers.plain import train_client


class Timed(FedAvg):
    """Notes when each round begins and how many clients have answered: Flower goes on without those that failed."""

    def __init__(self, participants: int, clients: int) -> None:
        super().__init__(
            fraction_train=participants / clients,
            fraction_evaluate=0.0,
            min_train_nodes=participants,
            min_evaluate_nodes=0,
            min_available_nodes=clients,
        )
        self.begins: list[float] = []
        self.answered = 0

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: object, grid: Grid) -> Iterable[Message]:
        self.begins.append(time.perf_counter())
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        received = list(replies)
        self.answered += sum(not reply.has_error() for reply in received)
        return super().aggregate_train(server_round, received)


def main() -> None:
    path, kind, clients, participants, batch_size, rounds = sys.argv[1:]
    client_app, server_app = ClientApp(), ServerApp()
    strategy = Timed(int(participants), int(clients))

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        client = int(context.node_config["partition-id"])
        model = make_network(kind)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = read_clients(Path(path), int(clients))[client]
        loss = train_client(model, data, int(batch_size))
        metrics = MetricRecord({"train_loss": loss, "num-examples": len(data[1])})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        torch.manual_seed(0)  # Of this process, which nobody else uses.
        strategy.start(grid, ArrayRecord(make_network(kind).state_dict()), num_rounds=int(rounds))
        strategy.begins.append(time.perf_counter())

    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend = {"init_args": {"log_to_driver": False}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, num_supernodes=int(clients), backend_config=backend)
    if strategy.answered != int(participants) * int(rounds):
        sys.exit(f"only {strategy.answered} turns of {int(participants) * int(rounds)} succeeded")
    print(json.dumps({"wall": [after - before for before, after in pairwise(strategy.begins)]}))


if __name__ == "__main__":
    main()
