"""Videos as folders of frames, with the official splits of UCF101 and HMDB51: uint8 [n, frames, 3, size, size].

    UCF101  ucfTrainTestlist/{classInd,trainlist0N,testlist0N}.txt, lines such as "Archery/v_Archery_g01_c01.avi 3"
    HMDB51  testTrainMulti_7030_splits/<class>_test_splitN.txt, lines "<clip>.avi 1", where 1 is train and 2 is test

The frames of a clip are the images in <class>/<clip>/ or <clip>/, in this folder or under frames/, sorted by name. A
clip is divided into `frames` equal segments and the middle frame of each is used; short clips repeat some frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from subbit.core.errors import ConfigError, DataError
from subbit.data.examples import Indices, Source
from subbit.data.images import decode_image, images_in
from subbit.data.lookup import check_memory, inside, read_lines

SPLITS = 3


def open_ucf101(folder: Path, *, split: int = 1, frames: int = 16, size: int = 224) -> tuple[Source, Source]:
    _check_split(split)
    lists = folder / "ucfTrainTestlist" if (folder / "ucfTrainTestlist").is_dir() else folder
    names: list[str] = []
    for line in read_lines(lists / "classInd.txt"):
        number, _, name = line.partition(" ")
        if number != str(len(names) + 1) or not name:
            raise DataError(f"{lists / 'classInd.txt'}: found {line!r}; need lines '1 NAME', '2 NAME', ...")
        names.append(name)
    number_of = {name: number for number, name in enumerate(names)}

    def source(part: str) -> Source:
        path = lists / f"{part}list{split:02}.txt"
        clips, labels = [], []
        for line in read_lines(path):
            clip = line.split(" ")[0]
            name = PurePosixPath(clip).parts[0]
            if name not in number_of or "/" not in clip:
                raise DataError(f"{path}: found {line!r}; need CLASS/CLIP with a class of classInd.txt")
            clips.append(clip)
            labels.append(number_of[name])
        return _source(folder, str(path), clips, labels, len(names), frames, size)

    return source("train"), source("test")


def open_hmdb51(folder: Path, *, split: int = 1, frames: int = 16, size: int = 224) -> tuple[Source, Source]:
    _check_split(split)
    paths = sorted([*folder.glob(f"*_test_split{split}.txt"), *folder.glob(f"*/*_test_split{split}.txt")])
    if not paths:
        raise DataError(f"{folder}: found no <class>_test_split{split}.txt; need one per class")
    members: dict[str, tuple[list[str], list[int]]] = {"1": ([], []), "2": ([], [])}
    for label, path in enumerate(paths):
        name = path.name.removesuffix(f"_test_split{split}.txt")
        for line in read_lines(path):
            clip, _, use = line.rpartition(" ")
            if not clip or use not in ("0", "1", "2"):
                raise DataError(f"{path}: found {line!r}; need lines '<clip>.avi 1' with 0, 1 or 2")
            if use in members:
                members[use][0].append(f"{name}/{clip.strip()}")
                members[use][1].append(label)

    def source(part: str, use: str) -> Source:
        clips, labels = members[use]
        return _source(folder, f"{paths[0].parent}, {part}", clips, labels, len(paths), frames, size)

    return source("train", "1"), source("test", "2")


def _check_split(split: int) -> None:
    if split > SPLITS:
        raise ConfigError(f"found split={split}; there are 1 to {SPLITS}")


def _source(
    folder: Path, where: str, clips: Sequence[str], labels: Sequence[int], classes: int, frames: int, size: int
) -> Source:
    def read(indices: Indices) -> Tensor:
        check_memory(len(indices), frames * 3 * size * size, where, "?size=112&frames=8")
        videos = torch.empty((len(indices), frames, 3, size, size), dtype=torch.uint8)
        for place, position in enumerate(indices):
            for number, file in enumerate(_chosen_frames(folder, clips[position], frames, where)):
                videos.numpy()[place, number] = np.moveaxis(decode_image(file, str(file), size), 2, 0)
        return videos

    return Source(where, np.array(labels, dtype=np.int64), read, classes=classes)


def _chosen_frames(folder: Path, clip: str, frames: int, where: str) -> list[Path]:
    name = str(PurePosixPath(clip).with_suffix("")) if clip.lower().endswith((".avi", ".mp4")) else clip
    short = PurePosixPath(name).name
    places = [inside(base, form, where) for base in (folder, folder / "frames") for form in (name, short)]
    for place in places:
        # Numbers without leading zeros sort by length first. Some extractions store optical flow next to the frames.
        found = sorted(images_in(place), key=lambda path: (len(path.name), path.name)) if place.is_dir() else []
        found = [path for path in found if not path.name.startswith("flow")]
        if found:
            return [found[(2 * number + 1) * len(found) // (2 * frames)] for number in range(frames)]
    raise DataError(f"{where}: found no frames of {clip}; need images in one of: {', '.join(map(str, places))}")
