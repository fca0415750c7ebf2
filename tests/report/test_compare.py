"""How a comparison is told."""

from __future__ import annotations

from subbit.report.compare import accuracy_cell


def test_one_seed_has_no_standard_deviation() -> None:
    row = {"accuracy": 0.50049, "accuracy_spread": 0.25}
    assert accuracy_cell(row, seeds=2, digits=3) == "0.500 ± 0.250"
    assert accuracy_cell({**row, "accuracy_spread": 0.0}, seeds=1, digits=4) == "0.5005"
