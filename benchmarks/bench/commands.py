"""`subbit bench ...`: measurements, as tables or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

bench_app = typer.Typer(help="Measure the codecs and the engines.", no_args_is_help=True, add_completion=False)
console, progress = Console(), Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables")]
Output = Annotated[Path | None, typer.Option(help="Also write the JSON to this file")]


@bench_app.command()
def codecs(
    size: Annotated[int | None, typer.Option(help="Only this many places")] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Sizes against the bound and speeds against references, in one run on one thread.

    [bold]subbit bench codecs --size 1000000[/bold]
    """
    from benchmarks.bench.codecs import DEFAULT_SIZES, benchmark_table, run_codec_benchmark, targets_table

    results = run_codec_benchmark([size] if size else DEFAULT_SIZES, lambda line: progress.print(line))
    _write(results, output)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    console.print(benchmark_table(results))
    console.print(targets_table(results))


@bench_app.command()
def flower(as_json: AsJson = False, output: Output = None) -> None:
    """What Flower costs: transport bytes against the ledger, time against the simulator, memory of the server.

    [bold]subbit bench flower --json[/bold]
    """
    from benchmarks.bench.flower import flower_table, run_flower_benchmark

    results = run_flower_benchmark(lambda line: progress.print(line))
    _write(results, output)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    console.print(flower_table(results))


@bench_app.command()
def engine(
    only: Annotated[list[str] | None, typer.Option(help="Only this measurement; may be repeated")] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """The simulator against plain PyTorch, Flower and pfl, and what start-up, workers and memory cost.

    [bold]subbit bench engine --only plain --only steps[/bold]
    """
    from benchmarks.bench.engine.run import run_engine_benchmark
    from benchmarks.bench.engine.targets import engine_table

    results = run_engine_benchmark(only or (), lambda line: progress.print(line, markup=False))
    _write(results, output)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    console.print(engine_table(results))


@bench_app.command()
def scaling(as_json: AsJson = False, output: Output = None) -> None:
    """How time and memory of a round grow with clients (10 to 10,000), parameters (1e5 to 1e8) and workers.

    [bold]subbit bench scaling --json[/bold]
    """
    from benchmarks.bench.scaling import run_scaling_benchmark, scaling_table

    results = run_scaling_benchmark(lambda line: progress.print(line, markup=False))
    _write(results, output)
    if as_json:
        print(json.dumps(results, indent=2))
        return
    console.print(scaling_table(results))


def _write(results: dict[str, Any], output: Path | None) -> None:
    from subbit.core.files import replace_file

    if output is not None:
        replace_file(output, (json.dumps(results, indent=2) + "\n").encode())
