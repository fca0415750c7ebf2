"""Personal networks, each judged on its client's own test set: `python examples/own_tests.py`.

Two clients use opposite labels for the same things. One network for both cannot be right about more than half of them;
a network of one's own can.
"""

import torch
from torch import Tensor, nn

from subbit import fine_tune


def examples(count: int, seed: int, swapped: bool) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, ((inputs[:, 0] + inputs[:, 1] > 0) ^ swapped).long()


if __name__ == "__main__":
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    clients = [examples(300, 0, False), examples(300, 1, True)]
    client_tests = [examples(200, 2, False), examples(200, 3, True)]
    job = {"evaluate": "personal", "rounds": 5, "epochs": 5, "batch_size": 32}
    methods = ("fedavg", "standalone", "fedmask")
    found = {}
    for method in methods:
        result = fine_tune(module, clients, client_tests=client_tests, method=method, **job)
        found[method] = result.accuracy
        print(f"{method:12}{result.accuracy:.2f}, clients {result.accuracy_by_client}")
    assert found["fedavg"] < 0.7
    assert found["standalone"] > 0.9
    assert found["fedmask"] > 0.9
