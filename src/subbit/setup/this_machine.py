"""Folders, data sets, bundled models, kernels and devices of this machine, for `subbit doctor`."""

from __future__ import annotations

import ast
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from subbit.core.errors import SubbitError
from subbit.sets.places import dataset_names
from subbit.setup.findings import Finding

PACKAGE = Path(__file__).parents[1]
ENOUGH = 1e9  # Bytes of free disk for runs of small networks.
TOO_LITTLE = 50e6


def folder_findings(runs: Path) -> Iterator[Finding]:
    """Whether results can be written. Nothing is left behind, and the folder is not made."""
    where = next((each for each in (runs, *runs.absolute().parents) if each.exists()), Path.cwd())
    try:
        with tempfile.TemporaryFile(dir=where):
            pass
        yield Finding(f"folder {runs}", True, f"can be written ({where.absolute()})")
    except OSError as error:
        advice = "change into a folder that you can write, or run with folder=ANOTHER"
        yield Finding(f"folder {runs}", False, f"{where}: {error.strerror or error}", advice, True)
    free = shutil.disk_usage(where).free
    advice = "delete old runs, or run with folder= on another disk"
    yield Finding("free disk", free >= ENOUGH, f"{free / 1e9:.1f} GB", advice, free < TOO_LITTLE)


def dataset_findings() -> Iterator[Finding]:
    """Those that are here, and one line for all others: nobody needs more than a few of them."""
    known = dataset_names()
    yield from (Finding(f"data {info.name}", True, "found") for info in known if info.found)
    missing = [info.name for info in known if not info.found]
    if missing:
        advice = "to use one, put it into data/NAME or $SUBBIT_DATA/NAME; subbit list datasets NAME says its origin"
        yield Finding("other named data", False, f"not on this machine: {', '.join(missing)}", advice)


def model_findings() -> Iterator[Finding]:
    """The bundled weights are what was published. Needs torch."""
    from subbit.models.load_model import BUNDLED, check_bundled

    for name in BUNDLED:
        try:
            check_bundled(name)
            yield Finding(f"model {name}", True, "whole")
        except (SubbitError, OSError) as error:
            yield Finding(f"model {name}", False, str(error), "pip install --force-reinstall --no-deps subbit", True)


def torch_findings() -> Iterator[Finding]:
    """The import that takes longest."""
    try:
        import torch
    except Exception as error:  # A broken library may raise anything.
        yield Finding("PyTorch", False, f"{type(error).__name__}: {error}", "pip install --force-reinstall torch", True)
        return
    from subbit.core.devices import PREFERRED, count_devices

    yield Finding("PyTorch", True, torch.__version__)
    counts = {kind: count_devices(kind) for kind in PREFERRED}
    names = [torch.cuda.get_device_name(number) for number in range(counts["cuda"])]
    found = ", ".join([*names, *(f"{count} {kind}" for kind, count in counts.items() if count and kind != "cuda")])
    yield Finding("devices", True, found or "no GPU: networks train on the CPU")
    yield Finding("CPU", True, f"{os.cpu_count()} threads; workers=N trains so many clients at a time")


def kernel_findings() -> Iterator[Finding]:
    """Whether numba has the machine code of our kernels on disk."""
    try:
        found = {name: is_kept for module in _kernel_modules() for name, is_kept in _kept(module)}
    except Exception as error:
        yield Finding("kernels", False, f"{type(error).__name__}: {error}", "pip install --force-reinstall numba", True)
        return
    kept = sum(found.values())
    advice = "subbit compile does it once; without it the first runs compile what they need"
    yield Finding("kernels", bool(found) and kept == len(found), f"{kept} of {len(found)} are compiled", advice)


def _kernel_modules() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "@njit" in text and any(_is_kernel(node) for node in ast.parse(text).body):
            yield ".".join(("subbit", *path.relative_to(PACKAGE).with_suffix("").parts))


def _is_kernel(node: ast.stmt) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "njit" for each in getattr(node, "decorator_list", ()))


def _kept(name: str) -> Iterator[tuple[str, bool]]:
    """numba offers no public way to the cache of a kernel; an index of another version of the source counts as none."""
    module = import_module(name)
    for thing in list(vars(module).values()):
        file = getattr(getattr(thing, "_cache", None), "_cache_file", None)
        if file is not None and thing.__module__ == name:
            yield f"{name}.{thing.__name__}", bool(file._load_index())
