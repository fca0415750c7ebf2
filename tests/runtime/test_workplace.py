"""One module for two phases: who is bound to it, and whose frames are whose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from subbit.codecs import make_codec
from subbit.core.errors import FrameError
from subbit.methods.method import Turn
from subbit.runtime.high_loss import pack_loss, unpack_loss
from subbit.runtime.messages import channel_of
from subbit.runtime.workplace import Workplace
from subbit.wire.channel import Channel, Part, down, up
from subbit.wire.frame import read_header
from tests.problems import digits_problem, settings


def two_phases() -> Workplace:
    """FedAvg trains the head further, so that both phases have it in their own vector."""
    return Workplace(digits_problem(), settings(method="fedavg", head="lda"))


def bound_to(workplace: Workplace) -> str:
    """The phase whose vector the head of the module is in."""
    assert workplace.head_template is not None
    weight = workplace.module.get_parameter(workplace.head_template.names[0])
    for phase in ("head", "main"):
        flat = workplace.method(phase).task.flat  # type: ignore[arg-type]
        if weight.untyped_storage().data_ptr() == flat.weights.untyped_storage().data_ptr():
            return phase
    return "nothing"


def test_asking_for_a_method_binds_nothing_and_attaching_does() -> None:
    workplace = two_phases()
    assert bound_to(workplace) == "main"
    workplace.method("head")
    assert bound_to(workplace) == "main"
    workplace.attach("head")
    workplace.method("main")
    assert bound_to(workplace) == "head"


def test_a_network_is_written_into_the_main_phase_whatever_was_bound() -> None:
    workplace = two_phases()
    workplace.attach("head")
    method = workplace.method("main")
    state = {name: np.full_like(value, 0.5) for name, value in method.start().items()}
    workplace.write_network(state, method.primary_network, 0, None)
    assert bound_to(workplace) == "main"
    assert all(torch.all(parameter == 0.5) for parameter in workplace.module.parameters())


def test_a_loss_is_not_a_part_of_the_method_though_codec_and_size_are_the_same() -> None:
    """Both are the first frame of a message: the hash in the header tells them apart."""
    method = two_phases().method("main")
    alike = channel_of(method, "main", Part("weights", make_codec("dense"), 1))
    frame = alike.pack(np.ones(1, np.float32), up(2, 4))
    assert read_header(frame).part == read_header(pack_loss(method, 1.0, Turn(2, 4, {}))).part == 0
    with pytest.raises(FrameError) as caught:
        unpack_loss(method, (frame,), 2, 4)
    assert caught.value.cause == "template"


def test_a_fitted_head_is_not_a_broadcast_though_codec_and_size_are_the_same() -> None:
    workplace = two_phases()
    head = np.arange(workplace.method("head").size + 10, dtype=np.float32)
    assert np.array_equal(workplace.unpack_head(workplace.pack_head(head)), head)
    part = Part("head", make_codec("dyadic"), head.size)
    broadcasts: list[Channel] = [channel_of(workplace.method(phase), phase, part) for phase in ("head", "main")]  # type: ignore[arg-type]
    for channel in broadcasts:
        with pytest.raises(FrameError) as caught:
            workplace.unpack_head(channel.pack(head, down(0)))
        assert caught.value.cause == "template"
