"""`subbit predict`: what the network of a run says about inputs."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from subbit.cli.consoles import note
from subbit.cli.options import PluginFiles, RunPath
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with
from subbit.core.errors import ConfigError, DataError, RunFolderError

FORMATS = (".csv", ".jsonl", ".npz")


def predict(
    folder: RunPath,
    inputs: Annotated[
        str, typer.Argument(help="A data set as in dataset=, an image, a folder of images, .npz or .npy, or test")
    ],
    output: Annotated[Path | None, typer.Option(help="A new file: .csv, .jsonl, or .npz for masks of images")] = None,
    client: Annotated[int | None, typer.Option(help="This client's own network (personal methods)")] = None,
    plugin: PluginFiles = None,
) -> None:
    """Predict with the network of a run: one line per example.

    [bold]subbit predict runs/demo test[/bold]   the run's own test set, with the score
    [bold]subbit predict runs/demo photos/ --output told.csv[/bold]   every image of a folder
    [bold]subbit predict runs/demo inputs.npz --output told.jsonl[/bold]   an array [n, ...] of inputs
    """
    from subbit.runtime.folder import RunFolder

    RunFolder.look(folder).refuse_given()
    _check_inputs(inputs)
    _check_output(output)
    note(f"{folder}: loading PyTorch")
    with Teller():
        busy_with("loading PyTorch")
        from subbit.export.predict import Predictions
        from subbit.export.read_inputs import read_inputs
        from subbit.export.runs import open_run

        trained = open_run(folder, client, primary=True)
        predictions = Predictions(trained, read_inputs(trained, inputs))
    if predictions.is_masks != (output is not None and output.suffix == ".npz"):
        needed = "masks need --output FILE.npz" if predictions.is_masks else "an .npz file is for masks of segmentation"
        raise ConfigError(f"objective={trained.workplace.problem.objective.name}: {needed}")
    if predictions.is_masks:
        assert output is not None
        _write_masks(predictions, output)
    elif predictions.has_rows:
        with _opened(output) as file:
            _write_rows(iter(predictions), file, as_json=output is not None and output.suffix == ".jsonl")
    else:
        for _ in predictions:
            pass
    _say_scores(predictions, output)


def _check_inputs(text: str) -> None:
    """A mistyped name of a file is said before anything that takes long is imported."""
    from subbit.setup.seen_data import IMAGES

    path = Path(text).expanduser()
    if path.suffix.lower() in (*IMAGES, ".npy", ".npz") and not path.is_file():
        raise DataError(f"{text}: there is no such file")


def _check_output(path: Path | None) -> None:
    if path is not None and path.suffix not in FORMATS:
        raise ConfigError(f"--output {path}: needs a name that ends in {', '.join(FORMATS)}")
    if path is not None and os.path.lexists(path):
        raise RunFolderError(f"{path} is there already: give another --output")


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    with path.open("x", encoding="utf-8", newline="") as file:
        try:
            yield file
        except BaseException:
            path.unlink(missing_ok=True)  # Half a file looks like a whole one.
            raise


def _write_rows(rows: Iterator[dict[str, Any]], file: TextIO, *, as_json: bool) -> None:
    for number, row in enumerate(rows):
        if as_json:
            file.write(json.dumps(row) + "\n")
            continue
        if number == 0:
            file.write(_csv_line(list(row)))
        file.write(
            _csv_line([" ".join(map(str, value)) if isinstance(value, list) else value for value in row.values()])
        )
    file.flush()


def _csv_line(values: list[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _write_masks(predictions: Any, path: Path) -> None:
    import numpy as np

    for _ in predictions:
        pass
    names = predictions.inputs.names
    with path.open("xb") as file:
        arrays: dict[str, Any] = {"masks": np.concatenate(predictions.masks)}
        if names is not None:
            arrays["examples"] = np.array(names)
        np.savez_compressed(file, **arrays)


def _say_scores(predictions: Any, output: Path | None) -> None:
    """On stderr, beside rows; on stdout where the score is all there is."""
    run = predictions.trained.workplace.settings.run
    count, scores = len(predictions.inputs.data), predictions.scores()
    told = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
    if not predictions.has_rows and not predictions.is_masks:
        if not scores:
            reason = predictions.unfit or f"{predictions.inputs.what} has no labels"
            raise ConfigError(f"objective={run.objective} has no predictions, only a score, and {reason}")
        with _opened(output) as file:
            if output is not None and output.suffix == ".jsonl":
                file.write(json.dumps(scores) + "\n")
            else:
                file.writelines(_csv_line(line) for line in [list(scores), list(scores.values())])
    if predictions.unfit is not None:
        told = f"no score, {predictions.unfit}"
    after = (
        ""
        if predictions.trained.rounds == run.rounds
        else f", after round {predictions.trained.rounds} of {run.rounds}"
    )
    note(f"{count} example{'' if count == 1 else 's'} of {predictions.inputs.what}{after}{': ' + told if told else ''}")
