"""The plot of a comparison: means over seeds, logarithmic bytes, names that cannot break out of the file."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from subbit.report.frontier import frontier_plot, mean_curve


def run(accuracies: list[float | None], totals: list[int]) -> dict[str, Any]:
    return {"accuracy_by_round": accuracies, "bytes_by_round": totals}


def test_a_curve_is_the_mean_over_seeds_of_evaluated_rounds() -> None:
    """Second round not evaluated; (2 + 4) / 2 = 3 MB at (0.1 + 0.3) / 2 = 0.2, (6 + 8) / 2 = 7 MB at 0.5."""
    seeds = [run([0.1, None, 0.4], [2_000_000, 3_000_000, 6_000_000]), run([0.3, None, 0.6], [4_000_000, 1, 8_000_000])]
    assert [(round(x, 9), round(y, 9)) for x, y in mean_curve(seeds)] == [(3.0, 0.2), (7.0, 0.5)]


def test_equal_factors_of_bytes_are_equally_far_apart() -> None:
    comparison = {"target": 0.5, "runs": {"a": [run([0.1, 0.2, 0.3], [10**6, 10**7, 10**8])]}}
    plot = frontier_plot(comparison)
    places = [float(x) for x in re.findall(r'<circle cx="([0-9.]+)"', plot)]
    assert abs((places[1] - places[0]) - (places[2] - places[1])) < 0.2
    assert "target 0.500" in plot


def test_it_is_well_formed_whatever_the_method_is_called() -> None:
    ElementTree.fromstring(frontier_plot({"target": None, "runs": {"<b>&": [run([0.5], [100])]}}))
    ElementTree.fromstring(frontier_plot({"target": None, "runs": {"standalone": [run([None, 0.5], [0, 0])]}}))
