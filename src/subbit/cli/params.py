"""`subbit params`: what each tuning trains, sends and needs in memory, without training."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

from subbit.cli.completion import complete_codec, complete_tuning
from subbit.cli.consoles import console, note, print_json, say
from subbit.cli.options import AsJson, Quiet
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with
from subbit.core.errors import ConfigError, ModelError
from subbit.core.pieces import Tables
from subbit.core.values import nearest, split_assignment

if TYPE_CHECKING:
    from subbit.methods.fedpeft import FedPeftParameters
    from subbit.peft.parameter_counts import Count

FLOAT_BYTES = 4
ORDER = ("full", "head", "bias", "adapter", "prompt", "prefix", "lora")
Row = dict[str, Any]


def params(
    model: Annotated[
        str, typer.Argument(help="vit-b16, videomae-b, bert-mini, a hub name, a folder, or the path of a config.json")
    ],
    words: Annotated[list[str] | None, typer.Argument(help="Keys of fedpeft, e.g. lora_rank=8 bits=0.5")] = None,
    tuning: Annotated[
        str | None, typer.Option(help="One way of tuning; all of them without it", autocompletion=complete_tuning)
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Classes that the head of a classifier tells apart; 10 without it")
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            help="Also bytes of a round with this codec both ways, and memory of a client",
            autocompletion=complete_codec,
        ),
    ] = None,
    length: Annotated[int | None, typer.Option(help="Tokens of a text, for memory; 512 without it")] = None,
    examples: Annotated[int, typer.Option(help="Examples that are in memory at a time")] = 1,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Count the parameters that each tuning trains. Only the model's configuration is needed, not its weights.

    A model that continues texts is counted with its own output layer; with --classes as a classifier.

    [bold]subbit params vit-b16 --tuning bias --classes 100[/bold]
    [bold]subbit params bert-mini --classes 4 prompt_tokens=30[/bold]
    [bold]subbit params config.json --tuning lora --codec eden bits=1[/bold]
    """
    if not quiet:
        note(f"{model}: loading PyTorch")
    with Teller(quiet=quiet):
        busy_with("loading PyTorch")
        rows = parameter_counts(model, tuning, classes, words or [], codec=codec, length=length, examples=examples)
    if as_json:
        print_json(rows)
    elif quiet:
        for row in rows:
            say(f"{row['tuning']}: {row['trained']:,} of {row['total']:,} parameters, {row['megabytes']:.3f} MB")
    else:
        console.print(_costs(model, rows) if codec else _counts(model, rows))


def parameter_counts(
    model: str,
    tuning: str | None,
    classes: int | None,
    words: list[str],
    *,
    codec: str | None = None,
    length: int | None = None,
    examples: int = 1,
) -> list[Row]:
    """A row for each tuning that this model can have."""
    from subbit.methods.fedpeft import FedPeft, FedPeftParameters
    from subbit.peft.parameter_counts import count
    from subbit.peft.tuning import TUNINGS

    if tuning is not None:
        TUNINGS.find(tuning)  # Raises for an unknown tuning.
    if examples < 1:
        raise ConfigError(f"examples={examples}: needs at least 1")
    assigned = dict(split_assignment(word) for word in words)
    if codec is not None:
        assigned["codec"] = codec
    assigned = _both_ways(assigned, codec)
    names = ORDER if tuning is None else (tuning,)
    tables = {name: Tables(FedPeftParameters, {**assigned, "tuning": name}) for name in {*ORDER, *names}}
    for word in assigned:
        if not any(known.knows(word) for known in tables.values()):
            raise ConfigError(f"unknown key {word!r}: {nearest(word, tables['lora'].words())}")
    rows: list[Row] = []
    for name in names:
        # A word that only another tuning knows is skipped.
        own = {word: value for word, value in assigned.items() if tuning is not None or tables[name].knows(word)}
        parameters: FedPeftParameters = tables[name].build({**own, "tuning": name})
        add = partial(FedPeft.prepare, parameters=parameters, classes=classes or 0, key=0)
        try:
            counted = count(model, classes, add, length=length, activations=codec is not None)
        except ModelError:
            if tuning is not None or not rows:  # `full` comes first and fits every model.
                raise
            continue  # E.g. `bias`, and the model has none.
        row: Row = {"model": model, "tuning": name, "trained": counted.trained, "total": counted.total}
        row |= {"classes": None if counted.is_decoder else classes or 10}
        row |= {"megabytes": FLOAT_BYTES * counted.trained / 1e6}
        if codec is not None:
            row |= _bytes(counted, parameters) | _memory(counted, parameters, examples)
        rows.append(row)
    return rows


def _both_ways(assigned: dict[str, str], codec: str | None) -> dict[str, str]:
    """With the codec and its options for the downlink too, unless it has its own."""
    if codec is None or any(word.startswith("down") for word in assigned):
        return assigned
    from subbit.methods.fedpeft import FedPeftParameters

    both = Tables(FedPeftParameters, {"codec": codec, "down_codec": codec})
    down = {f"down_{word}": value for word, value in assigned.items() if both.knows(f"down_{word}")}
    return assigned | down


def _bytes(counted: Count, parameters: FedPeftParameters) -> Row:
    """Of a client in a round that is not its first: then it is sent the whole vector where changes go down."""
    from subbit.wire.lengths import frame_length

    up = frame_length(parameters.up.codec, counted.trained)
    down = frame_length(parameters.down.codec.contractive(), counted.trained)
    return {
        "codec": repr(parameters.up.codec),
        "down_codec": repr(parameters.down.codec),
        "up_bytes": None if up is None else up.bytes,
        "down_bytes": None if down is None else down.bytes,
        "up_bytes_are": None if up is None else up.how,
        "down_bytes_are": None if down is None else down.how,
    }


def _memory(counted: Count, parameters: FedPeftParameters, examples: int) -> Row:
    from subbit.peft.parameter_counts import PRECISIONS

    optimiser = parameters.optimiser_vectors
    return {
        "memory": {
            "weights": {name: width * counted.total for name, width in PRECISIONS.items()},
            "trained": counted.trained_bytes(optimiser),
            "optimiser_vectors": optimiser,
            "activations_per_example": counted.activations,
            "example": counted.example,
            "examples": examples,
            "client": counted.memory(optimiser, examples),
        }
    }


def _counts(model: str, rows: list[Row]) -> Table:
    table = _table(model, rows, "MB per message, float32", "at one bit")
    for row in rows:
        megabytes = row["megabytes"]
        table.add_row(*_first(row), f"{megabytes:.3f}", f"{megabytes / (8 * FLOAT_BYTES):.4f}")
    return table


def _costs(model: str, rows: list[Row]) -> Group:
    """Two tables, each of which fits a terminal of 80 columns."""
    memory = rows[0]["memory"]
    sent = _table(model, rows, "bytes up", "bytes down")
    for row in rows:
        sent.add_row(*_first(row), *(_sent(row[f"{way}_bytes"], row[f"{way}_bytes_are"]) for way in ("up", "down")))
    sent.caption = f"{rows[0]['codec']} up, {rows[0]['down_codec']} down, per client and round."
    used = Table("tuning", title="memory of a client, GB")
    for heading in ("training", "activations", *(f"in all, {name}" for name in memory["weights"])):
        used.add_column(heading, justify="right")
    for row in rows:
        needs = row["memory"]
        client = needs["client"] or dict.fromkeys(needs["weights"])
        sizes = (needs["trained"], needs["activations_per_example"], *client.values())
        used.add_row(row["tuning"], *map(_gigabytes, sizes))
    weights = ", ".join(f"{_gigabytes(size)} GB in {name}" for name, size in memory["weights"].items())
    used.caption = (
        f"Weights: {weights}. Training: vectors, gradient and {memory['optimiser_vectors']} vectors of the optimiser. "
        f"Activations: what autograd keeps of one {memory['example']}, in float32. In all: weights in that precision, "
        f"training, and activations of {memory['examples']} at a time; Python and its libraries come on top."
    )
    return Group(sent, used)


def _table(model: str, rows: list[Row], *headings: str) -> Table:
    classes = rows[0]["classes"]
    table = Table(title=f"{model}, {'language model' if classes is None else f'{classes} classes'}")
    table.add_column("tuning")
    for heading in ("trained parameters", "share", *headings):
        table.add_column(heading, justify="right")
    return table


def _first(row: Row) -> tuple[str, str, str]:
    return row["tuning"], f"{row['trained']:,}", f"{row['trained'] / row['total']:.3%}"


def _sent(count: int | None, how: str | None) -> str:
    if count is None:
        return "too long for a frame"
    return f"{'' if how == 'exact' else 'about '}{count:,}"


def _gigabytes(count: int | None) -> str:
    return "?" if count is None else f"{count / 1e9:.3f}"
