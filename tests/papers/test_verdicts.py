"""The rules of the verdicts, with numbers made by hand."""

from __future__ import annotations

import pytest

from subbit.core.errors import ConfigError
from subbit.papers.printed import printed
from subbit.papers.verdicts import (
    Ours,
    by_bound,
    by_order,
    by_relation,
    by_value,
    counted,
    margin_of,
    nearness,
    of_table,
    pair,
    tolerance_of,
)


@pytest.mark.parametrize(
    ("text", "value", "spread", "rounding"),
    [
        ("93.50 ±0.019", 93.5, 0.019, 0.005),
        ("82.85 ± 2.82", 82.85, 2.82, 0.005),
        ("0.18M", 0.18, 0.0, 0.005),
        ("2.56GB", 2.56, 0.0, 0.005),
        ("1024", 1024, 0.0, 0.5),
        ("3.52e-3 ±1.61e-3", 0.00352, 0.00161, 5e-6),
        ("-0.22", -0.22, 0.0, 0.005),
        ("1,933,258", 1933258, 0.0, 0.5),
    ],
)
def test_printed_numbers_are_read(text: str, value: float, spread: float, rounding: float) -> None:
    found = printed(text)
    assert (found.text, found.value, found.spread) == (text, value, spread)
    assert found.rounding == pytest.approx(rounding)


@pytest.mark.parametrize("text", ["", "about 3", "3 4", "<b>3</b>", "nan", "±3"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="printed value"):
        printed(text)


def test_a_value_holds_within_tolerance_and_the_larger_spread() -> None:
    theirs = printed("90.0 ±2.0")
    assert by_value(theirs, Ours(93.0), 1.0) == "holds"
    assert by_value(theirs, Ours(93.1), 1.0) == "does not hold"
    assert by_value(theirs, Ours(93.9, spread=3.0, seeds=3), 1.0) == "holds"
    assert by_value(printed("0.18M"), Ours(0.1849), 0.0) == "holds"  # It would be printed the same.
    assert by_value(printed("0.18M"), Ours(0.1851), 0.0) == "does not hold"


def test_tolerances_are_points_for_accuracies_and_a_share_for_others() -> None:
    assert tolerance_of("accuracy", 90.0, {}) == 1.0
    assert tolerance_of("bpp", 0.2, {}) == pytest.approx(0.01)
    assert tolerance_of("bpp", 0.2, {"bpp": 0.5}) == 0.5


def test_a_bound_holds_up_to_itself() -> None:
    assert by_bound(printed("1"), Ours(1.0), "<") == "holds"
    assert by_bound(printed("1"), Ours(1.001), "<") == "does not hold"
    assert by_bound(printed("1"), Ours(1.001), ">") == "holds"
    assert by_bound(printed("1"), Ours(0.9), ">") == "does not hold"


def test_with_one_seed_the_margin_is_fixed_as_the_spread_is_unknown() -> None:
    assert margin_of("accuracy", [Ours(50.0), Ours(60.0)]) == 3.0
    assert margin_of("accuracy", [Ours(50.0, 0.5, 3), Ours(60.0)]) == 3.0
    assert margin_of("accuracy", [Ours(50.0, 0.5, 3), Ours(60.0, 0.7, 2)]) == 0.7
    assert margin_of("bpp", [Ours(1.0), Ours(2.0)]) == pytest.approx(0.04)


def test_pairs_agree_are_reversed_or_say_nothing() -> None:
    high, low = printed("90.0"), printed("80.0")
    assert pair((high, low), (Ours(60.0), Ours(50.0)), "accuracy", 1.0) == 1
    assert pair((high, low), (Ours(50.0), Ours(60.0)), "accuracy", 1.0) == -1
    assert pair((high, low), (Ours(50.0), Ours(52.0)), "accuracy", 1.0) == 0  # Within the spread nothing is better.
    assert pair((high, printed("89.5")), (Ours(50.0), Ours(60.0)), "accuracy", 1.0) is None
    assert pair((high, printed("85.0 ±6.0")), (Ours(50.0), Ours(60.0)), "accuracy", 1.0) is None


def test_the_order_holds_in_shape_if_nothing_is_reversed() -> None:
    assert by_order([1, 0, None]) == "holds in shape"
    assert by_order([1, 1, -1]) == "does not hold"
    assert by_order([0, None]) == "undecided"
    assert by_order([]) == "undecided"


def test_relations() -> None:
    small, large = Ours(0.1, 0.01, 3), Ours(0.9, 0.02, 3)
    assert by_relation([(small, large)], "bpp", "<", 0.0) == "holds in shape"
    assert by_relation([(small, large)], "bpp", ">", 0.0) == "does not hold"
    assert by_relation([(small, large), (large, small)], "bpp", "<", 0.0) == "does not hold"
    assert by_relation([(small, small)], "bpp", "<", 0.0) == "undecided"
    assert by_relation([], "bpp", "<", 0.0) == "not run"
    whole = Ours(0.1, 0.01, 3, shrunk=False), Ours(0.9, 0.02, 3, shrunk=False)
    assert by_relation([whole], "bpp", "<", 0.0) == "holds"
    near = Ours(80.0, 0.5, 3), Ours(81.4, 0.5, 3)
    assert by_relation([near], "accuracy", "~", 1.0) == "holds in shape"
    assert by_relation([near], "accuracy", "~", 0.5) == "does not hold"


def test_a_table_is_as_good_as_its_worst_value() -> None:
    assert of_table(["holds", "holds in shape", "does not hold", "not run"]) == "does not hold"
    assert of_table(["holds", "not run", "cannot be run here"]) == "holds"
    assert of_table(["holds", "holds in shape", "not run"]) == "holds in shape"
    assert of_table(["holds", "undecided"]) == "holds in shape"
    assert of_table(["undecided", "not run"]) == "undecided"
    assert of_table(["not run", "cannot be run here"]) == "not run"
    assert of_table(["cannot be run here"]) == "cannot be run here"
    assert counted(["holds", "not run", "holds"]) == "2 holds, 1 not run"


def test_a_reading_is_nearest_only_beyond_the_margin() -> None:
    theirs = printed("90.0")
    near, far, level = Ours(89.0, 0.5, 3), Ours(80.0, 0.5, 3), Ours(90.8, 0.5, 3)
    assert nearness({"a": near, "b": far}, theirs, "accuracy") == {
        "a": "the nearest reading",
        "b": "further away than a",
    }
    assert nearness({"a": near, "b": level}, theirs, "accuracy") == dict.fromkeys("ab", "no nearer than another")
    assert nearness({"a": near}, theirs, "accuracy") == {"a": ""}
