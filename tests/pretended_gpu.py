"""A GPU that is only pretended: `python -m tests.pretended_gpu MODULE` runs a turn of every method on it.

torch's `FakeTensorMode` knows shapes, types and devices of tensors and computes no values; an operation on tensors of
two devices fails as on a real GPU. It needs a build of torch with that device, and ours is for the CPU: the device is
torch's place for others' back ends, registered without any operation. In a process of its own, since that cannot be
undone.

Only what touches the device is pretended. What happens on the CPU before and after is real, so that a whole turn runs
from the broadcast to the frames. Where values come back from the device, a ramp of numbers stands for them.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from subbit.runtime.messages import Phase

NAME = "pretended"
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "mlp": [
        {"method": "fedavg", "privacy": "per-step"},
        {"method": "fedavg", "optimizer": "adamw", "normalise": True, "gradient_clip": 1.0},
        {"method": "fedpm", "map": "projection"},
        {"method": "fedavg", "map": "subspace", "codec": "eden"},
        {"method": "zampling", "training": "continuous"},
        {"method": "fedavg", "micro_batch": 16, "gradient_clip": 1.0},
        {"method": "fedavg", "select": "head", "frozen_weights": "bfloat16"},
    ],
    "conv": [{"method": "fedavg", "batchnorm": "average"}, {"method": "lg-fedavg", "batchnorm": "average"}],
    "vit": [{"method": "fedpeft", "tuning": name} for name in ("bias", "adapter", "prompt", "prefix", "lora")],
}
"""Further jobs, which run through other code of a turn."""
SLOW = "vit"


class OnlyThere(FakeTensorMode):
    """Leaves operations that are all on the CPU as they are."""

    avoid_device_init = True  # type: ignore[assignment]  # Do not compute on the device what seems to be a constant.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(_is_there(leaf) for leaf in tree_leaves((args, kwargs))):
            found = super().__torch_dispatch__(func, types, args, kwargs)
            if isinstance(found, torch.Tensor) and not isinstance(found, FakeTensor) and found.device.type == "cpu":
                # Memory that nobody has written to.
                found.copy_(torch.linspace(0.1, 1, found.numel()).view(found.shape))
            return found
        return func(*args, **kwargs)


def _is_there(leaf: Any) -> bool:
    return isinstance(leaf, FakeTensor) or (isinstance(leaf, torch.device) and leaf.type == NAME)


def _ramp(tensor: FakeTensor, *_: Any, **__: Any) -> NDArray[Any]:
    """numpy() of a tensor that came from the device."""
    if tensor.device.type != "cpu":
        raise TypeError(f"can't convert {tensor.device} tensor to numpy: use subbit.core.devices.host")
    kind = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    return np.linspace(0.1, 1, tensor.numel()).astype(kind).reshape(tuple(tensor.shape))


@contextmanager
def pretended_gpu() -> Iterator[torch.device]:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME)
    with (
        patch.object(FakeTensor, "numpy", _ramp, create=True),
        patch.object(FakeTensor, "item", lambda tensor: 0.5, create=True),
        patch.object(FakeTensor, "__bool__", lambda tensor: True, create=True),
        patch.object(FakeTensor, "data_ptr", lambda tensor: id(tensor) << 32, create=True),
        patch("torch.random.fork_rng", lambda **_: _nothing()),
        patch.object(getattr(torch, NAME), "manual_seed", lambda key: None, create=True),
        OnlyThere(allow_non_fake_inputs=True),
    ):
        yield torch.device(NAME, 0)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def run_turns(device: torch.device, kind: str, only: str | None = None) -> dict[str, str]:
    """The methods and presets whose turn failed, with the reason."""
    from subbit.methods.names import METHODS, find_method

    jobs: list[dict[str, Any]] = [
        {"method": name, "preset": preset}
        for name in METHODS.names()
        for preset in find_method(name).presets
        if kind != SLOW or preset == "default"
    ]
    failed = {}
    for job in jobs + VARIANTS.get(kind, []):
        if only in (None, job["method"]):
            try:
                run_turn(device, kind, job)
            except Exception as error:
                ours = [line.strip() for line in traceback.format_exc().splitlines() if "/subbit/" in line]
                failed[str(job)] = f"{str(error).splitlines()[0]} {'; '.join(ours[-2:])}"
    return failed


def run_turn(device: torch.device, kind: str, job: dict[str, Any]) -> None:
    """Two turns of a client, its head before them where it can be fitted, and its own network after them."""
    from subbit.conformance.problems import MODULES, digits_problem, settings
    from subbit.methods.names import find_method
    from subbit.models.task import Turn
    from subbit.runtime.downlink import Broadcasts, make_downlink
    from subbit.runtime.workplace import Workplace

    problem = digits_problem(MODULES[kind](), examples=60)
    chosen = settings(**job, epochs=1)
    if find_method(job["method"]).trains_weights(chosen.parameters) and "privacy" not in job:
        chosen = settings(**job, epochs=1, head="probe")
    server = Workplace(problem, chosen, device=torch.device("cpu"))
    # Pruned on the CPU, from a copy of the network, which torch cannot make of a pretended one.
    kept = getattr(getattr(server.method("main").map, "network", None), "survivors", None)
    with patch("subbit.methods.hidenseek.surviving_places", lambda *_: kept.numpy()):  # type: ignore[union-attr]
        there = Workplace(problem, chosen, device=device)
    data, memory = problem.client_data(0), dict[str, Any]()
    phases: list[Phase] = ["head", "main"] if there.fits_head else ["main"]
    for phase in phases:
        there.attach(phase)
        sender, method = server.method(phase), there.method(phase)
        view = make_downlink(sender, phase, sender.start(), Broadcasts(), 0).view
        for number in (0, 1) if phase == "main" else (0,):
            method.train(view, data, Turn(number, 0, memory))
    method.write_received(view) if not method.personal else method.personalise(view, data, Turn(1, 0, memory))


def main() -> None:
    with pretended_gpu() as device:
        failed = run_turns(device, *sys.argv[1:])
    for name, reason in failed.items():
        print(f"{name}: {reason}")
    sys.stdout.flush()
    # torch has threads of its own for this device. At a usual exit one that is still alive may end the process with an
    # error ("terminate called without an active exception").
    os._exit(bool(failed))


if __name__ == "__main__":
    main()
