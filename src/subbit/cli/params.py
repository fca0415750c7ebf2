"""`subbit params`: what each tuning trains and sends, without training."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from subbit.core.errors import ConfigError
from subbit.core.pieces import Tables
from subbit.core.values import nearest, split_assignment

FLOAT_BYTES = 4
ORDER = ("full", "head", "bias", "adapter", "prompt", "prefix", "lora")


def params(
    model: Annotated[str, typer.Argument(help="vit-b16, videomae-b, bert-mini, a hub name, or a folder")],
    words: Annotated[list[str] | None, typer.Argument(help="Keys of fedpeft, e.g. prompt_tokens=30")] = None,
    tuning: Annotated[str | None, typer.Option(help="One way of tuning; all of them without it")] = None,
    classes: Annotated[int, typer.Option(help="Classes that the head tells apart")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False,
) -> None:
    """Count the parameters that each tuning trains. Only the model's configuration is needed, not its weights.

    [bold]subbit params vit-b16 --tuning bias --classes 100[/bold]
    [bold]subbit params bert-mini --classes 4 prompt_tokens=30[/bold]
    """
    rows = parameter_counts(model, tuning, classes, words or [])
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title=f"{model}, {classes} classes")
    table.add_column("tuning")
    for heading in ("trained parameters", "share", "MB per message, float32", "at one bit"):
        table.add_column(heading, justify="right")
    for row in rows:
        numbers = (f"{row['trained']:,}", f"{row['trained'] / row['total']:.3%}")
        table.add_row(row["tuning"], *numbers, f"{row['megabytes']:.3f}", f"{row['megabytes'] / (8 * FLOAT_BYTES):.4f}")
    Console().print(table)


def parameter_counts(model: str, tuning: str | None, classes: int, words: list[str]) -> list[dict[str, Any]]:
    from subbit.methods.fedpeft import FedPeft, FedPeftParameters
    from subbit.peft.parameter_counts import count
    from subbit.peft.tuning import TUNINGS

    if tuning is not None:
        TUNINGS.find(tuning)  # Raises for an unknown tuning.
    assigned = dict(split_assignment(word) for word in words)
    tables = {name: Tables(FedPeftParameters, {**assigned, "tuning": name}) for name in ORDER}
    for word in assigned:
        if not any(known.knows(word) for known in tables.values()):
            raise ConfigError(f"unknown key {word!r}: {nearest(word, tables['lora'].words())}")
    rows = []
    for name in ORDER if tuning is None else (tuning,):
        # A word that only another tuning knows is skipped.
        own = {word: value for word, value in assigned.items() if tuning is not None or tables[name].knows(word)}
        parameters = tables[name].build({**own, "tuning": name})
        add = partial(FedPeft.prepare, parameters=parameters, classes=classes, key=0)
        counted = count(model, classes, add)
        megabytes = FLOAT_BYTES * counted.trained / 1e6
        rows.append(
            {"model": model, "tuning": name, "classes": classes, "trained": counted.trained, "total": counted.total}
            | {"megabytes": megabytes}
        )
    return rows
