"""Fingerprints of what was given to `subbit.fine_tune`: no configuration names it, and a resumed run needs the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from subbit.data import Examples
from subbit.runtime.problem import Problem

WIDTH = 13  # Of the names in split.txt.


def fingerprints(problem: Problem) -> dict[str, str]:
    state = {name: value for name, value in problem.module.state_dict().items() if isinstance(value, Tensor)}
    return {
        "module": _digest([*state], state.values()),
        "data": _of_examples(problem.train),
        "test": _of_examples(problem.test),
    }


def as_lines(found: dict[str, str]) -> str:
    return "\n".join(f"{name:<{WIDTH}}{digest}" for name, digest in found.items())


def differing(recorded: str, split: str, found: dict[str, str]) -> list[str]:
    """What differs from the text recorded at the start of the run. Runs of earlier versions recorded only the split."""
    if recorded == split:
        return []
    if not recorded.startswith(f"{split}\n"):
        return ["the split"]
    lines = recorded.removeprefix(f"{split}\n").splitlines()
    return [f"the {name}" for name, digest in found.items() if as_lines({name: digest}) not in lines]


def _of_examples(examples: Examples) -> str:
    return _digest(list(examples.owners or ()), [examples.inputs, examples.labels])


def _digest(names: list[str], tensors: Iterable[Tensor]) -> str:
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=16)
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
