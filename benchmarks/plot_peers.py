"""The picture of docs/flagship.md: `subbit` in the arena and what others published, on the same axes of bytes."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from svg_files import SETTINGS, save_svg

OURS, THEIRS = "#0b3d91", "#8a8a8a"
MARKERS = {"OPT-125M": "o", "OPT-1.3B": "s"}
PEERS = runpy.run_path(str(Path(__file__).with_name("peers.py")))


def save_plot(own: Sequence[Any], peers: dict[str, Any], path: Path) -> None:
    with matplotlib.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(1, 2, figsize=(11.0, 4.2), layout="constrained", width_ratios=(3, 2))
        _runs(axes[0], own, peers["decomfl"])
        _rounds(axes[1], own, peers)
        for panel in axes:
            panel.grid(alpha=0.25)
            for side in ("top", "right"):
                panel.spines[side].set_visible(False)
        save_svg(figure, path)
        pyplot.close(figure)


def _runs(axes: Axes, own: Sequence[Any], decomfl: dict[str, Any]) -> None:
    for each in own:
        if each.score_name == "accuracy":
            spent, scores = zip(*each.curve, strict=True)
            axes.plot(spent, scores, "o-", color=OURS, markersize=4)
            axes.annotate(f"subbit, {each.job}", (spent[0], scores[0]), (-5, 0), textcoords="offset points",
                          ha="right", va="center", color=OURS)  # fmt: skip
    for result in decomfl["results"]:
        if result["tuning"] == "all weights":
            points = [PEERS["printed"](text) for text in result["printed"].values()]
            spent = [megabytes * PEERS["MEGABYTE"] for _, megabytes in points]
            scores = [score for score, _ in points]
            mark = MARKERS[result["model"]]
            axes.plot(spent, scores, f"{mark}--", color=THEIRS, markersize=4, markerfacecolor="white", lw=0.8)
            axes.annotate(result["task"], (spent[-1], scores[-1]), (5, 0), textcoords="offset points", va="center",
                          color=THEIRS, fontsize=7)  # fmt: skip
    for model, mark in MARKERS.items():
        axes.plot([], [], f"{mark}--", color=THEIRS, markerfacecolor="white", lw=0.8, markersize=4,
                  label=f"theirs: DeComFL, {model}, P = 5 and 10")  # fmt: skip
    axes.plot([], [], "o-", color=OURS, markersize=4, label="ours, at each evaluated round")
    axes.legend(loc="upper left", fontsize=7, frameon=False)
    axes.set(xscale="log", xlabel="bytes per client, both ways, whole run", ylabel="accuracy", ylim=(0.5, 1.0))
    axes.set_title("Other networks and tasks: do not compare heights", fontsize=9)
    least, most = axes.get_xlim()
    axes.set_xlim(least / 4, most * 1.5)  # Room for the names.


def _rounds(axes: Axes, own: Sequence[Any], peers: dict[str, Any]) -> None:
    rows = [(f"subbit, {each.job}", each.up + each.down, OURS) for each in own]
    for sizes in PEERS["decomfl_rounds"](peers["decomfl"]):
        rows.append((f"theirs: DeComFL, P = {sizes.perturbations}, computed", sizes.up + sizes.down, THEIRS))
    rows.append(("theirs: FedKSeed, less than", peers["fedkseed"]["per_round"]["under_bytes"], THEIRS))
    for place, (_, size, colour) in enumerate(rows):
        bound = place == len(rows) - 1
        axes.plot(
            size, -place, "<" if bound else "o", color=colour, markerfacecolor=colour if colour == OURS else "white"
        )
        axes.annotate(f"{size:,.0f}", (size, -place), (0, 6), textcoords="offset points", ha="center", fontsize=7)
    axes.set_yticks([-place for place in range(len(rows))], [name for name, _, _ in rows])
    axes.set(xscale="log", xlabel="bytes per client and round, both ways", xlim=(10, 100_000))
    axes.margins(y=0.15)
