"""A vision transformer (Dosovitskiy et al., ICLR 2021) with the names and the arithmetic of transformers' `ViTModel`.

The bundled model is loaded into it, because importing transformers takes longer than everything else before the first
step. Outputs, gradients and names of parameters are those of transformers, bit for bit: a run, a mask or an adapter
does not depend on which of the two was trained.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


@dataclass(frozen=True)
class VitSizes:
    """The defaults are ViT-B/16. Names are those of transformers' config.json."""

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    layer_norm_eps: float = 1e-12
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3


class VitOutput(NamedTuple):
    last_hidden_state: Tensor
    """[n, 1 + patches, width], the class token first."""


class VitPatches(nn.Module):
    def __init__(self, sizes: VitSizes) -> None:
        super().__init__()
        patch = sizes.patch_size
        self.projection = nn.Conv2d(sizes.num_channels, sizes.hidden_size, kernel_size=patch, stride=patch)

    def forward(self, pixels: Tensor) -> Tensor:
        patches: Tensor = self.projection(pixels)
        return patches.flatten(2).transpose(1, 2)


class VitEmbeddings(nn.Module):
    def __init__(self, sizes: VitSizes) -> None:
        super().__init__()
        patches = (sizes.image_size // sizes.patch_size) ** 2
        self.cls_token = nn.Parameter(torch.zeros(1, 1, sizes.hidden_size))
        self.position_embeddings = nn.Parameter(torch.zeros(1, patches + 1, sizes.hidden_size))
        self.patch_embeddings = VitPatches(sizes)

    def forward(self, pixels: Tensor) -> Tensor:
        patches = self.patch_embeddings(pixels)
        count = pixels.shape[0]  # len(pixels) would fix the number when the network is traced.
        return torch.cat((self.cls_token.expand(count, -1, -1), patches), dim=1) + self.position_embeddings


class VitAttention(nn.Module):
    def __init__(self, sizes: VitSizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.head_width = width // sizes.num_attention_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, hidden: Tensor) -> Tensor:
        shape = (*hidden.shape[:-1], -1, self.head_width)
        query, key, value = (
            each(hidden).view(shape).transpose(1, 2) for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = scaled_dot_product_attention(query, key, value, scale=self.head_width**-0.5)
        output: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(hidden.shape))
        return output


class VitMlp(nn.Module):
    def __init__(self, sizes: VitSizes) -> None:
        super().__init__()
        self.fc1 = nn.Linear(sizes.hidden_size, sizes.intermediate_size)
        self.activation_fn = nn.GELU()
        self.fc2 = nn.Linear(sizes.intermediate_size, sizes.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        output: Tensor = self.fc2(self.activation_fn(self.fc1(hidden)))
        return output


class VitBlock(nn.Module):
    def __init__(self, sizes: VitSizes) -> None:
        super().__init__()
        self.attention = VitAttention(sizes)
        self.layernorm_before = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.layernorm_after = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.mlp = VitMlp(sizes)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.attention(self.layernorm_before(hidden)) + hidden
        output: Tensor = self.mlp(self.layernorm_after(hidden)) + hidden
        return output


class Vit(nn.Module):
    def __init__(self, sizes: VitSizes) -> None:
        super().__init__()
        self.embeddings = VitEmbeddings(sizes)
        self.layers = nn.ModuleList(VitBlock(sizes) for _ in range(sizes.num_hidden_layers))
        self.layernorm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)

    def forward(self, pixels: Tensor) -> VitOutput:
        hidden = self.embeddings(pixels)
        for block in self.layers:
            hidden = block(hidden)
        return VitOutput(self.layernorm(hidden))


_NAMES_IN_FILES = (
    (r"^encoder\.layer\.", "layers."),
    (r"\.attention\.attention\.(query|key|value)\.", lambda match: f".attention.{match[1][0]}_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)
"""Files have the names of earlier versions of transformers. The order matters."""


def load_vit(folder: Path) -> Vit:
    """The network with the weights of the folder. A weight that is missing or too many is an error."""
    from safetensors.torch import load_file

    weights = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        for pattern, replacement in _NAMES_IN_FILES:
            name = re.sub(pattern, replacement, name)
        weights[name] = weight
    with torch.device("meta"):  # Nothing is drawn only to be overwritten.
        network = Vit(read_sizes(folder))
    network.load_state_dict(weights, assign=True)
    return network.eval()


def read_sizes(folder: Path) -> VitSizes:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return VitSizes(**{name: config[name] for name in VitSizes.__dataclass_fields__})
