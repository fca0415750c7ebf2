"""What `subbit predict` is given: the run's test set, a data set, images, or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subbit.core.errors import DataError
from subbit.data import Examples
from subbit.data.examples import Indices, as_inputs
from subbit.data.form import Form, TensorForm, form_of
from subbit.data.formats import npz_names, read_npz
from subbit.data.images import SUFFIXES, decode_image, images_in
from subbit.export.runs import TrainedRun
from subbit.runtime.problem import build_problem

TEST = "test"
INPUT_NAMES = ("inputs", "x", "x_test", "arr_0")
"""Under which an .npz file may have inputs that are one array."""


class Batches(Protocol):
    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> Examples: ...


@dataclass(frozen=True)
class Inputs:
    what: str
    data: Batches
    names: Sequence[str] | None = None
    """Of files; other examples are numbered."""
    labelled: bool = True


def read_inputs(trained: TrainedRun, text: str) -> Inputs:
    problem, run = trained.workplace.problem, trained.workplace.settings.run
    path = Path(text).expanduser()
    if text == TEST:
        if trained.client is None:
            return Inputs("the run's test set", problem.test)
        own = problem.own_test(trained.client)
        return Inputs(f"the test set of client {trained.client}", problem.test.select(own))
    if not path.is_file() and path.suffix.lower() in (*SUFFIXES, ".npy", ".npz"):
        raise DataError(f"{text}: there is no such file")
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return _images([path], problem.form, str(path))
    if path.is_dir() and (files := images_in(path)):
        return _images(files, problem.form, str(path))
    if path.is_file() and path.suffix == ".npy":
        return _array(_read_npy(path), problem.form, str(path))
    if path.is_file() and path.suffix == ".npz" and "y_test" not in npz_names(path):
        return _arrays(path, problem.form)
    # As in a run, so that files are read in the same way; of the problem only the test set is used.
    everything = replace(run, dataset=text, limit=None, test_limit=None, validation=None)
    other = build_problem(replace(everything, clients=1, partition="iid", augment=None)).test
    needed, found = problem.form, form_of(other.batch(np.arange(1)))
    for name, form in needed.inputs:
        if dict(found.inputs).get(name) != form:
            raise DataError(f"{text}: found inputs {found}; the run was trained on {needed}")
    return Inputs(f"the test set of {text}", other)


@dataclass(frozen=True)
class _Files:
    """Images, read batch by batch in the form of the run's."""

    files: Sequence[Path]
    form: TensorForm

    def __len__(self) -> int:
        return len(self.files)

    def batch(self, indices: Indices) -> Examples:
        pixels = np.stack([self._read(self.files[place]) for place in indices])
        return Examples(torch.from_numpy(pixels), torch.zeros(len(indices), dtype=torch.int64))

    def _read(self, file: Path) -> NDArray[np.uint8]:
        from PIL import Image

        channels, height, width = self.form.shape
        pixels = decode_image(file, str(file))
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        image = image.convert("L" if channels == 1 else "RGB")
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image, dtype=np.uint8).reshape(height, width, channels).transpose(2, 0, 1).copy()


def _images(files: Sequence[Path], form: Form, where: str) -> Inputs:
    single = form.single if form.is_single else None
    if single is None or single.dtype != torch.uint8 or len(single.shape) != 3 or single.shape[0] not in (1, 3):
        raise DataError(f"{where}: found images; the run was trained on {form}, give these as an .npz file")
    return Inputs(where, _Files(files, single), [file.name for file in files], labelled=False)


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        # Mapped, so that the header's shape is checked against the file.
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error}); need an array of numbers") from error


def _array(array: NDArray[Any], form: Form, where: str) -> Inputs:
    return _unlabelled(_fitting(array, form.single, where), where)


def _arrays(path: Path, form: Form) -> Inputs:
    there = npz_names(path)
    if form.is_single:
        name = there[0] if len(there) == 1 else next((name for name in INPUT_NAMES if name in there), None)
        if name is None:
            raise DataError(f"{path}: found {', '.join(there)}; need inputs in an array named {INPUT_NAMES[0]}")
        return _array(read_npz(path, name), form, f"{path}, {name}")
    tensors = {name: _fitting(read_npz(path, name), one, f"{path}, {name}") for name, one in form.inputs}
    return _unlabelled(tensors, str(path))


def _unlabelled(inputs: Tensor | dict[str, Tensor], where: str) -> Inputs:
    count = len(inputs) if isinstance(inputs, Tensor) else len(next(iter(inputs.values())))
    return Inputs(where, Examples(inputs, torch.zeros(count, dtype=torch.int64)), labelled=False)


def _fitting(array: NDArray[Any], form: TensorForm, where: str) -> Tensor:
    """Inputs of the run's form; a single one may come without the first dimension."""
    tensor = as_inputs(array[None] if array.shape == form.shape else array, where)
    if tensor.dtype != form.dtype or tuple(tensor.shape[1:]) != form.shape:
        raise DataError(f"{where}: found {array.dtype} {list(array.shape)}; the run was trained on [n] of {form}")
    if not len(tensor):
        raise DataError(f"{where}: found no inputs; need at least one")
    return tensor
