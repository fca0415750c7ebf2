"""The report of a run: well-formed whatever is in the folder, and with the numbers of its files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from subbit.core.errors import RunFolderError
from subbit.pages.run_page import run_page
from subbit.pages.write_report import DAMAGE, REPORT, try_to_write, write_report
from tests.pages.hand_made import CHANGE, HOSTILE, MASK, SPLIT, event, make_run, summary
from tests.pages.pages_parser import Parsed, check_page


def report(path: Path) -> Parsed:
    assert write_report(path) == path / REPORT
    return check_page((path / REPORT).read_text(encoding="utf-8"))


def headings(found: Parsed) -> list[str]:
    return [each["text"] for each in found.all("h2")]


def cells(found: Parsed, label: str) -> list[list[str]]:
    """The rows of a table, by the name of its container."""
    (region,) = found.all("div", **{"aria-label": label})
    rows = found.inside(region, "tr")
    return [
        [each["text"] for each in found.elements if each["tag"] in ("th", "td") and _holds(found, row, each)]
        for row in rows
    ]


def _holds(found: Parsed, row: dict[str, Any], cell: dict[str, Any]) -> bool:
    return any(found.elements[place] is row for place in cell["within"])


def test_the_numbers_are_those_of_the_summary(tmp_path: Path) -> None:
    found = report(make_run(tmp_path / "a", summary(), split=SPLIT, layers=MASK))
    (lead,) = found.all("p", class_="lead")
    assert lead["text"] == (
        "deltamask on mlp, digits: accuracy 0.8125 after 3 rounds, 0.1250 at the start; 0.006690 MB were sent "
        "both ways."
    )
    figures = dict(zip((e["text"] for e in found.all("dt")), (e["text"] for e in found.all("dd")), strict=True))
    assert figures["bits per parameter up"] == "0.0937"
    assert figures["bits per parameter down"] == "1.8021"
    assert figures["trained parameters"] == "1,184"
    by_bytes, by_round, up, down, layers = found.plots.values()
    assert by_bytes["series"][0]["x"] == [2290 / 1e6, 6690 / 1e6]
    assert by_round["series"][0] == {"name": "accuracy", "x": [0, 2], "y": [0.25, 0.8125], "mode": "lines"}
    assert by_round["lines"] == [{"name": "start", "y": 0.125}]
    assert [each["name"] for each in up["series"] + down["series"]] == ["flips", "theta"]
    assert up["series"][0]["y"] == pytest.approx([198 / 1e6] * 3)
    assert [each["y"] for each in layers["series"]] == [[0.75], [0.25]]
    assert cells(found, "Accuracy by round, numbers") == [
        ["round", "accuracy"],
        ["0", "0.2500"],
        ["2", "0.8125"],
        ["start", "0.1250"],
    ]
    assert cells(found, "One-off costs")[1] == ["fitting the head", "from the clients", "head", "0.000090"]


def test_the_split_is_a_table_of_clients_and_classes(tmp_path: Path) -> None:
    found = report(make_run(tmp_path, summary(), split=SPLIT))
    assert cells(found, "Training examples by client and class") == [
        ["client", "0", "1", "2"], ["0", "5", "", ""], ["1", "", "3", "4"],
    ]  # fmt: skip


def test_classes_with_names_have_them_as_headings(tmp_path: Path) -> None:
    names = [HOSTILE[:16], "dog", "a name that is longer than a column"]
    found = report(make_run(tmp_path, summary(), split={**SPLIT, "class_names": names}))
    headings = cells(found, "Training examples by client and class")[0]
    assert headings == ["client", HOSTILE[:16], "dog", "a name that is …"]


@pytest.mark.parametrize("names", [["a", "b"], "abc", None, 3, {"a": 1}])
def test_names_that_do_not_fit_are_left_out(names: Any, tmp_path: Path) -> None:
    found = report(make_run(tmp_path, summary(), split={**SPLIT, "class_names": names}))
    assert cells(found, "Training examples by client and class")[0] == ["client", "0", "1", "2"]


def test_without_classes_there_is_no_heat_map(tmp_path: Path) -> None:
    split = {"schema": 1, "fingerprint": "0" * 16, "sizes": [5, 7]}
    scores = {"objective": "language", "score_name": "perplexity", "higher_is_better": False}
    found = report(
        make_run(tmp_path, summary(**scores, score=12.5, score_before=1234.5678), split=split, layers=CHANGE)
    )
    assert not found.all("table", class_="cells")[1:], "only that of the participants"
    (lead,) = found.all("p", class_="lead")
    assert "perplexity 12.5000" in lead["text"]
    assert "1,234.6 at the start, where lower is better" in lead["text"]
    assert [each["y"] for each in [*found.plots.values()][-1]["series"]] == [[0.5, None]]


def test_names_that_are_markup_are_text(tmp_path: Path) -> None:
    failure = {"client": 1, "cause": HOSTILE, "message": HOSTILE}
    values = dict.fromkeys(("name", "method", "model", "dataset", "score_name"), HOSTILE)
    hostile = summary(
        **values, scores={HOSTILE: 1.0}, warnings=[{"what": HOSTILE, "key": HOSTILE}], versions={HOSTILE: HOSTILE}
    )
    hostile["privacy"] = {"guarantee": HOSTILE, HOSTILE: HOSTILE}
    layers = {**MASK, "layers": [{"name": HOSTILE, "size": 1, "density": 1.0, "flips": 0.0}]}
    config = f"name = {json.dumps(HOSTILE)}\nrounds = 3\n# {HOSTILE}\n"
    part = '"' + HOSTILE.replace('"', '""') + '"'
    folder = make_run(
        tmp_path / HOSTILE.replace("/", "_"),
        hostile,
        [event(0, 0.5, [failure])],
        config=config,
        part=part,
        layers=layers,
    )
    (folder / "split.txt").write_text(HOSTILE)
    found = report(folder)
    page = (folder / REPORT).read_text(encoding="utf-8")
    assert page.count("</script>") == 3, "the data and two scripts"
    assert "<img" not in page.partition("<script>")[0]
    shown = HOSTILE
    assert found.all("h1")[0]["text"] == shown
    assert found.text.count("onerror=alert(1)") > 10
    assert [*found.plots.values()][2]["series"][0]["name"] == HOSTILE


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", None, [event(0, 0.25), event(1, 0.5)])
    found = report(folder)
    (lead,) = found.all("p", class_="lead")
    assert lead["text"] == (
        "Not finished: 2 of 3 rounds, accuracy 0.5000 so far, 0.1250 at the start; 0.004490 MB were sent both ways."
    )
    assert f"subbit resume {folder}" in found.text


def test_half_lines_of_a_killed_run_are_left_out_and_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path, None, [event(0, 0.25)])
    for name in ("events.jsonl", "ledger.csv"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole + whole.splitlines()[-1][:9])
    found = report(folder)
    assert "the last line of events.jsonl is cut off" in found.text
    assert "ledger.csv: 1 lines cannot be read" in found.text
    assert [*found.plots.values()][1]["series"][0]["y"] == [0.25]


def test_a_run_before_its_first_round_has_a_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path, None, [])
    for name in ("events.jsonl", "ledger.csv", "split.txt"):
        (folder / name).unlink()
    found = report(folder)
    assert "Not finished: 0 of 3 rounds." in found.text
    assert not found.plots


@pytest.mark.parametrize(
    "name", ["summary.json", "events.jsonl", "ledger.csv", "split.json", "layers.json", "config.toml"]
)
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1, 2]\n", b"null\n", b"\xff\xfe\x00\n", b'{"score": []}\n', b"[" * 100_000]
)
def test_a_damaged_file_is_told_and_the_rest_is_shown(name: str, content: bytes, tmp_path: Path) -> None:
    folder = make_run(tmp_path, summary(), split=SPLIT, layers=MASK)
    (folder / name).write_bytes(content)
    found = report(folder)
    assert found.all("h1")


def test_wrong_types_in_the_files_do_not_end_in_a_traceback(tmp_path: Path) -> None:
    for key in summary():
        for value in (None, "text", [1], {"a": 1}, -1, 1e400):
            folder = make_run(tmp_path, summary(**{key: value}), split={**SPLIT, "held": [{"x": "y"}, 3]})
            page = None
            with suppress(RunFolderError, *DAMAGE):  # As `write_page`, without a file.
                page = run_page(folder)
            if page is not None:
                check_page(page)


def test_failures_are_in_the_grid_and_listed_with_their_causes(tmp_path: Path) -> None:
    failures = [{"client": 1, "cause": "deadline", "message": "no answer in 600 s"}]
    events = [event(0, 0.2, failures), event(1, 0.3), event(2, 0.4, failures)]
    found = report(make_run(tmp_path, summary(failed_clients=2, failures={"deadline": 2}), events))
    grid = cells(found, "Clients by rounds: who took part and who failed")
    assert grid == [["client", "0", "1", "2"], ["0", "✓", "✓", "✓"], ["1", "✗", "✓", "✗"], ["2", "✓", "✓", "✓"]]
    assert cells(found, "Failures by cause")[1] == ["deadline", "2", "1", "round 0", "no answer in 600 s"]
    assert "7 of 9 client turns contributed" in found.text


def test_personal_scores_and_privacy_have_sections(tmp_path: Path) -> None:
    privacy = {"guarantee": "(1, 1e-05)-DP for each example", "epsilon": 1.0, "epsilon_spent": 0.5, "delta": 1e-5}
    scores = {"0": 0.75, "1": 0.875}
    found = report(make_run(tmp_path, summary(score_by_client=scores, privacy=privacy)))
    assert {"Score of each client", "Privacy"} <= {*headings(found)}
    assert [*found.plots.values()][-1]["series"][0]["y"] == [0.75, 0.875]
    assert cells(found, "Table of the privacy budget")[1:] == [
        ["epsilon", "1"],
        ["epsilon spent", "0.5"],
        ["delta", "1e-05"],
    ]
    assert "--client 0" in found.text


def test_numbers_that_are_none_are_said_and_not_drawn(tmp_path: Path) -> None:
    """As a run whose loss exploded leaves them."""
    events = [event(0, float("nan")), event(1, 0.5), event(2, float("inf"))]
    found = report(make_run(tmp_path, summary(score=float("nan")), events))
    assert "accuracy not a number" in found.text
    assert [*found.plots.values()][1]["series"][0]["y"] == [0.5]


def test_a_large_run_stays_small(tmp_path: Path) -> None:
    """2,000 rounds, 3,000 clients with 1,000 classes, 5,000 tensors, all failing with long messages."""
    failure = [{"client": number, "cause": "training", "message": "x" * 200} for number in range(10)]
    events = [
        {**event(number, 0.5, failure), "participants": list(range(number % 50, 3000, 50))} for number in range(2000)
    ]
    split = {**SPLIT, "classes": 1000, "held": [{str(each): 9 for each in range(0, 1000, 3)}] * 3000}
    layers = {**MASK, "layers": MASK["layers"] * 5000}
    found = report(make_run(tmp_path, summary(rounds=2000), events, split=split, layers=layers))
    assert "100 of 3000 clients" in found.text
    assert max(len(each["x"]) for plot in found.plots.values() for each in plot["series"]) <= 500


def test_a_round_number_of_a_damaged_ledger_takes_no_time(tmp_path: Path) -> None:
    folder = make_run(tmp_path, summary())
    with (folder / "ledger.csv").open("a") as file:
        file.write("main,999999999999999,0,up,flips,rice,66,0\n")
    report(folder)


def test_only_a_report_of_ours_is_replaced(tmp_path: Path) -> None:
    folder = make_run(tmp_path, summary())
    write_report(folder)
    write_report(folder)
    (folder / REPORT).write_text("<!DOCTYPE html><p>my own page")
    with pytest.raises(RunFolderError, match="no report of ours"):
        write_report(folder)
    assert (folder / REPORT).read_text() == "<!DOCTYPE html><p>my own page"
    told: list[str] = []
    assert try_to_write(lambda: write_report(folder), told.append) is None
    assert told[0].startswith("no report was written: ")
    assert write_report(folder, tmp_path / "other.html").is_file()


def test_what_is_no_run_folder_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="neither a run folder"):
        write_report(tmp_path)
    with pytest.raises(RunFolderError, match="is a folder"):
        write_report(make_run(tmp_path / "a", summary()), tmp_path)


def test_a_bug_of_the_report_is_a_warning() -> None:
    told: list[str] = []

    def broken() -> Path:
        raise ZeroDivisionError("as in the test")

    assert try_to_write(broken, told.append) is None
    assert "as in the test" in told[0]


def test_plugins_and_the_folder_are_in_the_commands(tmp_path: Path) -> None:
    config = f'name = "a"\nmethod = "mine"\nrounds = 3\nplugins = "my_method@{"0" * 64}"\n'
    folder = make_run(tmp_path / "my runs", summary(), config=config)
    text = report(folder).text
    assert f"subbit predict '{folder}' test --plugin my_method.py" in text
    assert f"subbit run '{folder}/config.toml' name=a-again --plugin my_method.py" in text


def test_a_run_of_fine_tune_says_how_python_uses_it(tmp_path: Path) -> None:
    config = 'name = "a"\nmodel = "given"\ndataset = "given"\nrounds = 3\n'
    text = report(make_run(tmp_path, summary(), config=config)).text
    assert "result.save(" in text
    assert "subbit predict" not in text
