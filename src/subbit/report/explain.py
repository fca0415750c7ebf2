"""`subbit list KIND NAME`: everything about one component, as a page of plain values and as lines of 80 columns."""

from __future__ import annotations

import textwrap
from typing import Any

from subbit.core.errors import ConfigError
from subbit.core.own_components import others_add, own_keys
from subbit.core.registry import REGISTRIES, nearest
from subbit.report.catalogue import KINDS, catalogue

Page = dict[str, Any]
WIDTH = 80
EXAMPLES = {
    "supermask": "clients=1",
    "edge-popup": "clients=1",
    "fedmask": "partition=classes",
    "per-fedavg": "partition=classes",
    "lg-fedavg": "partition=classes",
    "standalone": "partition=classes",
}
"""What the example of a method has besides its name: a job that it is meant for."""
CHOOSES = {
    "codecs": "codec",
    "maps": "map",
    "aggregators": "aggregator",
    "optimizers": "optimizer",
    "regularisers": "regulariser",
    "privacy": "privacy",
    "tunings": "tuning",
    "models": "model",
    "datasets": "dataset",
    "partitions": "partition",
    "objectives": "objective",
}
"""The key that takes a name of this list."""


def explain(what: str, name: str) -> Page:
    rows = {row["name"]: row for row in catalogue(what)}
    if name not in rows:
        raise ConfigError(f"unknown {KINDS[what]} {name!r}: {nearest(name, [*rows])}")
    page: Page = dict(rows[name])
    if what == "methods":
        return page | (live_method(name) if others_add() else own_keys()["methods"][name])
    kind = KINDS[what]
    if others_add():
        from subbit.report.key_rows import CHOSEN, option_rows

        return page | ({"keys": option_rows(REGISTRIES[kind].find(name))} if kind in CHOSEN else {})
    options = own_keys()["options"].get(kind)
    return page if options is None else page | {"keys": options[name]}


def live_method(name: str) -> Page:
    """What only the method itself says: needs torch."""
    from subbit.methods.names import find_method
    from subbit.report.key_rows import method_rows

    method = find_method(name)
    presets = {preset: {**words} for preset, words in method.presets.items() if preset != "default"}
    more = f" {EXAMPLES[name]}" if name in EXAMPLES else ""
    return {
        "personal": method.personal,
        "fixed": {**method.words},
        "presets": presets,
        "example": f"subbit run method={name}{more}",
        "keys": method_rows(name),
    }


def page_lines(what: str, page: Page) -> list[str]:
    """The page, in lines that fit the terminal."""
    lines = [page["name"], *_wrapped(str(page.get("what") or page.get("description", "")))]
    if what == "methods":
        lines += _method_lines(page)
    for key in ("origin", "parameters", "payload", "exact", "found"):
        if key in page:
            value = page[key]
            shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _word(value)
            lines += _wrapped(f"{key}: {shown}", indent=4)
    if page.get("keys"):
        lines += ["", "keys"]
        for row in page["keys"]:
            lines += key_lines(row)
    example = page.get("example") or _example(what, page)
    return [*lines, *(["", "example", f"  {example}"] if example else [])]


def _method_lines(page: Page) -> list[str]:
    lines = [*_wrapped(f"paper {page['paper']}: {page['citation']}"), ""]
    for way in ("up", "down"):
        lines += _wrapped(f"{way + ':':6}{page[way]}", indent=6)
    if page["personal"]:
        lines += _wrapped("Every client ends with a network of its own.")
    if page["fixed"]:
        lines += _wrapped(f"The name stands for {_words(page['fixed'])}.")
    for preset, words in page["presets"].items():
        changes = f"sets {_words(words)}" if words else "changes nothing"
        lines += _wrapped(f"preset={preset} {changes}", indent=4)
    return lines


def key_lines(row: dict[str, Any]) -> list[str]:
    """A key with its default, what it means and which values it has."""
    table = f"  [{row['table']}]" if row.get("table") else ""
    brought = f", with {row['from']}" if "from" in row else ""
    lines = [f"  {row['key']}={_word(row['default'])}{table}{brought}"]
    what = row["what"]
    if row.get("values", ["true", "false"]) != ["true", "false"]:
        what = f"{what} One of: {', '.join(row['values'])}.".strip()
    elif row.get("words", [row["default"]]) != [row["default"]]:
        what = f"{what} Also: {', '.join(row['words'])}.".strip()
    return [*lines, *_wrapped("      " + what, indent=6)] if what else lines


def _example(what: str, page: Page) -> str:
    """How the name is used, where that needs nothing else."""
    key, name = CHOOSES.get(what), page["name"]
    if key is None or (what == "objectives" and name != "classification") or page.get("found") is False:
        return ""
    if what == "codecs":
        return f"subbit run method={'fedavg' if page['payload'] == 'vector' else 'fedpm'} codec={name}"
    return f"subbit run {'method=fedpeft ' if key == 'tuning' else ''}{key}={name}"


def _wrapped(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, WIDTH - 1, subsequent_indent=" " * indent, break_on_hyphens=False)


def _words(words: dict[str, Any]) -> str:
    return " ".join(f"{key}={_word(value)}" for key, value in words.items())


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
