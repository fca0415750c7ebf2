"""The summary of a run on the terminal: a table, one line, and what to do with the result."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from rich.markup import escape
from rich.table import Table

from subbit.cli.consoles import console, errors, say
from subbit.cli.estimates import megabytes

GIVEN = "given"  # As `config.schema.GIVEN`, which `subbit show` need not import.


def print_summary(summary: dict[str, Any], folder: Path) -> None:
    title = f"{summary['method']} on {summary['model']}, {summary['dataset']}"
    table = Table(show_header=False, title=escape(title))
    table.add_column(overflow="fold")
    table.add_column(justify="right", overflow="fold")
    name = summary.get("score_name", "accuracy")
    score = "score" if "score" in summary else "accuracy"  # Runs of earlier versions only have accuracies.
    several = ("expected", "sampled", "thresholded", "masked", "trained")
    for network in several:
        if f"{score}_{network}" in summary:
            table.add_row(f"{name}, {network} network", f"{summary[f'{score}_{network}']:.4f}")
    if not any(f"{score}_{network}" in summary for network in several):
        table.add_row(name, f"{summary[score]:.4f}")
    start = "before (head alone)" if name == "accuracy" else "before"
    table.add_row(f"{name} {start}", f"{summary[f'{score}_before']:.4f}")
    table.add_row("trained parameters", f"{summary['parameters']:,}")
    table.add_row("uplink, bits per parameter", f"{summary['uplink_bpp']:.4f}")
    table.add_row("downlink, bits per parameter", f"{summary['downlink_bpp']:.4f}")
    for name in ("uplink", "downlink", "one_off"):
        table.add_row(f"{name.replace('_', '-')} MB", f"{summary[f'{name}_bytes'] / 1e6:.3f}")
    if "link_hours" in summary:
        table.add_row(f"hours on {summary['link_mbit']:g} Mbit/s", f"{summary['link_hours']:.4f}")
    if "false_flips_per_upload" in summary:
        table.add_row("false flips per upload", f"{summary['false_flips_per_upload']:.1f}")
    if "privacy" in summary:
        table.add_row("privacy", escape(summary["privacy"]["guarantee"]))
    if summary["failed_clients"]:
        causes = ", ".join(f"{count} {cause}" for cause, count in summary["failures"].items())
        table.add_row("failed client turns", escape(f"{summary['failed_clients']} ({causes})"))
    if "not_evaluated" in summary:
        causes = ", ".join(f"{count} {cause}" for cause, count in summary["not_evaluated"].items())
        table.add_row("clients that could not be evaluated", escape(causes))
    table.add_row("seconds", f"{summary['seconds']:.1f}")
    console.print(table)
    say(f"model {summary['model_sha256'][:16]}, results in {folder}/")
    for advice in summary.get("warnings", ()):
        errors.print(f"warning: {escape(advice['what'])}", soft_wrap=True, highlight=False)


def result_line(summary: dict[str, Any], label: object) -> str:
    """The run in one line, for --quiet."""
    name = summary.get("score_name", "accuracy")
    score = summary["score"] if "score" in summary else summary["accuracy"]
    sent = sum(summary[f"{way}_bytes"] for way in ("uplink", "downlink", "one_off"))
    rates = f"up {summary['uplink_bpp']:.4f} and down {summary['downlink_bpp']:.4f} bits per parameter"
    return f"{label}: {name} {score:.4f}, {rates}, {megabytes(sent)}"


def print_next(summary: dict[str, Any], folder: Path) -> None:
    """What to do with what was trained. Of a run of `fine_tune` only its script has the module."""
    from subbit.methods.names import find_method

    where = quote(str(folder))
    say(f"next: subbit show {where}")
    if GIVEN not in (summary["model"], summary["dataset"]):
        client = " --client 0" if find_method(summary["method"]).personal else ""
        say(f"      subbit predict {where} test{client}   # or an image, a folder, a file instead of test")
        say(f"      subbit export {where} --module {quote(folder.name + '-model')}{client}")
