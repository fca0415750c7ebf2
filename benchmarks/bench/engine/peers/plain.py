"""FedAvg as one would write it in PyTorch alone: a loop over clients, without any library for federated learning.

python -m benchmarks.bench.engine.peers.plain DATA.npz mlp 100 10 20 ROUNDS
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bench.engine.peers.networks import make_network, read_clients

LEARNING_RATE = 0.05
Client = tuple[Tensor, Tensor]


def train_client(model: nn.Module, client: Client, batch_size: int) -> float:
    inputs, labels = client
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=LEARNING_RATE)
    model.train()
    total = 0.0
    for chosen in torch.randperm(len(labels)).split(batch_size):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def plain_round(model: nn.Module, clients: list[Client], participants: int, batch_size: int) -> None:
    """One round; changes the model in place."""
    states = []
    for number in torch.randperm(len(clients))[:participants].tolist():
        local = copy.deepcopy(model)
        train_client(local, clients[number], batch_size)
        states.append(local.state_dict())
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    model.load_state_dict(mean)


def main() -> None:
    path, kind, clients, participants, batch_size, rounds = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)  # Of this process, which nobody else uses.
    model, data = make_network(kind), read_clients(Path(path), int(clients))
    for _ in range(int(rounds)):
        plain_round(model, data, int(participants), int(batch_size))


if __name__ == "__main__":
    main()
