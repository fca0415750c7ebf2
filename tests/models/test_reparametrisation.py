import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import uniforms_numpy
from torch.nn import functional

from subbit.codecs.sampler import subkeys
from subbit.core.errors import ModelError
from subbit.core.randomness import torch_generator
from subbit.models import reparametrisation
from subbit.models.reparametrisation import (
    SCORE_LIMIT,
    BernoulliMask,
    Identity,
    ThresholdMask,
    clamp_scores_,
)

LOG_3 = float(np.log(3.0))  # sigmoid(log 3) = 3/4, sigmoid(-log 3) = 1/4


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch_generator(seed))


def masked_linear_gradient(scores, initial, mask, inputs, targets, extra_theta):
    """The straight-through estimator as autograd sees it: forward the sampled bit, backward theta."""
    scores = scores.clone().requires_grad_()
    theta = torch.sigmoid(scores)
    bit = theta + (mask - theta).detach()
    if extra_theta:  # The same bit forward; its derivative times theta backward.
        bit = mask + theta.detach() * (theta - theta.detach())
    functional.cross_entropy(functional.linear(inputs, initial * bit), targets).backward()
    return scores.grad


@pytest.mark.parametrize("straight_through", ["identity", "theta"])
def test_gradient_of_a_masked_linear_layer(straight_through):
    initial, scores, inputs = random(3, 5, seed=1), random(3, 5, seed=2), random(8, 5, seed=3)
    targets = torch.arange(8) % 3
    mask = BernoulliMask(initial.flatten(), straight_through)
    weights = torch.empty(15)
    mask.write(scores.flatten(), weights, key=7)
    layer_weights = weights.view(3, 5).clone().requires_grad_()
    functional.cross_entropy(functional.linear(inputs, layer_weights), targets).backward()
    pulled = torch.empty(15)
    mask.pull_back(layer_weights.grad.flatten(), scores.flatten(), pulled)
    bits = (weights != 0).float().view(3, 5)
    assert 0 < bits.sum() < 15
    expected = masked_linear_gradient(scores, initial, bits, inputs, targets, straight_through == "theta")
    torch.testing.assert_close(pulled, expected.flatten(), rtol=1e-5, atol=1e-7)


def test_gradient_by_hand():
    """theta = 3/4: theta (1 - theta) = 3/16; g = 2, w0 = -4: -8 * 3/16 = -1.5, and -1.125 with another theta."""
    arguments = torch.tensor([2.0]), torch.tensor([LOG_3])
    out = torch.empty(1)
    for mask, expected in [
        (BernoulliMask(torch.tensor([-4.0])), -1.5),
        (BernoulliMask(torch.tensor([-4.0]), "theta"), -1.125),
        (ThresholdMask(torch.tensor([-4.0])), -1.5),
    ]:
        mask.pull_back(*arguments, out)
        assert out.item() == pytest.approx(expected, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(key=st.integers(0, 2**64 - 1), size=st.sampled_from([0, 1, 31, 100, 65535, 65536, 65539]))
def test_masks_are_those_of_the_shared_sampler(key, size):
    """Oracle in numpy: the upper 24 of the sampler's 32 bits, as a fraction, below theta."""
    initial, scores, weights = random(size, seed=1), 3 * random(size, seed=2), torch.full((size,), torch.nan)
    BernoulliMask(initial).write(scores, weights, key)
    fractions = (uniforms_numpy(key, 0, size) >> np.uint32(8)) / np.float32(2**24)
    kept = fractions < torch.sigmoid(scores).numpy()
    assert np.array_equal(weights.numpy(), np.where(kept, initial.numpy(), 0.0))


def test_kernels_without_a_compiler():
    """The same bits from the same functions run by Python."""
    theta, initial, gradient = (random(50, seed=seed).sigmoid().numpy() for seed in range(3))
    words = subkeys(3)
    for name, arguments in [
        ("_keep", (*words, np.uint32(7), theta, initial)),
        ("_straight_through", (gradient, initial, theta)),
    ]:
        kernel = getattr(reparametrisation, name)
        compiled, interpreted = np.empty((2, 50), dtype=np.float32)
        kernel(*arguments, compiled)
        with np.errstate(over="ignore"):  # Products modulo 2^32.
            getattr(kernel, "py_func", kernel)(*arguments, interpreted)
        assert np.array_equal(compiled, interpreted)


def test_frequencies():
    """200,000 draws of a bit with chance 3/4: five standard deviations of their mean are 5 sqrt(3/16 / 200,000)."""
    size = 200_000
    weights = torch.empty(size)
    mask = BernoulliMask(torch.ones(size))
    mask.write(torch.full((size,), LOG_3), weights, key=1)
    assert abs(weights.mean().item() - 0.75) < 5 * (3 / 16 / size) ** 0.5
    first = weights.clone()
    mask.write(torch.full((size,), LOG_3), weights, key=2)
    both = (first * weights).mean().item()  # Independent keys: 9/16 of the places are kept twice.
    assert abs(both - 9 / 16) < 5 * (9 / 16 * 7 / 16 / size) ** 0.5


def test_certain_bits():
    """sigmoid(200) is 1 and sigmoid(-200) is 0 in float32: always kept, never kept."""
    weights = torch.empty(1000)
    mask = BernoulliMask(torch.ones(1000))
    for score, expected in [(200.0, 1.0), (-200.0, 0.0)]:
        mask.write(torch.full((1000,), score), weights, key=3)
        assert weights.unique().tolist() == [expected]


def test_networks_of_a_mask_by_hand():
    initial, scores, weights = torch.tensor([2.0, -2.0, 4.0]), torch.tensor([LOG_3, -LOG_3, 0.0]), torch.empty(3)
    mask = BernoulliMask(initial)
    mask.expected(scores, weights)
    torch.testing.assert_close(weights, torch.tensor([1.5, -0.5, 2.0]))
    mask.thresholded(scores, weights)
    assert weights.tolist() == [2.0, 0.0, 4.0]
    ThresholdMask(initial, 0.6).write(scores, weights, key=0)
    assert weights.tolist() == [2.0, 0.0, 0.0]
    ThresholdMask(initial, 0.0).write(scores, weights, key=0)
    assert weights.tolist() == [2.0, -2.0, 4.0]


def test_the_frozen_weights_are_only_read_and_the_gradient_may_be_written_over():
    initial, scores, gradient = random(300_000, seed=1), random(300_000, seed=2), random(300_000, seed=3)
    kept, apart = initial.clone(), torch.empty(300_000)
    mask = BernoulliMask(initial)
    mask.write(scores, torch.empty(300_000), key=0)
    mask.pull_back(gradient, scores, apart)
    mask.pull_back(gradient, scores, gradient)
    assert torch.equal(initial, kept)
    assert torch.equal(gradient, apart)


def test_identity():
    identity, weights, out = Identity(3), torch.empty(3), torch.empty(3)
    trained = random(3).requires_grad_()
    identity.write(trained, weights, key=0)
    identity.pull_back(torch.tensor([1.0, 2.0, 3.0]), trained, out)
    assert torch.equal(weights, trained.detach())
    assert out.tolist() == [1.0, 2.0, 3.0]


def test_clamped_scores_still_have_a_gradient():
    scores = clamp_scores_(torch.tensor([-1e9, -3.0, 40.0]))
    assert scores.tolist() == [-SCORE_LIMIT, -3.0, SCORE_LIMIT]
    out = torch.empty(3)
    BernoulliMask(torch.ones(3)).pull_back(torch.ones(3), scores, out)
    assert (out > 0).all()


@pytest.mark.parametrize(
    ("scores", "weights"),
    [(torch.zeros(4), torch.zeros(3)), (torch.zeros(3), torch.zeros(4)), (torch.zeros(3), torch.zeros(3).double())],
)
def test_other_shapes_are_refused(scores, weights):
    with pytest.raises(ModelError, match=r"float32 \(3,\)"):
        BernoulliMask(torch.ones(3)).write(scores, weights, key=0)


def test_other_options_are_refused():
    with pytest.raises(ModelError, match="identity, theta"):
        BernoulliMask(torch.ones(3), "sigmoid")
    with pytest.raises(ModelError, match="between 0 and 1"):
        ThresholdMask(torch.ones(3), 1.5)
