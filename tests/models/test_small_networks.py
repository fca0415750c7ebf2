import pytest
import torch

from subbit.core.errors import ModelError
from subbit.core.randomness import torch_generator
from subbit.models.load_model import SMALL_MODELS, load_classifier, model_names
from subbit.models.small import Conv4, Conv6, Conv10, Mlp

SHAPES = {
    **dict.fromkeys(("mlp", "mnistfc", "mlp-small", "conv2", "conv4", "row-lstm"), (1, 28, 28)),
    "har-mlp": (561,),
    "char-lstm": (20,),
    "next-char": (80,),
}
TEXTS = {"char-lstm": 256, "next-char": 80}
LARGE = {"vgg16"}
"""Only counted, on the meta device: half a gigabyte of weights that no test needs."""


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_published_sizes():
    """Conv4 as counted in the Zampling paper; 784-300-100-10 and 784-20-20-10 as everywhere."""
    assert size(Conv4((1, 28, 28), 10)) == 1_933_258
    assert size(Mlp((784, 300, 100, 10))) == 266_610
    assert size(Mlp((784, 20, 20, 10))) == 16_330


@pytest.mark.parametrize(
    "info",
    [info for info in model_names() if info.name in set(SMALL_MODELS) - LARGE],
    ids=lambda info: info.name,
)
def test_listed_networks_run_and_have_the_listed_size(info):
    shape = SHAPES.get(info.name, (3, 32, 32))
    state = torch.get_rng_state()
    network = load_classifier(info.name, 10, key=1, input_shape=shape)
    assert torch.equal(torch.get_rng_state(), state)
    assert size(network) == info.parameters
    inputs = torch.randint(0, TEXTS.get(info.name, 256), (2, *shape), generator=torch_generator(0))
    if info.name not in TEXTS:
        inputs = inputs.to(torch.uint8) if len(shape) == 3 else inputs / 255
    network.eval()
    features = network.features(inputs)
    assert features.shape == (2, network.head.in_features)
    torch.testing.assert_close(network(inputs), network.head(features))


def test_sizes_that_fedmask_prints():
    """Table 5 of the paper, in 10**6 bytes of float32: 537.21 for VGG16 with 10 classes, 538.09 with 64, 4.41 for the
    three dense layers on HAR and 1.53 for the LSTM; the paper has no widths for the last two.

    VGG16: convolutions 14,714,688, then 25088 * 4096 + 4096, 4096 * 4096 + 4096 and 4097 per class.
    """
    with torch.device("meta"):
        vgg = size(SMALL_MODELS["vgg16"]((3, 32, 32), 10))
        assert vgg == 14_714_688 + 25_089 * 4096 + 4097 * 4096 + 4097 * 10 == 134_301_514
        assert vgg == next(info.parameters for info in model_names() if info.name == "vgg16")
        assert round(4 * size(SMALL_MODELS["vgg16"]((3, 32, 32), 64)) / 1e6, 2) == 538.09
        assert round(4 * size(SMALL_MODELS["har-mlp"]((561,), 6)) / 1e6, 2) == 4.41
        assert round(4 * size(SMALL_MODELS["next-char"]((80,), 80)) / 1e6, 2) == 1.53


def test_the_paper_form_of_next_character_prediction():
    """8-d embedding of 80 characters, two LSTM layers, three dense layers."""
    network = load_classifier("next-char", 80, key=1, input_shape=(80,))
    assert tuple(network.embedding.weight.shape) == (80, 8)
    assert network.lstm.num_layers == 2
    assert len(network.dense) + 1 == 3
    for strange in (torch.full((1, 80), 80), torch.full((1, 80), -1), torch.zeros(1, 80)):
        with pytest.raises(ModelError, match="from 0 to 79"):
            network(strange)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 33, 40)])
def test_vgg_enlarges_images_that_five_poolings_would_swallow(shape):
    network = load_classifier("vgg-small", 4, key=1, input_shape=shape).eval()
    images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8, generator=torch_generator(2))
    features = network.features(images)
    assert features.shape == (2, 128)
    assert not torch.equal(features[0], features[1])


def test_the_signal_reaches_the_end_of_vgg():
    """He's weights keep E[x^2] of a wide ReLU network; torch's default loses a factor of 6 per layer, 6**13 in all."""
    network = load_classifier("vgg-small", 4, key=1, input_shape=(3, 32, 32)).eval()
    features = network.features(torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch_generator(3)))
    assert 1e-2 < features.square().mean() < 1e2


def test_all_small_networks_are_listed():
    assert set(SMALL_MODELS) <= {info.name for info in model_names()}


def test_key_decides_the_weights():
    first, second, other = (load_classifier("mlp", 2, key=key, input_shape=(4,)) for key in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


@pytest.mark.parametrize(
    ("name", "input_shape"),
    [("mlp", None), ("conv4", (28, 28)), ("char-lstm", (3, 8, 8)), ("convnet", (0, 8, 8)), ("convmixer", (1, 1, 9))],
)
def test_shapes_that_do_not_fit(name, input_shape):
    with pytest.raises(ModelError, match="needs"):
        load_classifier(name, 10, key=0, input_shape=input_shape)


def test_images_too_small_for_the_poolings():
    Conv6((1, 8, 8), 10)
    with pytest.raises(ModelError, match="at least 32x32"):
        Conv10((3, 28, 28), 10)
    with pytest.raises(ModelError, match="sizes"):
        Mlp((3,))


def test_images_are_preprocessed_once_and_floats_not_at_all():
    network = load_classifier("mlp-small", 10, key=1, input_shape=(1, 28, 28))
    calls = []
    network.preprocess.register_forward_hook(lambda *_: calls.append(1))
    images = torch.arange(2 * 784, dtype=torch.uint8).reshape(2, 1, 28, 28)
    outputs = network(images)
    assert len(calls) == 1
    assert torch.equal(network(network.preprocess.forward(images)), outputs)
    assert len(calls) == 1
