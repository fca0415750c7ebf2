import math

import pytest
import torch
from example_networks import BUILDERS, build

from subbit.errors import ModelError
from subbit.models.load import SMALL_MODELS, load_classifier, model_names
from subbit.models.small import Conv4, Conv6, Conv10, Mlp, signed_constant_
from subbit.randomness import torch_generator

SHAPES = {"mlp": (1, 28, 28), "conv4": (1, 28, 28), "char-lstm": (20,)}


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_published_sizes():
    """Conv4 as counted in the Zampling paper; 784-300-100-10 and 784-20-20-10 as everywhere."""
    assert size(Conv4((1, 28, 28), 10)) == 1_933_258
    assert size(Mlp((784, 300, 100, 10))) == 266_610
    assert size(Mlp((784, 20, 20, 10))) == 16_330


@pytest.mark.parametrize(
    "info", [info for info in model_names() if info.name in SMALL_MODELS], ids=lambda info: info.name
)
def test_listed_networks_run_and_have_the_listed_size(info):
    shape = SHAPES.get(info.name, (3, 32, 32))
    state = torch.get_rng_state()
    network = load_classifier(info.name, 10, key=1, input_shape=shape)
    assert torch.equal(torch.get_rng_state(), state)
    assert size(network) == info.parameters
    inputs = torch.randint(0, 255, (2, *shape), generator=torch_generator(0))
    inputs = inputs if info.name == "char-lstm" else inputs.to(torch.uint8)
    network.eval()
    features = network.features(inputs)
    assert features.shape == (2, network.head.in_features)
    torch.testing.assert_close(network(inputs), network.head(features))


def test_all_small_networks_are_listed():
    assert set(SMALL_MODELS) <= {info.name for info in model_names()}


def test_key_decides_the_weights():
    first, second, other = (load_classifier("mlp", 2, key=key, input_shape=(4,)) for key in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


@pytest.mark.parametrize(
    ("name", "input_shape"), [("mlp", None), ("conv4", (28, 28)), ("char-lstm", (3, 8, 8)), ("convnet", (0, 8, 8))]
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


@pytest.mark.parametrize(("gain", "factor"), [("sqrt2", math.sqrt(2)), ("e", math.e)])
def test_signed_constant(gain, factor):
    """Fan-in of the second convolution of Conv4: 3 * 3 * 64 = 576, so +-factor / 24, its biases too."""
    network = signed_constant_(Conv4((1, 8, 8), 10), key=3, gain=gain)
    convolution = network.convolutions[1]
    for parameter in (convolution.weight, convolution.bias):
        assert parameter.abs().unique().tolist() == pytest.approx([factor / 24])
    assert abs(convolution.weight.sign().mean().item()) < 5 / math.sqrt(convolution.weight.numel())
    again = signed_constant_(Conv4((1, 8, 8), 10), key=3, gain=gain)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("kind", BUILDERS)
def test_signed_constant_leaves_norms_alone(kind):
    network, _ = build(kind)
    signed_constant_(network, key=1)
    if kind == "convnet":
        assert network.blocks[0][1].weight.tolist() == [1.0] * 4
    if kind == "lstm":  # Four gates of 6 units; the input of the second layer and its state are 6 wide.
        assert network.lstm.bias_hh_l1.abs().unique().tolist() == pytest.approx([math.sqrt(2 / 6)])
    with pytest.raises(ModelError, match="sqrt2, e"):
        signed_constant_(network, key=1, gain="pi")
