"""Write docs/commands.md from the command line's own help, and docs/keys.md from the keys of a run.

    python benchmarks/render_reference.py

`tests/docs/test_generated.py` fails when one of them is out of date.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import typer

from subbit.cli.entry import app
from subbit.core.own_components import own_keys

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
METHODS = runpy.run_path(str(Path(__file__).with_name("render_methods.py")))
EXAMPLE = re.compile(r"^\[bold\](?P<command>.*?)\[/bold\]\s*(?P<what>.*)$")
HIDDEN = {"--install-completion", "--show-completion"}
"""Typer's own, which the page about the command line describes."""


def commands(group: Any, name: str = "subbit") -> list[str]:
    """A section for each command, groups after the commands of their own."""
    lines: list[str] = []
    for each, command in group.commands.items():
        whole = f"{name} {each}"
        lines += commands(command, whole) if hasattr(command, "commands") else section(command, whole)
    return lines


def section(command: Any, name: str) -> list[str]:
    words = " ".join(usage(each) for each in command.params if each.param_type_name == "argument")
    lines = [
        f"## {name}",
        "",
        "```text",
        f"{name} [OPTIONS] {words}".rstrip(),
        "```",
        "",
        *described(command.help or ""),
    ]
    rows = [row(each) for each in command.params if each.param_type_name == "option" and not HIDDEN & {*each.opts}]
    rows = [[f"`{usage(each)}`", cell(each.help or "")] for each in command.params if named(each)] + rows
    return [*lines, METHODS["table"](["option", "what"], rows), ""] if rows else lines


def named(argument: Any) -> bool:
    return argument.param_type_name == "argument" and bool(getattr(argument, "help", None))


def usage(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("[]").removesuffix("...")
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def row(option: Any) -> list[str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" {value_of(option.type)}"
    default = option.default
    shown = default is not None and not callable(default) and default not in (False, (), [], "") and not option.is_flag
    return [f"{names}{value}", cell((option.help or "") + (f" (default `{default}`)" if shown else ""))]


def value_of(kind: Any) -> str:
    return (
        "/".join(map(str, kind.choices)) if hasattr(kind, "choices") else str(kind.name).upper().removesuffix(" RANGE")
    )


def described(text: str) -> list[str]:
    """Paragraphs as they are, examples as lines of a block."""
    lines: list[str] = []
    examples: list[str] = []
    for line in (each.strip() for each in text.replace("\b", "").splitlines()):
        found = EXAMPLE.match(line)
        if found:
            examples.append(f"{found['command']}    # {found['what']}" if found["what"] else found["command"])
        else:
            lines.append(plain(line))
    block = ["```text", *examples, "```", ""] if examples else []
    return [*"\n".join(lines).strip().splitlines(), "", *block]


def plain(text: str) -> str:
    return re.sub(r"\[/?(?:bold|italic|dim)\]", "", text)


def cell(text: str) -> str:
    return " ".join(plain(text).split()).replace("|", "\\|").replace("<", "&lt;")


def commands_page(_: Any) -> str:
    return "\n".join(commands(typer.main.get_command(app))).rstrip()


def keys_page(_: Any) -> str:
    return str(METHODS["key_table"](own_keys()["run"]))


def rendered() -> dict[Path, str]:
    filled, sections = METHODS["SECTIONS"]["filled"], {"commands": commands_page, "keys": keys_page}
    return {path: filled(path.read_text(), {}, sections) for path in (DOCS / "commands.md", DOCS / "keys.md")}


if __name__ == "__main__":
    for path, text in rendered().items():
        path.write_text(text)
