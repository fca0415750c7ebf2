"""The report of one run: what came of it, what it cost, who took part, and how to use and repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subbit.pages.document import Page
from subbit.pages.elements import Html, element, paragraph
from subbit.pages.numbers_as_text import MEGABYTE, finite, megabytes, number, whole
from subbit.pages.page_tables import pairs, table
from subbit.pages.plots import Line, Plot, Series
from subbit.pages.read_run import RunData, read_run
from subbit.pages.run_network import held_classes, layers, personal_scores
from subbit.pages.run_people import causes, participation
from subbit.pages.run_traffic import bytes_by_part, one_off_costs
from subbit.pages.run_usage import repeating, using


def run_page(path: Path) -> str:
    run = read_run(path)
    page = Page(run.name, "report of a run")
    page.open(paragraph(headline(run), class_="lead"), *_notices(run), pairs(_figures(run)))
    page.section("Score", _scores(page, run), _networks(run))
    page.section("What was sent", bytes_by_part(page, run), one_off_costs(run))
    page.section("Who took part", participation(run), causes(run))
    page.section("Score of each client", personal_scores(page, run))
    page.section("Who holds what", held_classes(run))
    page.section("What became of the layers", layers(page, run))
    page.section("Privacy", _privacy(run))
    page.section("Use what was trained", using(run))
    page.section("Repeat it", repeating(run))
    return page.as_html()


def headline(run: RunData) -> str:
    """The run in one sentence."""
    summary, name = run.summary, run.score_name
    if summary is None:
        return _unfinished(run)
    what = f"{summary.get('method')} on {summary.get('model')}, {summary.get('dataset')}"
    better = "" if summary.get("higher_is_better", True) else ", where lower is better"
    score, before = _score(summary, "score"), _score(summary, "score_before")
    told = (
        f"{what}: {name} {number(score)} after {_rounds(summary.get('rounds'))}, {number(before)} at the start{better}"
    )
    return f"{told}; {megabytes(summary.get('total_bytes'))} MB were sent both ways."


def _unfinished(run: RunData) -> str:
    done, planned, last = len(run.rounds), run.config.get("rounds"), run.last_score()
    told = f"Not finished: {done} of {whole(planned)} rounds" if planned is not None else f"Not finished: {done} rounds"
    if last is not None:
        told += f", {run.score_name} {number(last)} so far"
    if run.before is not None:
        told += f", {number(run.before.score)} at the start"
    return f"{told}; {megabytes(run.rounds[-1].total_bytes)} MB were sent both ways." if run.rounds else f"{told}."


def _rounds(count: object) -> str:
    return f"{whole(count)} round{'' if count == 1 else 's'}"


def _score(summary: Mapping[str, Any], key: str) -> object:
    """Summaries of earlier versions only have accuracies."""
    return summary.get(key, summary.get(key.replace("score", "accuracy")))


def _notices(run: RunData) -> list[Html]:
    found = []
    if run.summary is None and run.config:
        how = run.folder.how_to_resume()
        found.append(("Not finished", f"This page shows what is in the folder so far. To go on: {how}"))
    found += [("Left out", told) for told in run.unread]
    warnings = (run.summary or {}).get("warnings", ())
    for advice in warnings if isinstance(warnings, list) else ():
        if isinstance(advice, dict):
            found.append(("Warning", f"{advice.get('what')} (key: {advice.get('key')})"))
    return [element("div", paragraph(element("strong", f"{kind}: "), told), class_="notice") for kind, told in found]


def _figures(run: RunData) -> list[tuple[object, object]]:
    summary = run.summary
    if summary is None:
        last = run.rounds[-1] if run.rounds else None
        return [
            (f"{run.score_name} so far", number(run.last_score())),
            ("at the start", number(None if run.before is None else run.before.score)),
            ("rounds", f"{len(run.rounds)} of {whole(run.config.get('rounds'))}"),
            ("MB both ways", number(None) if last is None else megabytes(last.total_bytes)),
        ]
    return [
        (run.score_name, number(_score(summary, "score"))),
        ("at the start", number(_score(summary, "score_before"))),
        ("MB both ways", megabytes(summary.get("total_bytes"))),
        ("bits per parameter up", number(summary.get("uplink_bpp"))),
        ("bits per parameter down", number(summary.get("downlink_bpp"))),
        ("trained parameters", whole(summary.get("parameters"))),
        ("clients per round", f"{whole(summary.get('participants'))} of {whole(summary.get('clients'))}"),
        ("failed client turns", whole(summary.get("failed_clients"))),
        *([("hours on the link", number(summary["link_hours"]))] if "link_hours" in summary else []),
        ("seconds of rounds", number(summary.get("seconds"), 1)),
    ]


def _scores(page: Page, run: RunData) -> Html | None:
    scored = [event for event in run.rounds if finite(event.score) is not None]
    if not scored:
        return paragraph("No round was evaluated.", class_="quiet")
    lines = [] if run.before is None else [Line("start", run.before.score)]
    scores = [event.score for event in scored]
    sent = [event.total_bytes / MEGABYTE for event in scored]
    name = run.score_name
    by_bytes = Plot(
        f"{name.capitalize()} against megabytes", "MB both ways", name,
        [Series(name, sent, scores)], lines, "All clients, one-off costs included.",
    )  # fmt: skip
    numbers = [event.round for event in scored]
    by_round = Plot(
        f"{name.capitalize()} by round",
        "round",
        name,
        [Series(name, numbers, scores)],
        lines,
        "Rounds that were evaluated.",
        whole=True,
    )
    return element("div", page.plot(by_bytes), page.plot(by_round), class_="parts two")


def _networks(run: RunData) -> Html | None:
    """Scores of the method's networks, and the other scores of the objective."""
    summary = run.summary or {}
    known = ("before", "by_round", "by_client", "name")
    rows: list[tuple[object, object]] = [
        (f"{run.score_name}, {key.removeprefix('score_')} network", number(value))
        for key, value in summary.items()
        if key.startswith("score_") and key.removeprefix("score_") not in known
    ]
    others = summary.get("scores")
    if isinstance(others, dict):
        rows += [(name, number(value)) for name, value in others.items() if name != run.score_name]
    if not rows:
        return None
    return table(["after the last round", "value"], rows, "Other scores after the last round")


def _privacy(run: RunData) -> Html | None:
    privacy = (run.summary or {}).get("privacy")
    if not isinstance(privacy, dict):
        return None
    rows = [(key.replace("_", " "), _shown(value)) for key, value in privacy.items() if key != "guarantee"]
    return element(
        "div",
        paragraph(privacy.get("guarantee", "")),
        table(["quantity", "value"], rows, "Table of the privacy budget"),
    )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
