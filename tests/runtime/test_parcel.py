"""Large contents of messages go through shared memory, once for all messages that hold them."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest

from subbit.runtime.engines import _opened, _packed
from subbit.runtime.messages import Order
from subbit.runtime.parcel import LARGE, Packer, SharedArray, SharedBytes, unpack


@pytest.mark.parametrize(
    "value",
    [
        b"",
        bytes(range(256)) * LARGE,
        (b"small", b"x" * LARGE),
        {"counts": np.arange(LARGE, dtype=np.uint16), "total": 3},
        np.arange(LARGE, dtype=np.float64).reshape(2, -1),
        np.arange(2 * LARGE, dtype=np.float32)[::2],
        None,
        7,
    ],
)
def test_what_is_packed_comes_out_again(value: Any) -> None:
    found = unpack(Packer().pack(value))
    np.testing.assert_equal(found, value)
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert found.shape == value.shape
        assert not found.flags.writeable


def test_small_values_stay_as_they_are_and_large_ones_are_stored_once() -> None:
    broadcast, packer = (b"x" * LARGE,), Packer()
    one, two = packer.pack(broadcast), packer.pack(broadcast)
    assert isinstance(one[0], SharedBytes)
    assert one[0] is two[0]
    assert isinstance(packer.pack(np.zeros(LARGE)), SharedArray)
    assert packer.pack((b"y" * (LARGE - 1),)) == (b"y" * (LARGE - 1),)


def echo(connection: Any) -> None:
    orders = connection.recv()
    connection.send(_packed([_opened(order) for order in orders]))
    connection.recv()


def test_orders_to_another_process_and_back_are_a_few_bytes_in_the_pipe() -> None:
    broadcast = (np.random.default_rng(0).bytes(10 * LARGE),)
    orders = [Order("main", 0, client, broadcast) for client in range(3)]
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=echo, args=(theirs,))
    process.start()
    packed = _packed(orders)
    assert len(multiprocessing.reduction.ForkingPickler.dumps(packed)) < LARGE
    ours.send(packed)
    assert [_opened(order) for order in ours.recv()] == orders
    ours.send(None)
    process.join()
