"""Several labels per example: `python examples/own_labels.py`.

A picture has any of three bars: at the top, in the middle, on the left. Labels are float32 [n, 3] of 0 and 1, and the
module returns one number per label.
"""

import torch
from torch import Tensor, nn

from subbit import fine_tune


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, 3, generator=generator) < 0.4).float()
    images = torch.rand(count, 1, 12, 12, generator=generator)
    images[:, 0, 1, :] += labels[:, 0, None]
    images[:, 0, 6, :] += labels[:, 1, None]
    images[:, 0, :, 2] += labels[:, 2, None]
    return images, labels


if __name__ == "__main__":
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 3))
    result = fine_tune(
        module,
        [pictures(200, seed) for seed in range(4)],
        pictures(200, seed=9),
        objective="multi-label",
        method="fedavg",
        rounds=6,
        learning_rate=0.01,
    )
    print(f"F1 {result.score_before:.2f} -> {result.score:.2f}, all labels right: {result.scores['exact_match']:.2f}")
    assert result.score > 0.9
