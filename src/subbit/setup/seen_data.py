"""What is in a data set, looked at for `subbit init` without torch: classes, columns, sizes of images.

It is refused here, with what to do, if a run could not use it. Only as much is read as is needed to tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from subbit.core.errors import DataError
from subbit.core.registry import nearest
from subbit.sets.layouts import LAYOUTS
from subbit.sets.named import NAMED
from subbit.sets.places import folders, locate, named_set
from subbit.setup.seen_table import TABLES, SeenTable, look_at_table

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
LOOKED_AT = 200
LARGEST_SIDE = 64
SIDE = 32
"""To which larger images are resized: what the bundled transformer sees."""
HUB = "hf:"


@dataclass(frozen=True)
class Seen:
    dataset: str
    """The value of the key `dataset`."""
    told: str
    """What was found, in a line."""
    inputs: str
    """images, numbers, text or unknown."""
    objective: str = "classification"
    classes: list[str] = field(default_factory=list)
    shape: str = ""
    """Type and shape of one input, as in `input=`; empty if it was not looked at."""
    owners: int | None = 0
    """0 if examples have none, None if their number is not known."""
    examples: int | None = None


def look_at(data: str, label: str | None = None) -> Seen:
    """A named set, `hf:NAME`, a table, an .npz file or a folder."""
    path = Path(data).expanduser()
    if data.startswith(HUB):
        return Seen(data, "a data set of the Hugging Face hub, downloaded by the run", "unknown")
    if named_set(data) is not None and not path.exists():
        return _named(data)
    if not path.exists():
        raise DataError(
            f"{data}: no such file or folder, and no named data set: {nearest(data, [*NAMED])}. A folder has "
            "CLASS/*.png, a table is .csv, .tsv, .jsonl or .parquet"
        )
    if "?" in data:
        raise DataError(f"{data}: a path with ? cannot be followed by options: rename it")
    if path.is_dir():
        return _folder(data, path)
    if path.suffix.lower() in TABLES:
        return _table(data, look_at_table(path, label))
    if path.suffix.lower() == ".npz":
        return Seen(data, "arrays x_train, y_train, x_test, y_test", "unknown")
    raise DataError(f"{data}: found a {path.suffix or 'file'}; need a folder, {', '.join(TABLES)} or .npz")


def _named(name: str) -> Seen:
    thing = named_set(name)
    assert thing is not None
    if thing.layouts and locate(name, thing) is None:
        places = " or ".join(map(str, folders(name, thing)))
        raise DataError(f"{name} is not on this machine: put it into {places}. It comes from: {thing.origin}")
    inputs = {"har": "numbers", "shakespeare": "text", "ag-news": "text"}.get(name, "images")
    classes = [str(number) for number in range(thing.classes or 0)]
    return Seen(name, thing.what, inputs, classes=classes, owners=None if thing.owners else 0)


def _folder(data: str, path: Path) -> Seen:
    layout = next((name for name, layout in LAYOUTS.items() if layout.fits(path)), None)
    if layout not in ("image folder", "class folders", None):
        return Seen(data, f"files as in {layout}", "unknown")
    root = path / "train" if (path / "train").is_dir() else path
    counts = {each.name: sum(1 for _ in _images(each)) for each in sorted(root.iterdir()) if each.is_dir()}
    counts = {name: count for name, count in counts.items() if count}
    if len(counts) < 2:
        raise DataError(f"{data}: {_why_no_classes(root, counts)}")
    if root != path and not (path / "test").is_dir():
        raise DataError(f"{data}: found train/ and no test/; need both, or the folders of the classes alone")
    few, many = min(counts.values()), max(counts.values())
    shapes = Counter(_shape(file) for name in counts for file in _first(root / name, LOOKED_AT // len(counts) + 1))
    if None in shapes:
        raise DataError(f"{data}: found images that cannot be read; remove them (subbit run names the first)")
    sides = {shape[1:] for shape in shapes if shape is not None}
    resized = len(sides) > 1 or max(max(side) for side in sides) > LARGEST_SIDE
    each = f"{few}" if few == many else f"{few} to {many}"
    told = f"{sum(counts.values())} images of {len(counts)} classes, {each} of each"
    channels = max(shape[0] for shape in shapes if shape is not None)
    height, width = (SIDE, SIDE) if resized else next(iter(sides))
    form = f"uint8 {3 if resized else channels}x{height}x{width}"
    told += f"; resized to {SIDE} x {SIDE}" if resized else ""
    dataset = f"{data}?size={SIDE}" if resized else data
    return Seen(dataset, told, "images", classes=list(counts), shape=form, examples=sum(counts.values()))


def _why_no_classes(root: Path, counts: dict[str, int]) -> str:
    needed = "need one folder per class, two at least: CLASS/*.png"
    if counts:
        return f"found images of one class, {next(iter(counts))!r}; {needed}"
    if any(True for _ in _images(root)):
        return f"found images without labels, beside each other; {needed}, or a table with columns image and label"
    if any(root.glob("*.txt")):
        return 'found .txt files; need a table, e.g. texts.jsonl with {"text": ..., "label": ...} in each line'
    return f"found no images; {needed}"


def _images(folder: Path) -> Iterator[Path]:
    return (file for file in folder.iterdir() if file.suffix.lower() in IMAGES and file.is_file())


def _first(folder: Path, count: int) -> list[Path]:
    return sorted(_images(folder))[:count]


def _shape(file: Path) -> tuple[int, int, int] | None:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return (1 if image.mode in ("1", "L") else 3, image.height, image.width)
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
        return None


def _table(data: str, table: SeenTable) -> Seen:
    dataset = f"{data}?{table.options}" if table.options else data
    return Seen(
        dataset,
        table.told,
        table.inputs,
        table.objective,
        table.classes,
        owners=table.owners,
        examples=table.rows,
        shape=table.shape,
    )
