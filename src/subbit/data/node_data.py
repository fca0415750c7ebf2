"""A node's own folder of images: <class>/*.png, or train/<class>/*.png and test/<class>/*.png.

The classes are those of the job, in its order, since a node need not have all of them: numbers by the names of a
node's own folders would mean something else on every node.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from subbit.core.errors import DataError
from subbit.data.examples import Examples
from subbit.data.images import images_in, read_images

TESTS = ("test", "validation", "val")


def read_folder(where: str, names: list[str] | None) -> tuple[Examples, Examples | None] | None:
    """Training examples and, if there are any, test examples; none if this is no folder of images by class."""
    folder = Path(where.partition("?")[0]).expanduser()
    if not folder.is_dir():
        return None
    train = folder / "train" if (folder / "train").is_dir() else folder
    classes = sorted(path.name for path in train.iterdir() if path.is_dir() and images_in(path))
    if not classes:
        return None
    if names is None:
        raise DataError(f"found class folders ({', '.join(classes[:5])}); the job must name its classes: class_names")
    test = next((folder / name for name in TESTS if (folder / name).is_dir()), None) if train != folder else None
    return _read(train, names), None if test is None else _read(test, names)


def _read(folder: Path, names: list[str]) -> Examples:
    found = sorted(path.name for path in folder.iterdir() if path.is_dir())
    strangers = [name for name in found if name not in names]
    if strangers:
        raise DataError(f"found a class {strangers[0]!r}; the job has {', '.join(names)} (class_names)")
    files = [(path, label) for label, name in enumerate(names) for path in images_in(folder / name)]
    images = read_images([path for path, _ in files], None, folder.name)
    return Examples(images, torch.from_numpy(np.array([label for _, label in files], dtype=np.int64)))
