"""What a shell offers at the next TAB: methods, keys, values and run folders, from files and without importing torch.

bash cuts `method=delta` into three words (`method`, `=`, `delta`) and replaces the last, zsh and fish have one word.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from subbit.core.own_components import own_keys, read_own
from subbit.core.registry import OWNERS

Offers = list[tuple[str, str]]
"""Words, each with a short help."""
RUNS = Path("runs")
RUN_MARK = "config.toml"
DOWN = "down_"


def complete_job(context: typer.Context, incomplete: str) -> Offers:
    """The words of `subbit run`: a TOML file, then key=value."""
    words = [str(word) for word in context.params.get("words") or ()]
    offers = _assignment(words, incomplete)
    return offers if words or "=" in incomplete else offers + complete_toml(incomplete)


def complete_contender(context: typer.Context, incomplete: str) -> Offers:
    """The words of `subbit compare`: methods, then key=value."""
    words = [str(word) for word in context.params.get("methods") or ()]
    methods = [(row["name"], row["what"]) for row in read_own("methods") or ()]
    named = [word for word in words if any(word == name for name, _ in methods)]
    own = [f"method={named[0]}"] if named else []
    offers = _assignment([*own, *(word for word in words if word not in named)], incomplete)
    return offers if "=" in incomplete or words[-1:] == ["="] else methods + offers


def complete_toml(incomplete: str) -> Offers:
    return [
        (f"{path}/" if path.is_dir() else str(path), "")
        for path in _beginning_with(incomplete)
        if path.is_dir() or path.suffix == ".toml"
    ]


def complete_folder(incomplete: str) -> Offers:
    """Run folders: those in `runs` where nothing is typed yet, and folders on the way to others."""
    offers: Offers = [] if incomplete else [(str(path), "") for path in _folders(RUNS) if (path / RUN_MARK).is_file()]
    if not offers:
        paths = [path for path in _beginning_with(incomplete) if path.is_dir()]
        offers = [(str(path) if (path / RUN_MARK).is_file() else f"{path}/", "") for path in paths]
    return offers


def complete_list(incomplete: str) -> list[str]:
    return [kind if kind == "privacy" else f"{kind}s" for kind in OWNERS]


def complete_listed(context: typer.Context, incomplete: str) -> Offers:
    what = str(context.params.get("what"))
    if what == "datasets":
        return [(name, "") for name in own_keys()["names"]["dataset"]]
    return [(row["name"], row.get("what", "")) for row in read_own(what) or ()]


def complete_codec(incomplete: str) -> Offers:
    return [(row["name"], row["what"]) for row in read_own("codecs") or () if row["payload"] == "vector"]


def complete_tuning(incomplete: str) -> Offers:
    return [(row["name"], row["what"]) for row in read_own("tunings") or ()]


def _assignment(words: list[str], incomplete: str) -> Offers:
    """Keys that begin like this or, after the sign, values. A key that is the only one comes with its values."""
    rows = {row["key"]: row for row in _rows(_given(words))}
    cut = len(words) > 1 and words[-1] == "="
    if cut or (words and not incomplete and words[-1] in rows):  # bash.
        return [(value, "") for value in _values(rows.get(words[-2] if cut else words[-1]))]
    key, sign, _ = incomplete.partition("=")
    if sign:
        return [(f"{key}={value}", "") for value in _values(rows.get(key))]
    fitting = [row for name, row in rows.items() if name.startswith(incomplete)]
    if len(fitting) == 1:
        # Two or more offers, so that the shell sets no space after the sign.
        row = fitting[0]
        values = _values(row)
        return [(f"{row['key']}={value}", row["what"]) for value in (values if len(values) > 1 else ["", *values])]
    return [(f"{row['key']}=", row["what"]) for row in fitting]


def _given(words: list[str]) -> dict[str, str]:
    """What is assigned so far; a TOML file first, if there is one that can be read."""
    found: dict[str, str] = {}
    if words and words[0].endswith(".toml"):
        try:
            found = {key: str(value) for key, value in tomllib.loads(Path(words[0]).read_text()).items()}
        except (OSError, ValueError):
            found = {}
    for word in " ".join(words).replace(" = ", "=").split():
        key, sign, value = word.partition("=")
        if sign:
            found[key] = value
    return found


def _rows(given: dict[str, str]) -> list[dict[str, Any]]:
    """The keys of the run and of the chosen method, with the options of what is chosen in it."""
    known = own_keys()
    method = known["methods"].get(given.get("method", "deltamask"), {"keys": []})
    rows = []
    for row in method["keys"]:
        choice, _, name = row.get("from", "").partition("=")
        key = f"{DOWN}{choice}" if row.get("table") == "down" else choice
        if not choice or given.get(key, name) == name:
            rows.append(row)
        if "kind" in row and given.get(row["key"], row["default"]) != row["default"]:
            prefix = DOWN if row["key"].startswith(DOWN) else ""
            options = known["options"][row["kind"]].get(given[row["key"]], ())
            rows += [{**option, "key": prefix + option["key"]} for option in options]
    names = known["names"]
    return [{**row, "values": names[row["key"]]} if row["key"] in names else row for row in known["run"]] + rows


def _values(row: dict[str, Any] | None) -> list[str]:
    """Of an open set the words, and the default, so that it is seen."""
    if row is None or "values" in row:
        return [] if row is None else row["values"]
    return [*dict.fromkeys([str(row["default"]), *row.get("words", [])])]


def _beginning_with(incomplete: str) -> Iterable[Path]:
    """Paths that go on from what is typed; hidden ones only where a dot is typed."""
    typed = Path(incomplete)
    parent, start = (typed, "") if not incomplete or incomplete.endswith("/") else (typed.parent, typed.name)
    return [path for path in _entries(parent) if path.name.startswith(start) and (start or path.name[0] != ".")]


def _folders(parent: Path) -> Iterable[Path]:
    return [path for path in _entries(parent) if path.is_dir() and path.name[0] != "."]


def _entries(parent: Path) -> list[Path]:
    try:
        return sorted(parent.iterdir())
    except OSError:
        return []
