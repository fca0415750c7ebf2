import copy

import pytest
import torch
from example_networks import BUILDERS, build
from torch import nn

from subbit.core.errors import ModelError
from subbit.models.flat import FlatModel
from subbit.models.select import find_blocks, find_head, parameter_kinds, restore_frozen, select_parameters


def size(module, selection):
    parameters = dict(module.named_parameters())
    return sum(parameters[name].numel() for name in select_parameters(module, selection))


@pytest.mark.parametrize(
    ("kind", "selection", "names"),
    [
        ("mlp", "head", ["head.weight", "head.bias"]),
        ("mlp", "block 0", ["layers.0.weight", "layers.0.bias"]),
        ("mlp", "last 1 block: biases + head: weights", ["layers.1.bias", "head.weight"]),
        ("mlp", "head:weights+block 1:biases", ["layers.1.bias", "head.weight"]),
        ("convnet", "all: norms", [f"blocks.{block}.1.{name}" for block in (0, 1) for name in ("weight", "bias")]),
        ("convnet", "last 1 blocks: weights", ["blocks.1.0.weight"]),
        ("convnet", "all: weights", ["blocks.0.0.weight", "blocks.1.0.weight", "head.weight"]),
        ("lstm", "*_l1: biases", ["lstm.bias_ih_l1", "lstm.bias_hh_l1"]),
        ("lstm", "embedding.*", ["embedding.weight"]),
        (
            "vit",
            "block 2: norms",
            [f"backbone.layers.2.layernorm_{x}.{y}" for x in ("before", "after") for y in ("weight", "bias")],
        ),
        ("vit", "*1.attention.q_proj.bias", ["backbone.layers.1.attention.q_proj.bias"]),
        (
            "vit",
            "*patch_embeddings*: weights & biases",
            [f"backbone.embeddings.patch_embeddings.projection.{x}" for x in ("weight", "bias")],
        ),
    ],
)
def test_names_by_hand(kind, selection, names):
    assert select_parameters(build(kind)[0], selection) == names


@pytest.mark.parametrize("kind", BUILDERS)
def test_parts_add_up(kind):
    """The three kinds, as well as head and backbone, are a partition of all parameters."""
    module, _ = build(kind)
    everything = [name for name, _ in module.named_parameters()]
    assert select_parameters(module, "all") == everything
    kinds = parameter_kinds(module)
    by_kind = [name for one in ("weights", "biases", "norms") for name in everything if kinds[name] == one]
    assert sorted(by_kind) == sorted(everything)
    assert select_parameters(module, "backbone") + select_parameters(module, "head") == everything
    assert select_parameters(module, "head + backbone + all: weights") == everything


def test_vit_base_has_the_published_numbers_of_weights():
    """One block of ViT-B: 4 * 768^2 + 2 * 768 * 3072 = 7,077,888 weights; 4 * 768 + 3072 + 768 biases and
    4 * 768 norm parameters = 9,984 more. Five of them: 35,389,440 and 35,439,360."""
    from transformers import ViTConfig, ViTModel

    with torch.device("meta"):
        model = ViTModel(ViTConfig())
    assert size(model, "last 5 blocks: weights") == 35_389_440
    assert size(model, "last 5 blocks: all") == 35_439_360
    assert size(model, "last 5 blocks") == 35_439_360


@pytest.mark.parametrize(
    ("kind", "blocks"), [("mlp", ("layers", 2)), ("convnet", ("blocks", 2)), ("vit", ("backbone.layers", 3))]
)
def test_blocks(kind, blocks):
    assert find_blocks(build(kind)[0]) == blocks


def test_blocks_of_a_plain_sequential():
    """ConvMixer: blocks of one class in a Sequential; a longer list of layers without parameters is not it."""
    block = nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.GELU(), nn.BatchNorm2d(2))
    module = nn.Sequential(
        nn.Conv2d(3, 2, 4), nn.Sequential(block, block, block), nn.Sequential(*[nn.ReLU()] * 9), nn.Linear(2, 2)
    )
    assert find_blocks(module) == ("1", 3)
    assert find_head(module) == "3"
    flat = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert select_parameters(flat, "block 1") == ["1.weight", "1.bias"]


def test_head_is_found_by_name_before_place():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.classifier = nn.Linear(2, 2)
            self.last = nn.Linear(2, 2)

    assert find_head(Backwards()) == "classifier"


@pytest.mark.parametrize(
    ("kind", "selection", "words"),
    [
        ("mlp", "hed", ["'hed'", "head"]),
        ("mlp", "last 3 blocks", ["2 blocks"]),
        ("mlp", "last 0 blocks", ["2 blocks"]),
        ("mlp", "block 2", ["2 blocks"]),
        ("mlp", "block two", ["matches none"]),
        ("mlp", "last 2", ["matches none", "last N blocks"]),
        ("mlp", "all: norms", ["has no norms", "biases, weights"]),
        ("mlp", "all: weigths", ["'weigths'", "weights, biases, norms, all"]),
        ("mlp", "all:", ["unknown kind ''"]),
        ("mlp", "", ["matches none"]),
        ("mlp", "head +", ["matches none"]),
        ("lstm", "last 1 blocks", ["has no blocks", "pattern"]),
        ("vit", "*atention*", ["attention"]),
    ],
)
def test_errors_show_what_there_is(kind, selection, words):
    with pytest.raises(ModelError) as caught:
        select_parameters(build(kind)[0], selection)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_no_head():
    with pytest.raises(ModelError, match="no head"):
        select_parameters(nn.Sequential(nn.Conv2d(1, 1, 1)), "head")


def test_what_its_owner_froze_is_left_out_unless_it_is_asked_for():
    module = build("mlp")[0]
    module.layers[0].requires_grad_(False)
    rest = ["layers.1.weight", "layers.1.bias", "head.weight", "head.bias"]
    assert select_parameters(module, "all") == select_parameters(module, "*") == rest
    assert select_parameters(module, "backbone: weights + head") == ["layers.1.weight", "head.weight", "head.bias"]
    assert select_parameters(module, "layers.0.weight") == ["layers.0.weight"]
    assert select_parameters(module, "layers.0.* + head: biases") == ["layers.0.weight", "layers.0.bias", "head.bias"]
    assert select_parameters(module, "layers.*.weight") == ["layers.1.weight"]
    assert select_parameters(module, "all", even_frozen=True) == ["layers.0.weight", "layers.0.bias", *rest]
    with pytest.raises(ModelError, match="all parameters of 'block 0' have requires_grad=False"):
        select_parameters(module, "block 0")
    module.requires_grad_(False)
    assert select_parameters(module, "head") == ["head.weight", "head.bias"]
    with pytest.raises(ModelError, match="all parameters of 'all' have requires_grad=False"):
        select_parameters(module, "all")


def test_a_flat_model_remembers_what_was_frozen():
    module = build("mlp")[0]
    module.layers[0].requires_grad_(False)
    names = FlatModel(module, "all").template.names
    FlatModel(module, "head")
    assert FlatModel(module, "all").template.names == names
    assert FlatModel(copy.deepcopy(module), "all").template.names == names
    restore_frozen(module)
    assert [name for name, value in module.named_parameters() if value.requires_grad] == list(names)
    module.requires_grad_(True)
    assert len(FlatModel(module, "all").template.names) == 6
