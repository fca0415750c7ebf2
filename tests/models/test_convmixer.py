"""ConvMixer: timm's sizes and names, its weights from a folder, what is refused."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from subbit.core.errors import ModelError
from subbit.core.randomness import torch_randomness
from subbit.models.convmixer import ConvMixerBackbone
from subbit.models.load_model import load_classifier, model_names
from subbit.models.select import find_blocks, select_parameters


def write_folder(folder, architecture="convmixer_768_32", activation=nn.ReLU, **changes):
    """A small ConvMixer in the form of timm's published ones, with the head that ours does not read."""
    folder.mkdir(exist_ok=True)
    with torch_randomness(7):
        backbone = ConvMixerBackbone(width=6, depth=3, kernel=3, patch=4, activation=activation).eval()
        for norm in (module for module in backbone.modules() if isinstance(module, nn.BatchNorm2d)):
            norm.running_mean.normal_()
    tensors = backbone.state_dict() | {"head.weight": torch.zeros(1000, 6), "head.bias": torch.zeros(1000)} | changes
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / "model.safetensors")
    described = {"input_size": [3, 16, 16], "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
    config = {"architecture": architecture, "num_classes": 1000, "pretrained_cfg": described}
    (folder / "config.json").write_text(json.dumps(config))
    return backbone


def test_published_size():
    """768/32, patches and kernels of 7: stem 147 * 768 + 768, 32 blocks of 49 * 768 + 768 + 768 * 768 + 768, norms of
    2 * 768 after each convolution (65), and with a head of 1000 classes 21,110,248 as timm counts."""
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in ConvMixerBackbone(768, 32).parameters())
    assert count == 147 * 768 + 768 + 32 * (50 * 768 + 769 * 768) + 65 * 2 * 768
    assert count + 769 * 1000 == 21_110_248
    assert count == next(info.parameters for info in model_names() if info.name.startswith("timm/convmixer"))


def test_names_are_those_of_timm():
    names = set(ConvMixerBackbone(4, 2, 3, 2).state_dict())
    assert {"stem.0.weight", "stem.2.running_var", "blocks.1.0.fn.0.bias", "blocks.1.0.fn.2.weight"} <= names
    assert {"blocks.0.1.weight", "blocks.0.3.num_batches_tracked"} <= names


@pytest.mark.parametrize(
    ("architecture", "activation"), [("convmixer_768_32", nn.ReLU), ("convmixer_1024_20_ks9_p14", nn.GELU)]
)
def test_weights_load_from_a_folder(tmp_path, architecture, activation):
    backbone = write_folder(tmp_path, architecture, activation)
    network = load_classifier(str(tmp_path), 5, key=3).eval()
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    mean, std = torch.tensor([0.1, 0.2, 0.3])[:, None, None], torch.tensor([0.5, 0.6, 0.7])[:, None, None]
    torch.testing.assert_close(network.features(images), backbone((images / 255 - mean) / std))
    assert network(images).shape == (2, 5)
    assert find_blocks(network) == ("backbone.blocks", 3)
    assert all("blocks.2." in name for name in select_parameters(network, "last 1 blocks: weights"))
    random = load_classifier(str(tmp_path), 5, key=3, pretrained=False)
    assert not torch.equal(random.backbone.stem[0].weight, network.backbone.stem[0].weight)


def test_images_of_another_size_and_grey_ones_reach_the_input_size(tmp_path):
    write_folder(tmp_path)
    network = load_classifier(str(tmp_path), 5, key=3).eval()
    assert network(torch.zeros(1, 1, 28, 28, dtype=torch.uint8)).shape == (1, 5)


def test_folders_that_lack_something(tmp_path):
    write_folder(tmp_path, **{"blocks.1.1.weight": torch.zeros(6, 5, 1, 1)})
    with pytest.raises(ModelError, match=r"found \[6, 5, 1, 1\] as blocks.1.1.weight; needs \[6, 6, 1, 1\]"):
        load_classifier(str(tmp_path), 5, key=3)
    write_folder(tmp_path, **{"stem.2.running_mean": None})
    with pytest.raises(ModelError, match=r"found nothing as stem\.2\.running_mean"):
        load_classifier(str(tmp_path), 5, key=3)
    write_folder(tmp_path, **{"stem.0.weight": None})
    with pytest.raises(ModelError, match="needs a ConvMixer as timm has it"):
        load_classifier(str(tmp_path), 5, key=3)
    (tmp_path / "model.safetensors").write_bytes(b"garbled")
    with pytest.raises(ModelError, match="cannot load model"):
        load_classifier(str(tmp_path), 5, key=3)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"needs model\.safetensors beside it"):
        load_classifier(str(tmp_path), 5, key=3)
