"""Segmentation with a small U-Net: `python examples/own_unet.py`.

Every pixel has a class: background, square or diamond. Labels are int64 [n, height, width], and the module returns
[n, classes, height, width]. A client sends the largest 5 percent of its changes (method=topk).
"""

import torch
from torch import Tensor, nn

from subbit import fine_tune


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.bottom = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)
        self.up, self.head = nn.ConvTranspose2d(24, 12, 2, stride=2), nn.Conv2d(24, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        fine = self.down(images).relu()
        coarse = self.bottom(nn.functional.max_pool2d(fine, 2)).relu()
        return self.head(torch.cat([fine, self.up(coarse).relu()], dim=1))


def shapes(count: int, seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    kind, y, x = (torch.randint(*ends, (count, 1, 1)) for ends in ((1, 3), (4, 12), (4, 12)))
    down, right = (torch.arange(16)[:, None] - y).abs(), (torch.arange(16) - x).abs()
    inside = torch.where(kind == 1, torch.maximum(down, right) < 4, down + right < 5)
    return inside[:, None] + 0.2 * torch.randn(count, 1, 16, 16), kind * inside


if __name__ == "__main__":
    clients, test = [shapes(80, seed) for seed in range(3)], shapes(80, seed=9)
    job = {"method": "topk", "fraction": 0.05, "rounds": 12, "epochs": 2, "batch_size": 16, "learning_rate": 0.01}
    result = fine_tune(UNet(), clients, test, objective="segmentation", **job)
    print(f"mean IoU {result.score_before:.2f} -> {result.score:.2f}, {result.uplink_bpp:.2f} bits per parameter")
    assert result.score > 0.7
