"""`subbit init`: four questions, a look at the data, and a first configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from subbit.cli.consoles import note, say
from subbit.core.errors import ConfigError, RunFolderError

if TYPE_CHECKING:
    from subbit.setup.seen_data import Seen

MOST_CLIENTS = 100_000


def init(
    file: Annotated[Path, typer.Argument(help="The TOML file to write")] = Path("job.toml"),
    data: Annotated[
        str | None, typer.Option(help="A folder CLASS/*.png, a table (.csv, .jsonl, ...), or a named set: digits")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Of a table: the column of labels")] = None,
    model: Annotated[
        str | None, typer.Option(help="bundled, a hub name, a folder, or my_package.my_module:build")
    ] = None,
    clients: Annotated[int | None, typer.Option(min=1, max=MOST_CLIENTS, help="How many clients, or nodes")] = None,
    split: Annotated[str | None, typer.Option(help="even, skewed, or natural: one client per owner")] = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="Real nodes with Flower, each with its own data")] = False,
    goal: Annotated[str | None, typer.Option(help="bytes, score or personal")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: take the defaults for what is not given")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over the file if it is there")] = False,
) -> None:
    """Write a first configuration for your data, with comments, and say how to run it.

    [bold]subbit init[/bold]   asks four questions
    [bold]subbit init scans.toml --data scans/ --clients 5 --goal bytes --yes[/bold]
    [bold]subbit init houses.toml --data houses.csv --label price --yes[/bold]
    """
    from subbit.setup.first_job import SPLITS, Wanted, write_job
    from subbit.setup.goals import GOALS
    from subbit.setup.seen_data import look_at

    if os.path.lexists(file) and not force:
        raise RunFolderError(f"{file} is there already: give another name, or --force to write over it")
    if not yes and None in (data, model, clients, goal) and not sys.stdin.isatty():
        raise ConfigError("there is nobody to ask: give --yes, and --data, --model, --clients, --goal as you need them")
    ask = _Asker(yes)
    seen = look_at(ask("Data: a folder of images by class, a table, or a named set", data, "digits"), label)
    note(f"  found: {seen.told}")
    network = ask("Network: bundled, a hub name, a folder, or my_package.my_module:build", model, "bundled")
    nodes = nodes or (
        not yes and clients is None and split is None and ask.whether("Real nodes with Flower, not a simulation")
    )
    usual = "even" if seen.owners == 0 else "natural"
    divided = "even" if nodes else _one_of("split", ask(f"Split: {_listed(SPLITS)}", split, usual), SPLITS)
    count = ask("How many nodes" if nodes else "How many clients", clients, _usual_count(seen, divided))
    wanted_goal = _one_of("goal", ask(f"What matters: {_listed(GOALS)}", goal, "bytes"), GOALS)
    if divided == "natural" and seen.owners == 0:
        raise ConfigError(
            "split=natural: the data have no owners (a column owner, user, device, ...): use even or skewed"
        )
    if wanted_goal == "personal" and divided != "natural" and seen.objective != "classification" and not nodes:
        raise ConfigError(
            "goal personal: without classes, a client's own test examples are those of an owner: add a column owner"
        )
    wanted = Wanted(seen, network, _count(count, seen.examples), divided, nodes, wanted_goal)
    text = write_job(wanted)
    with file.open("w" if force else "x", encoding="utf-8") as stream:
        stream.write(text)
    say(f"{file} is written")
    if nodes:
        say(f"next: subbit flower app {quote(file.stem)}-app {quote(str(file))}")
        say("      subbit flower certs keys --nodes " + str(wanted.clients) + "   and the commands that it prints")
    else:
        say(f"next: subbit run {quote(str(file))}")


class _Asker:
    def __init__(self, yes: bool) -> None:
        self.yes = yes

    def __call__(self, question: str, given: object, default: str) -> str:
        """What was given on the command line, else the answer, else the default."""
        if given is not None:
            return str(given)
        return default if self.yes else str(typer.prompt(question, default=default, err=True)).strip()

    def whether(self, question: str) -> bool:
        return bool(typer.confirm(question, default=False, err=True))


def _one_of(key: str, word: str, known: dict[str, str]) -> str:
    from subbit.core.registry import nearest

    if word not in known:
        raise ConfigError(f"{key} {word!r}: {nearest(word, [*known])}")
    return word


def _listed(known: dict[str, str]) -> str:
    return ", ".join(f"{word} ({meaning})" for word, meaning in known.items())


def _usual_count(seen: Seen, split: str) -> str:
    most = seen.owners if split == "natural" and seen.owners else max(2, (seen.examples or 1000) // 20)
    return str(min(10, most))


def _count(text: str, examples: int | None) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_CLIENTS):
        raise ConfigError(f"clients {text!r}: needs a whole number from 1 to {MOST_CLIENTS:,}")
    if examples is not None and int(text) > examples // 2:
        raise ConfigError(f"clients {text}: the data have {examples} examples; give at most {max(1, examples // 2)}")
    return int(text)
