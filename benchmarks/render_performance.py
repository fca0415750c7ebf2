"""Update the numbers and the plot of docs/performance.md from benchmarks/results. No number is typed by hand.

    subbit bench engine --output benchmarks/results/engine.json
    subbit bench scaling --output benchmarks/results/scaling.json
    python benchmarks/render_performance.py

A generated section of the page is between `<!-- generated: NAME -->` and `<!-- /generated -->`. engine_before.json is
what the same command measured before the engine was made faster, on another machine: of it the page has ratios and
memory. Seconds of the code before are in engine.json, from the same run as those of the code now.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from before_section import before_section
from page_sections import SECTION as SECTION
from page_sections import Results, filled, table
from plot_scaling import save_plot

ROOT = Path(__file__).parent.parent
FOLDER, PAGE, PLOT = ROOT / "benchmarks/results", ROOT / "docs/performance.md", ROOT / "docs/scaling.svg"
FILES = {"now": "engine.json", "before": "engine_before.json", "scaling": "scaling.json"}
MILLION = 1_000_000


def main() -> None:
    results = committed()
    PAGE.write_text(with_sections(PAGE.read_text(), results))
    save_plot(results["scaling"], PLOT)


def committed() -> dict[str, Any]:
    return {name: json.loads((FOLDER / file).read_text()) for name, file in FILES.items()}


def with_sections(page: str, results: Results) -> str:
    return filled(page, results, SECTIONS)


def conditions(results: Results) -> str:
    now = results["now"]
    machine, versions = now["machine"], ", ".join(f"{name} {version}" for name, version in now["versions"].items())
    load = f"load {machine['load_average_before']} before and {machine['load_average_after']} after the run"
    return f"Measured on {machine['cpu']} ({machine['logical_cpus']} logical CPUs, {load}); {versions}."


def targets(results: Results) -> str:
    now = results["now"]
    before = {name: value for name, value in results["before"]["results"].items() if not name.endswith("_seconds")}
    rows = [
        (
            f"`{name}`",
            f"{before[name]:.3g}" if name in before else "",
            f"{target['value']:.3g}",
            target["bar"],
            "met" if target["met"] else "**missed**",
        )
        for name, target in now["targets"].items()
    ]
    met = sum(target["met"] for target in now["targets"].values())
    text = f"{met} of {len(rows)} targets are met.\n\n{table(('measured', 'before', 'now', 'target', ''), rows)}"
    if now["missing"]:
        text += f"\n\nNot measured in this run: {', '.join(sorted(now['missing']))}."
    return text


def peers(results: Results) -> str:
    """Seconds of the same job in every engine that was measured, now."""
    details = results["now"]["details"]
    rows = []
    for name, what in (("mlp", "MLP, 10 of 100 clients"), ("vit", "vit-micro's last 5 blocks, 5 of 20 clients")):
        if name in details.get("pfl", {}):
            row = details["pfl"][name]
            seconds = (f"{row[key]:.2f} s" for key in ("engine_cpu", "plain_cpu", "pfl_cpu"))
            rows.append((f"{what}: CPU of a round", *seconds, ""))
    if "flower" in details:
        row = details["flower"]
        ours, theirs = row["engine_wall"]["1 workers"], row["flower_wall"]
        rows.append(
            (f"MLP, {row['rounds']} rounds with start-up: wall time", f"{ours:.1f} s", "", "", f"{theirs:.1f} s")
        )
    return table(("job", "subbit", "plain PyTorch", "pfl", "Flower"), rows)


def clients(results: Results) -> str:
    rows = [
        (
            f"{row['participants']:,} of {row['clients']:,}",
            f"{row['cpu']:.3g} s",
            f"{row['ms_per_turn']:.2f} ms",
            f"{row['peak_mb']:.0f} MB",
        )
        for name in ("all", "few")
        for row in results["scaling"][name]
    ]
    plot = f"![CPU and memory of a round against clients and parameters]({PLOT.name})"
    return f"{table(('clients of a round', 'CPU of a round', 'per turn', 'peak memory'), rows)}\n\n{plot}"


def parameters(results: Results) -> str:
    rows = [
        (
            f"{row['parameters']:,}",
            f"{row['cpu']:.3g} s",
            f"{row['ns_per_parameter_turn']:.1f} ns",
            f"{row['peak_mb']:.0f} MB",
            f"{(row['peak_mb'] - row['before_mb']) * 2**20 / row['parameters']:.0f} bytes",
        )
        for row in results["scaling"]["parameters"]
    ]
    return table(("parameters", "CPU of a round", "per parameter and turn", "peak memory", "per parameter"), rows)


def workers(results: Results) -> str:
    first = results["scaling"]["workers"][0]["round_wall"]
    rows = [
        (str(row["workers"]), f"{row['round_wall']:.2f} s", f"{first / row['round_wall']:.2f}")
        for row in results["scaling"]["workers"]
    ]
    return table(("workers", "a round of vit-micro", "speed-up"), rows)


def million(results: Results) -> str:
    """What a million clients would take, from the two largest points of each curve."""
    few, everyone = results["scaling"]["few"], results["scaling"]["all"]
    megabytes, idle = slope(few, "peak_mb"), slope(few, "cpu")
    turn = slope(everyone, "cpu")
    memory = few[-1]["peak_mb"] + megabytes * (MILLION - few[-1]["clients"])
    share = MILLION // 100
    return (
        f"From {few[-2]['clients']:,} to {few[-1]['clients']:,} clients of which ten take part, a client that waits "
        f"adds {1e6 * max(0.0, idle):.1f} microseconds of CPU to a round and {1024 * max(0.0, megabytes):.1f} kB of "
        f"memory, its {examples_bytes() / 1024:.1f} kB of data included. A million clients would thus take about "
        f"{memory / 1024:.1f} GB on one machine, and be chosen from in {max(0.0, idle) * MILLION:.1f} s a round. "
        f"A turn costs {1000 * turn:.1f} ms of CPU beside its training, so that a round of {share:,} of them is "
        f"{turn * share:.0f} s of the engine's own work, and a round of all of them {turn * MILLION / 3600:.1f} hours, "
        "divided by the workers."
    )


def slope(rows: list[Results], value: str) -> float:
    """Growth per client between the two largest points."""
    small, large = rows[-2:]
    return float(large[value] - small[value]) / float(large["clients"] - small["clients"])


def examples_bytes() -> int:
    """Data of one client in `benchmarks.bench.scaling`: eight examples of 64 float32, and labels."""
    return 8 * (64 * 4 + 8)


SECTIONS: dict[str, Callable[[Results], str]] = {
    "conditions": conditions,
    "targets": targets,
    "before": before_section,
    "peers": peers,
    "clients": clients,
    "parameters": parameters,
    "workers": workers,
    "million": million,
}


if __name__ == "__main__":
    sys.exit(main())
