"""Compiles every kernel into numba's cache on disk, so that no run waits for it.

A kernel is compiled for the types that it is called with, so this calls them the way runs do: every codec on its test
cases, a round of every method, a mean of long vectors, and a mask as a device loads it.
"""

from __future__ import annotations

import compileall
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import subbit
from subbit.aggregate.mean import MANY, WeightedMean
from subbit.codecs import Codec
from subbit.conformance.cases import payloads, shared_for, subjects
from subbit.conformance.problems import digits_problem, settings
from subbit.core.errors import PayloadError
from subbit.export.resident import write_masked
from subbit.methods.names import METHODS
from subbit.runtime.run import run_job

SIZES = (255, 1 << 14)
"""Some codecs treat short and long payloads differently."""
PRESETS = ("default", "paper")


def compile_kernels() -> dict[str, Path]:
    """All kernels by name, each with the file in which numba lists what it has compiled of it."""
    for subject in subjects():
        for codec in {subject.codec, subject.codec.contractive()}:
            for size in SIZES:
                _exercise(codec, size)
    problem = digits_problem(examples=60)
    for name in METHODS:
        for preset in PRESETS:
            run_job(problem, settings(method=name, preset=preset, rounds=2, evaluate_every=2))
    for dtype in (np.float32, np.float64):
        WeightedMean(MANY).add(np.zeros(MANY, dtype=dtype), 1)
    ones = np.ones(8, dtype=np.float32)
    write_masked(ones, np.ones(1, dtype=np.uint8), ones.copy())
    return dict(_kernels())


def compile_modules() -> None:
    """Python's own bytecode of subbit, where it is missing or old. Python keeps it when a module is first imported, but
    not where it may not write, or must not (PYTHONDONTWRITEBYTECODE, in many containers): there every process would
    compile the source anew, which takes as long as importing numpy. Best effort."""
    compileall.compile_dir(Path(subbit.__file__).parent, quiet=2)


def _exercise(codec: Codec[Any], size: int) -> None:
    shared = shared_for(codec.kind, size)
    for payload in payloads(codec.kind, shared).values():
        with suppress(PayloadError):  # Some codecs refuse numbers as large as those of one test case.
            codec.decode(codec.encode(payload, shared), shared)


def _kernels() -> Iterator[tuple[str, Path]]:
    """numba offers no public way to the cache of a kernel. With NUMBA_DISABLE_JIT=1 there are no kernels."""
    for module in [module for name, module in sorted(sys.modules.items()) if name.startswith("subbit.")]:
        for thing in list(vars(module).values()):
            file = getattr(getattr(thing, "_cache", None), "_cache_file", None)
            if file is not None and thing.__module__ == module.__name__:
                yield f"{module.__name__}.{thing.__name__}", Path(file._index_path)
