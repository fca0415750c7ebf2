"""`subbit list`: what can be chosen by name, and one of these in full."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from subbit.cli.completion import complete_list, complete_listed
from subbit.cli.consoles import console, print_json, say
from subbit.cli.options import AsJson, PluginFiles, Quiet

COLUMNS = {
    "methods": ("name", "paper", "idea"),
    "codecs": ("name", "payload", "exact", "what"),
    "models": ("name", "parameters", "description"),
    "datasets": ("name", "found", "what"),
}
"""Of the lists that have more than fits; `subbit list KIND NAME` and --json have the rest."""
NARROWEST = 40


def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="methods, codecs, models, datasets, partitions, aggregators, ...", autocompletion=complete_list
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(help="One of them: what it is and all its keys", autocompletion=complete_listed)
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    plugin: PluginFiles = None,
) -> None:
    """List the available methods, codecs, models etc., or explain one of them.

    [bold]subbit list methods[/bold]
    [bold]subbit list methods deltamask[/bold]   its idea, paper, messages, keys and presets
    [bold]subbit list codecs --json[/bold]
    [bold]subbit list datasets --quiet[/bold]   the names alone
    """
    from subbit.report.catalogue import catalogue
    from subbit.report.explain import explain, page_lines

    if name is not None:
        page = explain(what, name)
        if as_json:
            print_json(page)
        else:
            for line in [page["name"]] if quiet else page_lines(what, page):
                say(line)
        return
    rows = catalogue(what)
    if as_json:
        print_json(rows)
    elif quiet:
        for row in rows:
            say(row["name"])
    elif not rows:
        say(f"there are no {what}")
    else:
        console.print(_table(what, rows))
        say(f"subbit list {what} NAME explains one")


def _table(what: str, rows: list[dict[str, Any]]) -> Table:
    """Without lines around it, so that more fits; a method is one line."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = COLUMNS.get(what, tuple(rows[0]))
    for heading in headings:
        last, is_idea = heading == headings[-1], heading == "idea"
        table.add_column(
            heading,
            justify="right" if heading == "parameters" else "left",
            no_wrap=is_idea,
            overflow="ellipsis" if is_idea else "fold",
        )
        if heading == "name" or (heading != "what" and not last):
            table.columns[-1].min_width = min(NARROWEST, max(len(_cell(row, heading)) for row in rows))
    for row in rows:
        table.add_row(
            *(Text(_cell(row, heading), overflow=table.columns[at].overflow) for at, heading in enumerate(headings))
        )
    return table


def _cell(row: dict[str, Any], heading: str) -> str:
    if heading == "idea":  # Without the name, which is in the first column.
        start, colon, rest = row["what"].partition(": ")
        return str(rest if colon else start)
    value = row[heading]
    if heading == "paper":  # E.g. "000 (baseline)", "baseline", "ours".
        return "-" if value == "baseline" else str(value).partition(" ")[0]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
