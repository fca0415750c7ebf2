import copy
from itertools import pairwise

import pytest
import torch
from example_networks import BUILDERS, build, labels
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from subbit.conformance.method_laws import frozen_digest
from subbit.core.errors import ModelError
from subbit.core.randomness import torch_generator
from subbit.models.flat import FlatModel, model_sha256
from subbit.models.reparametrisation import BernoulliMask, clamp_scores_
from subbit.models.select import select_parameters
from subbit.models.ties import copy_module


def loss_of(module, inputs):
    return functional.cross_entropy(module(inputs), labels())


@pytest.mark.parametrize("kind", BUILDERS)
def test_weights_and_module_are_one_memory(kind):
    module, inputs = build(kind)
    untouched = copy.deepcopy(module)
    flat = FlatModel(module, "all: weights")
    flat.evaluation_mode()
    untouched.eval()
    assert torch.equal(module(inputs), untouched(inputs))
    assert torch.equal(
        flat.initial, torch.cat([untouched.get_parameter(name).flatten() for name in flat.template.names])
    )
    flat.weights.mul_(0.5)
    with torch.no_grad():
        for name in flat.template.names:
            untouched.get_parameter(name).mul_(0.5)
    assert torch.equal(module(inputs), untouched(inputs))
    assert not torch.equal(flat.weights, flat.initial)


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("selection", ["all", "head", "backbone: weights"])
def test_gradient_is_what_autograd_gives_an_untouched_copy(kind, selection):
    module, inputs = build(kind)
    untouched = copy.deepcopy(module)
    flat = FlatModel(module, selection, batchnorm="average")
    flat.training_mode()
    untouched.train()
    loss_of(module, inputs).backward()
    loss_of(untouched, inputs).backward()
    expected = [untouched.get_parameter(name).grad.flatten() for name in flat.template.names]
    assert torch.equal(flat.gradient, torch.cat(expected))
    assert flat.gradient.abs().sum() > 0
    flat.zero_gradient()
    assert all(not parameter.grad.any() for parameter in module.parameters() if parameter.requires_grad)


def test_gradients_accumulate_in_place():
    module, inputs = build("mlp")
    flat = FlatModel(module, "all")
    loss_of(module, inputs).backward()
    once = flat.gradient.clone()
    loss_of(module, inputs).backward()
    assert torch.equal(flat.gradient, 2 * once)


@pytest.mark.parametrize("kind", BUILDERS)
def test_frozen_weights_are_bit_identical_after_twenty_mask_steps(kind):
    module, inputs = build(kind)
    flat = FlatModel(module, "backbone: weights")
    before = frozen_digest(flat)
    mask = BernoulliMask(flat.initial)
    scores = torch.zeros_like(flat.weights)
    scores.grad = torch.zeros_like(scores)
    optimizer = torch.optim.Adam([scores], lr=0.1)
    flat.training_mode()
    for step in range(20):
        mask.write(scores, flat.weights, key=step)
        flat.zero_gradient()
        loss_of(module, inputs).backward()
        mask.pull_back(flat.gradient, scores, scores.grad)
        optimizer.step()
        clamp_scores_(scores)
    assert frozen_digest(flat) == before
    assert scores.abs().max() > 0.1
    kept = flat.weights != 0
    assert 0 < kept.sum() < flat.template.size
    assert torch.equal(flat.weights[kept], flat.initial[kept])
    trained = set(flat.template.names)
    assert all(parameter.grad is None for name, parameter in module.named_parameters() if name not in trained)


def test_frozen_digest_sees_one_bit():
    module, _ = build("convnet")
    flat = FlatModel(module, "head")
    before = frozen_digest(flat)
    flat.weights.zero_()
    assert frozen_digest(flat) == before
    module.blocks[0][1].running_var[0] += 1e-7
    assert frozen_digest(flat) != before


def test_two_flat_models_on_one_module():
    """Each owns its values: attaching one brings back what was last written to it."""
    module, inputs = build("mlp")
    head, everything = FlatModel(module, "head"), FlatModel(module, "all")
    everything.weights.fill_(2.0)
    assert module.head.weight.unique().tolist() == [2.0]
    head.attach()
    assert torch.equal(module.head.weight.flatten(), head.initial[:15])
    assert [name for name, parameter in module.named_parameters() if parameter.requires_grad] == [
        "head.weight",
        "head.bias",
    ]
    assert module.layers[0].weight.unique().tolist() == [2.0]
    loss_of(module, inputs).backward()
    assert head.gradient.any()
    assert not everything.gradient.any()
    everything.attach()
    assert all(parameter.requires_grad for parameter in module.parameters())
    loss_of(module, inputs).backward()
    assert everything.gradient.any()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)


def one_parameter_under_two_names(module):
    module.second.weight = module.first.weight


def two_parameters_in_one_storage(module):
    module.second.weight = nn.Parameter(module.first.weight.data.T)


def overlapping_storage(module):
    memory = torch.zeros(20)
    module.first.weight = nn.Parameter(memory[:16].view(4, 4))
    module.second.weight = nn.Parameter(memory[4:].view(4, 4))


@pytest.mark.parametrize("selection", ["all", "first.weight", "second.weight"])
def test_a_tied_parameter_has_one_place(selection):
    module, inputs = Tied(), torch.randn(3, 4)
    one_parameter_under_two_names(module)
    flat = FlatModel(module, selection)
    assert flat.template.names.count("first.weight") == 1
    assert "second.weight" not in flat.template.names
    assert module.second.weight is module.first.weight
    flat.backward(loss_of_tied(module, inputs))
    views = dict(zip(flat.template.names, flat.template.views(flat.gradient), strict=True))
    # By hand: the gradients of both places, added.
    apart = copy.deepcopy(module)
    apart.second.weight = nn.Parameter(apart.first.weight.detach().clone())
    loss_of_tied(apart.requires_grad_(True), inputs).backward()
    torch.testing.assert_close(views["first.weight"], apart.first.weight.grad + apart.second.weight.grad)
    with torch.no_grad():
        flat.weights.fill_(0.5)
    assert all(bool((module.state_dict()[f"{name}.weight"] == 0.5).all()) for name in ("first", "second"))


def loss_of_tied(module, inputs):
    return module.head(module.second(torch.tanh(module.first(inputs)))).square().mean()


def test_copies_stay_tied():
    module = Tied()
    module.second.weight = nn.Parameter(module.first.weight.data)  # Two parameters, one tensor.
    copied = copy_module(module)
    assert copied.second.weight is copied.first.weight
    assert copied.first.weight.data_ptr() != module.first.weight.data_ptr()
    assert module.second.weight is not module.first.weight
    assert FlatModel(copied, "all: weights").template.size == 16 + 8


@pytest.mark.parametrize("tie", [two_parameters_in_one_storage, overlapping_storage])
@pytest.mark.parametrize("selection", ["all", "first.weight", "second.weight"])
def test_different_parameters_in_one_memory_are_refused(tie, selection):
    module = Tied()
    tie(module)
    with pytest.raises(ModelError, match=r"first\.weight.*second\.weight.*clone") as caught:
        FlatModel(module, selection)
    assert "select another part" in str(caught.value)
    FlatModel(module, "head + *.bias")  # What is tied but frozen does no harm.


def test_other_types_and_places_are_refused():
    module = Tied()
    module.first.double()
    with pytest.raises(ModelError, match=r"first\.weight is torch\.float64"):
        FlatModel(module, "all")
    FlatModel(module, "head")
    with pytest.raises(ModelError, match="meta"):
        FlatModel(Tied().to("meta"), "all")
    with pytest.raises(ModelError, match="frozen, batch, average"):
        FlatModel(Tied(), "all", batchnorm="running")


def norm_of_one_feature():
    return nn.Sequential(nn.BatchNorm1d(1, eps=1e-30), nn.Linear(1, 1))


PAIR = torch.tensor([[1.0], [3.0]])
"""Mean 2, variance 1 (biased) and 2 (unbiased): normalised to -1 and 1."""


def test_frozen_batchnorm():
    """Running mean 0 and variance 1 leave 1 and 3 as they are, in training as in evaluation."""
    flat = FlatModel(norm_of_one_feature(), "all", batchnorm="frozen")
    norm = flat.module[0]
    for mode in (flat.training_mode, flat.evaluation_mode):
        mode()
        assert norm(PAIR).flatten().tolist() == [1.0, 3.0]
    assert (norm.running_mean.item(), norm.running_var.item(), norm.num_batches_tracked.item()) == (0.0, 1.0, 0)
    assert flat.statistics is None
    flat.training_mode()
    assert flat.module[1].training


def test_batch_statistics_in_training_and_evaluation():
    flat = FlatModel(norm_of_one_feature(), "all", batchnorm="batch")
    norm = flat.module[0]
    for mode in (flat.training_mode, flat.evaluation_mode):
        mode()
        assert norm(PAIR).flatten().tolist() == [-1.0, 1.0]
    assert (norm.running_mean.item(), norm.running_var.item(), norm.num_batches_tracked.item()) == (0.0, 1.0, 0)
    assert not flat.module[1].training
    FlatModel(flat.module, "all", batchnorm="frozen").evaluation_mode()  # Another policy on the same module.
    assert norm(PAIR).flatten().tolist() == [1.0, 3.0]


def test_averaged_statistics():
    """With momentum 0.1: mean 0.9 * 0 + 0.1 * 2 = 0.2, variance 0.9 * 1 + 0.1 * 2 = 1.1."""
    flat = FlatModel(norm_of_one_feature(), "all", batchnorm="average")
    norm = flat.module[0]
    assert flat.statistics_template.names == ("0.running_mean", "0.running_var")
    assert flat.statistics.tolist() == [0.0, 1.0]
    frozen = frozen_digest(flat)
    flat.training_mode()
    assert norm(PAIR).flatten().tolist() == [-1.0, 1.0]
    torch.testing.assert_close(flat.statistics, torch.tensor([0.2, 1.1]))
    flat.evaluation_mode()
    assert norm.num_batches_tracked.item() == 0
    assert frozen_digest(flat) == frozen
    flat.statistics.copy_(torch.tensor([1.0, 4.0]))
    assert norm(PAIR).flatten().tolist() == [0.0, 1.0]
    norm.running_mean.data = torch.tensor([7.0])
    flat.attach()
    assert norm.running_mean.item() == 1.0


def test_average_without_batchnorm_has_no_statistics():
    assert FlatModel(build("mlp")[0], "all", batchnorm="average").statistics is None


def test_dropout_stays_as_the_module_says():
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    flat = FlatModel(module, "all")
    flat.training_mode()
    assert module[1].training
    flat.evaluation_mode()
    assert not module[1].training


def test_model_digest():
    module, _ = build("convnet")
    digest = model_sha256(module)
    assert len(digest) == 64
    FlatModel(module, "all", batchnorm="average")
    assert model_sha256(module) == digest
    assert model_sha256(copy.deepcopy(module)) == digest
    module.blocks[0][1].num_batches_tracked += 1
    assert model_sha256(module) != digest
    half = nn.Linear(2, 2).bfloat16()
    assert model_sha256(half) != model_sha256(half.float())


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    kinds=st.sampled_from(["all", "weights", "biases"]),
    seed=st.integers(0, 2**32),
)
def test_writing_a_flat_vector_is_writing_its_parameters(sizes, kinds, seed):
    layers = [nn.Linear(before, after) for before, after in pairwise(sizes)]
    module = nn.Sequential(*layers)
    flat = FlatModel(module, f"all: {kinds}")
    values = torch.randn(flat.template.size, generator=torch_generator(seed))
    flat.weights.copy_(values)
    names = select_parameters(module, f"all: {kinds}")
    assert torch.equal(torch.cat([module.get_parameter(name).detach().flatten() for name in names]), values)
