"""The order of an epoch, the user's own data sets, the preparation of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from subbit.core.errors import ConfigError, DataError
from subbit.data import Examples, Preprocess, as_examples, batches


@given(count=st.integers(0, 40), batch_size=st.integers(1, 12), key=st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_an_epoch_is_a_permutation_without_a_lonely_last_example(count: int, batch_size: int, key: int) -> None:
    epoch = list(batches(count, batch_size, key))
    seen = [position for batch in epoch for position in batch.tolist()]
    dropped = count > 1 and batch_size > 1 and count % batch_size == 1
    assert len(seen) == len(set(seen)) == count - dropped
    assert set(seen) <= set(range(count))
    assert all(len(batch) == batch_size for batch in epoch[:-1])
    if batch_size > 1 and count > 1:
        assert all(len(batch) > 1 for batch in epoch)
    assert all(np.array_equal(one, two) for one, two in zip(epoch, batches(count, batch_size, key), strict=True))


def test_batches_edges() -> None:
    assert list(batches(0, 4, 1)) == []
    assert [batch.tolist() for batch in batches(1, 4, 1)] == [[0]]
    assert [len(batch) for batch in batches(9, 4, 1)] == [4, 4]
    assert [len(batch) for batch in batches(10, 4, 1)] == [4, 4, 2]
    assert [len(batch) for batch in batches(3, 1, 1)] == [1, 1, 1]
    assert not np.array_equal(next(batches(100, 100, 1)), next(batches(100, 100, 2)))
    with pytest.raises(ConfigError, match="batch size 0"):
        list(batches(4, 0, 1))


class Items(Dataset):  # type: ignore[type-arg]
    def __init__(self, *items: object) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> object:
        return self.items[position]


def test_as_examples_reads_every_kind() -> None:
    features, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0], dtype=torch.int32)
    for given_set in ((features, labels), (features.numpy(), labels.numpy()), TensorDataset(features, labels)):
        examples = as_examples(given_set)
        assert torch.equal(examples.inputs, features.float())
        assert examples.labels.tolist() == [0, 1, 2, 1, 0]
    assert as_examples(examples) is examples
    assert as_examples(Subset(TensorDataset(features, labels), [4, 2])).labels.tolist() == [0, 2]


def test_as_examples_items() -> None:
    image = np.arange(6, dtype=np.uint8).reshape(2, 3)
    examples = as_examples(Items((image, 1), (torch.from_numpy(image), np.int64(0)), (image, torch.tensor([2]))))
    assert examples.inputs.shape == (3, 1, 2, 3)
    assert examples.inputs.dtype == torch.uint8
    assert examples.labels.tolist() == [1, 0, 2]
    assert as_examples(Items((torch.ones(2, dtype=torch.bfloat16), 0))).inputs.dtype == torch.float32
    assert as_examples(Items((torch.arange(4), 0))).inputs.dtype == torch.int64
    assert len(as_examples(Items())) == 0


def test_as_examples_does_not_share_memory_with_the_user() -> None:
    features = torch.zeros(2, 2)
    examples = as_examples((features, torch.tensor([0, 1])))
    features += 1
    assert not examples.inputs.any()


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        return iter(int, 1)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Items((torch.zeros(2), 0), (torch.zeros(3), 0)), r"item 1: found float32 \[3\] after float32 \[2\]"),
        (
            Items((torch.zeros(2), 0), (torch.zeros(2, dtype=torch.uint8), 0)),
            r"item 1: found uint8 \[2\] after float32",
        ),
        (Items((torch.zeros(2), 0.5)), "item 0, label: found float"),
        (Items((torch.zeros(2), True)), "item 0, label: found bool"),
        (Items((torch.zeros(2), torch.tensor([1, 2]))), "item 0: found label"),
        (Items((torch.zeros(2), torch.tensor(1.0))), "item 0: found label"),
        (Items((torch.zeros(2), -1)), "found labels from -1"),
        (Items(torch.zeros(2)), "item 0: found Tensor; need a pair"),
        (Items((Image.new("L", (2, 2)), 0)), "item 0: found Image; need tensors"),
        (Items((torch.zeros(2, 2, dtype=torch.int64), 0)), "images need the type uint8"),
        ((torch.zeros(3, 2), torch.tensor([0, 1])), "found 3 inputs and 2 labels"),
        ((torch.zeros(3, 2), torch.zeros(3)), "need integers"),
        ((torch.full((1, 2), torch.inf), torch.tensor([0])), "2 features that are not finite"),
        (Endless(), "with __len__ and __getitem__"),
        (7, "found int"),
    ],
)
def test_as_examples_refuses(dataset: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_examples(dataset)  # type: ignore[arg-type]


def test_preprocess_by_hand() -> None:
    """Grey 0 and 255 with mean .5 and std .25, .5: (0 - .5) / .25 = -2 and (1 - .5) / .5 = 1."""
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    output = Preprocess(channels=2, mean=0.5, std=[0.25, 0.5])(images)
    assert output.tolist() == [[[[-2.0, 2.0]], [[-1.0, 1.0]]]]
    assert output.dtype == torch.float32


def test_preprocess_resizes() -> None:
    """A step from 0 to 1, doubled by bilinear interpolation between pixel centres, is 0, 1/4, 3/4, 1."""
    step = torch.tensor([0, 255], dtype=torch.uint8).expand(1, 1, 2, 2)
    assert Preprocess(image_size=4)(step)[0, 0, 0].tolist() == [0.0, 0.25, 0.75, 1.0]
    constant = torch.full((1, 3, 9, 7), 51, dtype=torch.uint8)
    assert torch.allclose(Preprocess(image_size=4)(constant), torch.full((1, 3, 4, 4), 0.2))
    # Antialiasing: a single white pixel of 64 x 64 survives shrinking to 8 x 8, with its share of the light.
    dot = torch.zeros(1, 1, 64, 64, dtype=torch.uint8)
    dot[0, 0, 29, 29] = 255
    assert Preprocess(image_size=8)(dot).mean().item() == pytest.approx(1 / 64**2, rel=0.05)


def test_preprocess_passes_features_and_tokens() -> None:
    module = Preprocess(32, 3, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    features, tokens = torch.randn(2, 5, dtype=torch.float64), torch.arange(6).reshape(2, 3)
    assert torch.equal(module(features), features.float())
    assert torch.equal(module(tokens), tokens)
    assert module.state_dict() == {}
    assert module(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape == (2, 3, 32, 32)


def test_preprocess_refuses() -> None:
    colour = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    with pytest.raises(DataError, match="found images of 3 channels; need 1"):
        Preprocess(channels=1)(colour)
    with pytest.raises(DataError, match="mean and std of 2 channels for images of 3"):
        Preprocess(mean=[0.1, 0.2])(colour)
    with pytest.raises(DataError, match="need images"):
        Preprocess()(colour[0])
    with pytest.raises(ConfigError, match="found std"):
        Preprocess(std=0.0)
    with pytest.raises(ConfigError, match="found image size 0"):
        Preprocess(image_size=0)


def test_examples_and_batches_work_together() -> None:
    examples = Examples(torch.zeros(5, 1, 4, 4, dtype=torch.uint8), torch.arange(5))
    seen = torch.cat([examples.select(batch).labels for batch in batches(len(examples), 2, 0)])
    assert len(seen) == 4
