"""Photographs as single files with published splits (Food-101, Cars196, Tiny-ImageNet), and class folders without a
split (EuroSAT, Resisc45).

    Food-101       images/<class>/<number>.jpg; meta/train.txt and meta/test.txt have lines <class>/<number>
    Cars196        cars_train/*.jpg, cars_test/*.jpg; devkit/cars_train_annos.mat and cars_test_annos_withlabels.mat
    Tiny-ImageNet  train/<wnid>/images/*.JPEG; val/images/*.JPEG with val/val_annotations.txt; val is the test split
    class folders  <class>/*.jpg; the split is in *train.txt and *test.txt (one file name per line) if they exist,
                   else every fifth image of a class, sorted by name, is a test example

`size` stretches images to a square while they are read. It is needed for photographs of different sizes; the default is
224 for Food-101 and Cars196, as in the papers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from subbit.core.errors import DataError
from subbit.data.examples import Source
from subbit.data.images import SUFFIXES, image_source, images_in
from subbit.data.lookup import inside, read_lines
from subbit.data.matlab import read_structs

TEST_SHARE = 5
Members = list[tuple[Path, int]]


def open_food101(folder: Path, *, size: int = 224) -> tuple[Source, Source]:
    lists = {split: read_lines(folder / "meta" / f"{split}.txt") for split in ("train", "test")}
    names = sorted({line.partition("/")[0] for line in lists["train"]})

    def source(split: str) -> Source:
        where = str(folder / "meta" / f"{split}.txt")
        labels = _numbers((line.partition("/")[0] for line in lists[split]), names, where)
        files = [inside(folder / "images", f"{line}.jpg", where) for line in lists[split]]
        return image_source(where, files, labels, len(names), size)

    return source("train"), source("test")


def open_cars(folder: Path, *, size: int = 224) -> tuple[Source, Source]:
    def source(split: str, annotations: str) -> Source:
        path = folder / "devkit" / annotations
        labels, files = [], []
        for number, entry in enumerate(read_structs(path, "annotations", ("class", "fname"))):
            label, name = entry
            if not isinstance(label, int) or not isinstance(name, str) or not 1 <= label <= 196:
                raise DataError(f"{path}, entry {number}: found {entry!r}; need a class from 1 to 196 and a file name")
            labels.append(label - 1)
            files.append(inside(folder / f"cars_{split}", name, str(path)))
        return image_source(str(path), files, labels, 196, size)

    return source("train", "cars_train_annos.mat"), source("test", "cars_test_annos_withlabels.mat")


def open_tiny_imagenet(folder: Path, *, size: int = 64) -> tuple[Source, Source]:
    names = _class_names(folder / "train")
    files, labels = [], []
    for label, name in enumerate(names):
        images = _images(folder / "train" / name / "images")
        files += images
        labels += [label] * len(images)
    path = folder / "val" / "val_annotations.txt"
    rows = [line.split("\t") for line in read_lines(path)]
    for row in rows:
        if len(row) < 2:
            raise DataError(f"{path}: found the line {row[0]!r}; need a file name, a tab and a class")
    return (
        image_source(str(folder / "train"), files, labels, len(names), size),
        image_source(
            str(path),
            [inside(folder / "val" / "images", row[0], str(path)) for row in rows],
            _numbers((row[1] for row in rows), names, str(path)),
            len(names),
            size,
        ),
    )


def open_class_folders(folder: Path, *, size: int | None = None) -> tuple[Source, Source]:
    names = [name for name in _class_names(folder) if images_in(folder / name)]
    if len(names) < 2:
        raise DataError(f"{folder}: found images in {len(names)} sub-folders; need one per class, two at least")
    files = [(path, label) for label, name in enumerate(names) for path in _images(folder / name)]
    chosen = _listed(folder, files) or _every_fifth(files, len(names))

    def source(split: str, members: Members) -> Source:
        paths, labels = [path for path, _ in members], [label for _, label in members]
        return image_source(f"{folder}, {split}", paths, labels, len(names), size)

    return replace(source("train", chosen[0]), names=tuple(names)), source("test", chosen[1])


def _every_fifth(files: Members, classes: int) -> tuple[Members, Members]:
    """A split that does not depend on the seed. Classes with at least five images are in both parts."""
    split: tuple[Members, Members] = ([], [])
    seen = [0] * classes
    for path, label in files:
        seen[label] += 1
        split[seen[label] % TEST_SHARE == 0].append((path, label))
    return split


def _listed(folder: Path, files: Members) -> tuple[Members, Members] | None:
    """The split given by the list files. Names are compared without folder and suffix, because some lists name .tif
    files.
    """
    lists = [sorted(folder.glob(f"*{split}.txt")) for split in ("train", "test")]
    if not all(lists):
        return None
    by_stem = {path.stem: (path, label) for path, label in files}
    split = []
    for found in lists:
        stems = [Path(line).stem for line in read_lines(found[0])]
        missing = [stem for stem in stems if stem not in by_stem]
        if missing:
            raise DataError(f"{found[0]}: found {missing[0]!r}, and no image of that name in {folder}")
        split.append([by_stem[stem] for stem in stems])
    return split[0], split[1]


def _class_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def _images(folder: Path) -> list[Path]:
    images = images_in(folder)
    if not images:
        raise DataError(f"{folder}: found no image; need files that end in {', '.join(sorted(SUFFIXES))}")
    return images


def _numbers(names: Iterable[str], classes: list[str], where: str) -> list[int]:
    number_of = {name: number for number, name in enumerate(classes)}
    numbers = []
    for name in names:
        if name not in number_of:
            raise DataError(f"{where}: found class {name!r}, which train does not have ({len(classes)} classes)")
        numbers.append(number_of[name])
    return numbers
