"""`subbit zampling ...`: the tables of paper 002, with the paper's results and ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from subbit.cli.consoles import note
from subbit.core.errors import ConfigError

zampling_app = typer.Typer(help="The tables of Zampling (paper 002), with ours beside.", no_args_is_help=True)
console, progress = Console(), Console(stderr=True)

Words = Annotated[list[str] | None, typer.Argument(help="key=value words for all runs, e.g. epochs=20 folder=runs")]
Seeds = Annotated[int, typer.Option(min=1, help="Seeds 0..N-1")]
Samples = Annotated[int, typer.Option(min=1, help="Drawn networks per accuracy")]
Output = Annotated[Path | None, typer.Option(help="JSON file; default: runs/zampling-COMMAND.json")]

LOCAL_HEADINGS = ["m/n", "paper", "ours", "expected", "best draw", "within 2 sd"]
FEDERATED_HEADINGS = ["m/n", "paper acc.", "expected", "sampled", "paper up", "n bits", "ours up"]
FEDERATED_HEADINGS += ["paper down", "ours down"]


def local_cells(results: dict[str, Any]) -> list[list[str]]:
    """Rows of table 2, for the console and for docs/zampling.md."""
    return [
        [
            f"{row['compression']:g}",
            f"{row['paper']:.2f} ±{row['paper_deviation']:.2f}",
            f"{row['sampled']:.2f}" + (f" ±{row['sampled_deviation']:.2f}" if results["seeds"] > 1 else ""),
            f"{row['expected']:.2f}",
            f"{row['best']:.2f}",
            "yes" if row["within_two_deviations"] else "NO",
        ]
        for row in results["rows"]
    ]


def federated_cells(results: dict[str, Any]) -> list[list[str]]:
    """Rows of table 1, for the console and for docs/zampling.md."""
    return [
        [
            f"{row['compression']:g}",
            f"{row['paper']:.2f}",
            f"{row['expected']:.4f}",
            f"{row['sampled']:.4f} ±{row['sampled_deviation']:.4f}",
            _times(row["paper_client_savings"]),
            _times(row["client_savings_packed"]),
            _times(row["client_savings"]),
            _times(row["paper_server_savings"]),
            _times(row["server_savings"]),
        ]
        for row in results["rows"]
    ]


@zampling_app.command()
def table(
    words: Words = None,
    part: Annotated[str, typer.Option(help="local (table 2), federated (table 1)")] = "local",
    degree: Annotated[int, typer.Option(help="Table 2: values in a row of Q; the paper has 100, 50, 10, 5, 1")] = 10,
    seeds: Seeds = 5,
    samples: Samples = 100,
    output: Output = None,
) -> None:
    """Accuracy against compression: SMALL on one machine, or MNISTFC over ten clients, with the bytes sent.

    [bold]subbit zampling table epochs=100 patience=10[/bold]
    [bold]subbit zampling table --part federated rounds=20[/bold]
    """
    note("zampling: loading PyTorch")
    from subbit.papers.zampling_tables import PAPER_TABLE_2, federated_table, local_table

    if part == "local":
        if degree not in PAPER_TABLE_2:
            raise ConfigError(f"--degree {degree}: table 2 has {', '.join(map(str, PAPER_TABLE_2))}")
        results = local_table(words or [], seeds, samples, progress.print, degree)
        _print(f"Table 2: SMALL, local, d = {degree}, mean sampled accuracy (%)", LOCAL_HEADINGS, local_cells(results))
    elif part == "federated":
        results = federated_table(words or [], samples, progress.print)
        title = "Table 1: MNISTFC, federated, d = 10; savings against 32 bits per weight, from real frames"
        _print(title, FEDERATED_HEADINGS, federated_cells(results))
    else:
        raise ConfigError(f"--part {part}: needs local or federated")
    _write(results, output or Path(f"runs/zampling-{part}.json"))


@zampling_app.command()
def sensitivity(
    folder: Annotated[Path, typer.Argument(help="A finished run of zampling, e.g. runs/zampling-local-1-seed0")],
    tau: Annotated[list[str] | None, typer.Option(help="0 to 0.5, or all; several times")] = None,
    perturbations: Annotated[int, typer.Option(min=1)] = 10,
    samples: Samples = 10,
    output: Output = None,
) -> None:
    """Perturb the learned p by N(0, 1) where tau <= p <= 1 - tau, and measure the change of accuracy (table 4).

    [bold]subbit zampling sensitivity runs/zampling-local-1-seed0 --tau 0.01 --tau all[/bold]
    """
    note("zampling: loading PyTorch")
    from subbit.papers.zampling_tables import sensitivity as measure

    taus = [_tau(word) for word in tau or ["0.01", "0.1", "0.2", "all"]]
    results = measure(folder, taus, perturbations, samples, progress.print)
    _print(
        f"Table 4: {results['training']} training, unperturbed {results['unperturbed']:.2f}%; paper in brackets",
        ["tau", "places", "accuracy (%)", "sensitivity", "deviation"],
        [
            [
                row["tau"],
                f"{row['places']:.1%}",
                f"{row['accuracy']:.2f} ±{row['accuracy_deviation']:.2f}{_bracket(row['paper'], 0)}",
                f"{row['sensitivity']:.2e}{_bracket(row['paper'], 1)}",
                f"{row['deviation']:.2e}{_bracket(row['paper'], 2)}",
            ]
            for row in results["rows"]
        ],
    )
    _write(results, output or Path("runs/zampling-sensitivity.json"))


@zampling_app.command()
def gap(
    words: Words = None,
    beta: Annotated[list[float] | None, typer.Option(help="p starts as Beta(b, b); several times")] = None,
    seeds: Seeds = 3,
    samples: Samples = 100,
    output: Output = None,
) -> None:
    """The integrality gap: train Q p without sampling, then sample (figure 5).

    [bold]subbit zampling gap epochs=3 limit=10000 --beta 0.1 --beta 1[/bold]
    """
    note("zampling: loading PyTorch")
    from subbit.papers.zampling_tables import integrality_gap

    results = integrality_gap(words or [], beta or [0.1, 0.3, 1.0, 3.0, 10.0], seeds, samples, progress.print)
    _print(
        "Figure 5: continuous training on MNISTFC. The paper (a figure, no numbers): the gap grows with beta, "
        "and for large beta the discretised network is below the mean draw",
        ["beta", "expected", "mean draw", "worst", "best", "discretised", "gap"],
        [
            [
                f"{row['beta']:g}",
                f"{row['expected']:.4f}",
                f"{row['sampled']:.4f} ±{row['sampled_deviation']:.4f}",
                f"{row['sampled_worst']:.4f}",
                f"{row['sampled_best']:.4f}",
                f"{row['discretised']:.4f}",
                f"{row['gap']:.4f}",
            ]
            for row in results["rows"]
        ],
    )
    _write(results, output or Path("runs/zampling-gap.json"))


def _tau(word: str) -> float | Literal["all"]:
    if word == "all":
        return "all"
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.5:
        raise ConfigError(f"--tau {word}: needs a number from 0 to 0.5, or all")
    return value


def _bracket(paper: Sequence[float | None] | None, index: int) -> str:
    value = None if paper is None else paper[index]
    return "" if value is None else f" ({value:g})"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}x"


def _print(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    printed = Table(title=title, title_justify="left")
    for heading in headings:
        printed.add_column(heading, justify="right")
    for row in rows:
        printed.add_row(*(str(cell) for cell in row))
    Console(width=max(console.width, 110)).print(printed)


def _write(results: dict[str, Any], path: Path) -> None:
    from subbit.core.files import replace_file

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(results, indent=2) + "\n").encode())
    console.print(f"the numbers are in {path}", highlight=False)
