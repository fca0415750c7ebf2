"""`subbit export`: what a run has learnt, as files for use elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from subbit.errors import ConfigError

console = Console()


def export(
    folder: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/demo")],
    mask: Annotated[bool, typer.Option("--mask", help="Write which weights of the base are kept, as one file")] = False,
    client: Annotated[int | None, typer.Option(help="This client's own network (personal methods)")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: inside the run folder")] = None,
) -> None:
    """Write what a run has learnt, for use elsewhere.

    [bold]subbit export runs/demo --mask[/bold]   a small file for subbit.load(base, mask)
    """
    if not mask:
        raise ConfigError("nothing to export: give --mask")
    _export_mask(folder, client, out)


def _export_mask(folder: Path, client: int | None, out: Path | None) -> None:
    from subbit.export.masks import mask_of_run
    from subbit.export.runs import open_run
    from subbit.files import replace_file

    trained = open_run(folder, client)
    file = mask_of_run(trained)
    path = out or folder / f"mask{_suffix(client)}.safetensors"
    data = file.to_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data)
    size, values = trained.flat.template.size, sum(value.size for value in file.values.values())
    console.print(
        f"{path}: {len(data):,} bytes; {size:,} weights of {file.description.model} in {len(file.payload):,} bytes "
        f"({8 * len(file.payload) / size:.3f} bits each), {values:,} other values",
        highlight=False,
        soft_wrap=True,
    )


def _suffix(client: int | None) -> str:
    return "" if client is None else f"-client-{client}"
