"""FedAvg in pfl's simulator: prints the CPU seconds of each round as JSON. Runs in pfl's own environment.

python -m benchmarks.bench.engine.peers.pfl_job DATA.npz mlp 100 10 20 ROUNDS
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.bench.engine.peers.networks import make_network, read_clients
from benchmarks.bench.engine.peers.plain import LEARNING_RATE


class PflNetwork(nn.Module):
    """What pfl asks of a module: `loss` and `metrics`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        self.train()
        return functional.cross_entropy(self.network(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
        loss = functional.cross_entropy(self.network(inputs), labels, reduction="sum")
        return {"loss": Weighted(loss.item(), len(labels))}


class Clock(TrainingProcessCallback):
    """CPU and wall seconds after each round."""

    def __init__(self) -> None:
        self.cpu, self.wall = [time.process_time()], [time.perf_counter()]

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self.cpu.append(time.process_time())
        self.wall.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    path, kind, clients, participants, batch_size, rounds = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)  # Of this process, which nobody else uses.
    np.random.seed(0)  # noqa: NPY002 - pfl draws from numpy's global generator.
    data = read_clients(Path(path), int(clients))
    network = PflNetwork(make_network(kind))
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(trained, lr=1.0))
    sampler = get_user_sampler("random", list(range(len(data))))
    federated = FederatedDataset(lambda client: PyTorchTensorDataset(data[client], user_id=str(client)), sampler)
    clock = Clock()
    FederatedAveraging().run(
        # Evaluation would be pfl's own before and after each client's training: never, as for the others.
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=int(rounds),
            evaluation_frequency=int(rounds) + 1,
            train_cohort_size=int(participants),
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=federated, val_data=federated),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=int(batch_size)
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=int(batch_size)),
        callbacks=[clock],
    )
    found = {"cpu": np.diff(clock.cpu).tolist(), "wall": np.diff(clock.wall).tolist()}
    parameters = sum(parameter.numel() for parameter in trained)
    print(json.dumps({**found, "parameters": parameters, "pfl": version("pfl"), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
