"""Who took part in which round, who failed, and why."""

from __future__ import annotations

from collections import Counter, defaultdict

from subbit.pages.elements import Html, element, paragraph
from subbit.pages.page_tables import bins, coloured, span, table
from subbit.pages.read_run import RunData
from subbit.runtime.events import Failed

CLIENTS, COLUMNS = 100, 60
"""Rows and columns of the grid at most."""
MESSAGES = 100
TAKES = "✓"
FAILS = "✗"


def participation(run: RunData) -> Html | None:
    """Clients by rounds. Rounds are put together where there are many; of many clients those that failed come first."""
    if not run.rounds:
        return None
    asked: dict[int, Counter[int]] = defaultdict(Counter)
    failed: dict[int, Counter[int]] = defaultdict(Counter)
    groups = bins(max(event.round for event in run.rounds) + 1, COLUMNS)
    wide = len(groups[0])
    for event in run.rounds:
        for client in event.participants:
            asked[client][event.round // wide] += 1
        for failure in event.failures:
            failed[failure.client][event.round // wide] += 1
    everyone = sorted(asked.keys() | failed.keys(), key=lambda client: (-failed[client].total(), client))
    shown = sorted(everyone[:CLIENTS])
    rows = [
        (str(client), [_cell(asked[client][place], failed[client][place], wide) for place in range(len(groups))])
        for client in shown
    ]
    grid = coloured(
        "client", [span(group) for group in groups], rows, "Clients by rounds: who took part and who failed"
    )
    if wide == 1:
        told = f"{TAKES} took part, {FAILS} asked and failed, empty: not asked. Columns are rounds."
    else:
        told = (
            f"Turns that contributed, of those asked for, in {wide} rounds each; red: some failed. Columns are rounds."
        )
    if len(shown) < len(everyone):
        told += f" {len(shown)} of {len(everyone)} clients are shown, those with most failures first."
    answered, turns = sum(event.answered for event in run.rounds), sum(len(event.participants) for event in run.rounds)
    total = paragraph(f"{answered:,} of {turns:,} client turns contributed to the network.")
    return element("div", total, paragraph(told, class_="quiet"), element("div", grid, class_="card"))


def _cell(asked: int, failed: int, wide: int) -> tuple[str, str]:
    if not asked and not failed:
        return "", "none"
    text = FAILS if failed else TAKES
    return (text if wide == 1 else f"{max(asked - failed, 0)}/{asked}"), ("no" if failed else "yes")


def causes(run: RunData) -> Html | None:
    """Every cause with its first message, then every failure."""
    found: list[tuple[str, Failed]] = []
    for event in run.asked:
        when = "head phase" if event.phase == "head" else f"round {event.round}"
        found += [(when, failure) for failure in event.failures]
        found += [(f"evaluation after {when}", failure) for failure in getattr(event, "not_evaluated", None) or ()]
    if not found:
        return paragraph("No client failed.") if run.asked else None
    counts = Counter(failure.cause for _, failure in found)
    first = {failure.cause: (when, failure) for when, failure in reversed(found)}
    rows = [
        (
            cause,
            count,
            len({each.client for _, each in found if each.cause == cause}),
            first[cause][0],
            first[cause][1].message,
        )
        for cause, count in counts.most_common()
    ]
    headings = ["cause", "times", "clients", "first in", "first message"]
    each = [(when, f"client {failure.client}", failure.cause, failure.message) for when, failure in found[:MESSAGES]]
    more = f" (the first {MESSAGES} of {len(found)})" if len(found) > MESSAGES else ""
    return element(
        "div",
        element("h3", "Failures by cause"),
        table(headings, rows, "Failures by cause", text=(0, 3, 4)),
        element(
            "details",
            element("summary", f"Every failure{more}"),
            table(["when", "client", "cause", "message"], each, "Every failure", text=(0, 1, 2, 3), high=True),
        ),
    )
