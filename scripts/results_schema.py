"""Write docs/results.schema.json and the tables of docs/results.md from the classes of the files that a run writes.

    python scripts/results_schema.py

`tests/report/test_results.py` fails if either is out of date, and validates real runs against the schema.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from subbit.core.json_records import PREFIX
from subbit.privacy.report import PrivacyReport
from subbit.runtime.events import Before, Failed, HeadRound, MainRound
from subbit.runtime.live_lines import Asked, Replied, Stopped
from subbit.runtime.results import Advice, Codecs, Summary
from subbit.runtime.side_files import Layer, Layers, Split

ROOT = Path(__file__).parents[1]
SCHEMA, PAGE = ROOT / "docs" / "results.schema.json", ROOT / "docs" / "results.md"
WRITTEN = (Summary, Before, HeadRound, MainRound, Split, Layers)
"""`summary.json`, lines of `events.jsonl`, `split.json` and `layers.json`."""
WITHIN = (Codecs, Advice, PrivacyReport, Failed, Layer)
LIVE = (Asked, Replied, Stopped)
"""Lines of `live.jsonl`: on the page, but no results, so not in the schema."""
MARKERS = re.compile(r"(?P<open><!-- keys: (?P<name>\w+) -->\n).*?(?P<close><!-- /keys -->)", re.DOTALL)
SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", types.NoneType: "null"}
WORDS = {"integer": "whole number", "string": "text", "boolean": "true or false"}


def about(kind: type) -> dict[str, str]:
    """Description of each field: the docstring below it, from the most derived class that has one."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(body, ast.ClassDef)
        for line, following in zip(body.body, [*body.body[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                said = following.value if isinstance(following, ast.Expr) else None
                if isinstance(said, ast.Constant):
                    found[line.target.id] = inspect.cleandoc(str(said.value)).replace("\n", " ")
    return found


def schema_of_type(kind: Any) -> dict[str, Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if origin is Literal:
        return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
    if origin is types.UnionType:
        return {"anyOf": [schema_of_type(each) for each in inner]}
    if origin is tuple:
        return {"type": "array", "items": schema_of_type(inner[0])}
    if origin is dict:
        names = {"propertyNames": {"pattern": "^[0-9]+$"}} if inner[0] is int else {}
        return {"type": "object", **names, "additionalProperties": schema_of_type(inner[1])}
    return {"type": SCALARS[kind]}


def may_be_left_out(field: dataclasses.Field[Any]) -> bool:
    return field.default is None or PREFIX in field.metadata


def fields_of(kind: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Fields with their types. A field that is left out instead of being null is never null."""
    hints = typing.get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if field.default is None:
            (hint,) = (each for each in get_args(hint) if each is not types.NoneType)
        found.append((field, hint))
    return found


def schema_of_class(kind: type) -> dict[str, Any]:
    said, fields = about(kind), fields_of(kind)
    properties, patterns = {}, {}
    for field, hint in fields:
        described = {"description": said[field.name]}
        if PREFIX in field.metadata:
            prefix = field.metadata[PREFIX]
            taken = "|".join(each.name.removeprefix(prefix) for each, _ in fields if each.name.startswith(prefix))
            patterns[f"^{prefix}(?!({taken})$)"] = {**described, **schema_of_type(get_args(hint)[1])}
        else:
            properties[field.name] = {**described, **schema_of_type(hint)}
    return {
        "description": inspect.cleandoc(kind.__doc__ or "").replace("\n", " "),
        "type": "object",
        "properties": properties,
        **({"patternProperties": patterns} if patterns else {}),
        "required": [field.name for field, _ in fields if not may_be_left_out(field)],
        "additionalProperties": False,
    }


def schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Results of subbit: summary.json, a line of events.jsonl, split.json or layers.json",
        "oneOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in WRITTEN],
        "$defs": {kind.__name__: schema_of_class(kind) for kind in (*WRITTEN, *WITHIN)},
    }


def schema_text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def in_words(found: dict[str, Any]) -> str:
    if "$ref" in found:
        return found["$ref"].rpartition("/")[2]
    if "anyOf" in found:
        return " or ".join(in_words(each) for each in found["anyOf"])
    if "const" in found:
        return f"`{json.dumps(found['const'])}`"
    if "enum" in found:
        return " or ".join(f"`{json.dumps(each)}`" for each in found["enum"])
    if found["type"] == "array":
        return f"list of {in_words(found['items'])}"
    if found["type"] == "object":
        return f"{'by client' if 'propertyNames' in found else 'by name'}: {in_words(found['additionalProperties'])}"
    return WORDS.get(found["type"], found["type"])


def table(kind: type) -> list[str]:
    said = about(kind)
    lines = ["| key | value | |", "|---|---|---|"]
    for field, hint in fields_of(kind):
        prefix = field.metadata.get(PREFIX)
        name = field.name if prefix is None else f"{prefix}NETWORK"
        value = in_words(schema_of_type(hint if prefix is None else get_args(hint)[1]))
        optional = ", may be missing" if may_be_left_out(field) else ""
        lines.append(f"| `{name}` | {value}{optional} | {said[field.name]} |")
    return lines


def rendered_page(text: str) -> str:
    kinds = {kind.__name__: kind for kind in (*WRITTEN, *WITHIN, *LIVE)}
    return MARKERS.sub(
        lambda found: found["open"] + "\n".join(table(kinds[found["name"]])) + "\n" + found["close"], text
    )


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
    PAGE.write_text(rendered_page(PAGE.read_text()))
