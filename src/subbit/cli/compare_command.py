"""`subbit compare`: the same job for several methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from subbit.cli.completion import complete_contender, complete_toml
from subbit.cli.consoles import console, note, print_json, say
from subbit.cli.options import AsJson, PluginFiles, Quiet
from subbit.cli.report_command import NoReport, report_at_end
from subbit.cli.running import build_and_try, run_told
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(help="Methods, then key=value words for all of them", autocompletion=complete_contender),
    ],
    config: Annotated[
        Path | None, typer.Option(help="TOML file of the common job", autocompletion=complete_toml)
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from seed= (0) on")] = 1,
    target: Annotated[float | None, typer.Option(help="Accuracy up to which megabytes are counted")] = None,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="With floors and ceilings, and the gap closed")
    ] = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    plugin: PluginFiles = None,
) -> None:
    """Run the same job for several methods: one table, and a plot of the score against bytes.

    A method may carry its own settings after a colon, with commas between them:

    [bold]subbit compare fedpm deltamask deltamask:preset=paper --config experiments/demo.toml rounds=5[/bold]
    [bold]subbit compare fedavg fedavg:optimizer=adam,betas=0.8,0.9,epochs=2[/bold]   betas is a pair
    [bold]subbit compare deltamask head-alone central[/bold]   a floor, a ceiling, and the share of the gap closed
    """
    from subbit.config.resolve import read_toml

    values = read_toml(config) if config else {}
    words = [word for word in methods if "=" in word.partition(":")[0]]
    named = [word for word in methods if word not in words]
    if named and not quiet:
        note(f"comparing {', '.join(named)}: loading PyTorch")
    with Teller(quiet=quiet) as teller:
        busy_with("loading PyTorch")
        comparison, path = _compared(named, values, words, (seeds, target, baselines), teller)
    if as_json:
        print_json(comparison)
    elif quiet:
        _print_lines(comparison)
    else:
        from subbit.report.compare import comparison_table

        # A narrow terminal wraps lines, which is better than truncated numbers.
        Console(width=max(console.width, 120)).print(comparison_table(comparison))
        say(f"every run is a folder under {path.parent}/, the numbers are in {path}, a plot is beside it")
    report_at_end(path.parent, no_report, quiet=quiet or as_json)


def _compared(
    named: list[str],
    values: dict[str, Any],
    words: list[str],
    asked: tuple[int, float | None, bool],
    teller: Teller,
) -> tuple[dict[str, Any], Path]:
    """Run everything and write what was found; the numbers and their file."""
    from subbit.core.files import replace_file
    from subbit.report.compare import compare as run_comparison
    from subbit.report.compare import contender_settings, parse_contender, with_baselines
    from subbit.report.frontier import frontier_plot

    seeds, target, baselines = asked
    contenders = [parse_contender(word) for word in named]
    contenders = with_baselines(contenders, values, words) if baselines else contenders
    comparison = run_comparison(
        contenders,
        values,
        words,
        seeds,
        target,
        lambda settings: run_told(settings, teller, split=False)[0],
        build_and_try,
    )
    path = Path(contender_settings(contenders[0], contenders, values, words, 0).run.folder) / "comparison.json"
    replace_file(path, (json.dumps(comparison, indent=2) + "\n").encode())
    replace_file(path.with_suffix(".svg"), frontier_plot(comparison).encode())
    return comparison, path


def _print_lines(comparison: dict[str, Any]) -> None:
    from subbit.report.compare import score_cell

    for label, row in comparison["methods"].items():
        rates = f"up {row['uplink_bpp']:.4f} and down {row['downlink_bpp']:.4f} bits per parameter"
        score = score_cell(row, comparison["seeds"], digits=4)
        say(f"{label}: {row['score_name']} {score}, {rates}, {row['total_mb']:.2f} MB")
