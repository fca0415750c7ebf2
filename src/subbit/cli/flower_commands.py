"""`subbit flower ...`: prepares a deployment for `flwr run`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from subbit.cli.consoles import note
from subbit.cli.options import JobWords, PluginFiles
from subbit.cli.running import announce, file_and_words
from subbit.cli.telling import Teller
from subbit.core.busy import busy_with
from subbit.core.errors import SubbitError

flower_app = typer.Typer(help="Run on many machines with Flower.", no_args_is_help=True)

Hosts = Annotated[list[str] | None, typer.Option("--host", help="Name or address under which nodes reach the server")]
Nodes = Annotated[int, typer.Option(min=1, help="How many nodes, one per client")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port of the SuperLink")]


@flower_app.callback()
def check_flower() -> None:
    if find_spec("flwr") is None:
        raise SubbitError("this needs Flower: pip install 'subbit[flower]'")


@flower_app.command()
def certs(
    directory: Annotated[Path, typer.Argument(help="A new folder for the certificates and keys")],
    host: Hosts = None,
    nodes: Nodes = 2,
    port: Port = 8000,
) -> None:
    """Create certificates and node keys, and print all commands of a deployment with TLS.

    [bold]subbit flower certs keys[/bold]   all on this machine
    [bold]subbit flower certs keys --host server.example.org --nodes 10[/bold]
    """
    note(f"making certificates and {nodes} keys in {directory}")
    with Teller():
        busy_with("making keys")
        from subbit.flower.certs import create_certificates
        from subbit.flower.lines import all_lines

        hosts = host or []
        create_certificates(directory, hosts, nodes)
    print(all_lines(hosts[0] if hosts else "127.0.0.1", port, nodes, directory.absolute()))


@flower_app.command()
def lines(
    host: Annotated[str, typer.Option(help="Name or address under which nodes reach the server")] = "127.0.0.1",
    nodes: Nodes = 2,
    port: Port = 8000,
    insecure: Annotated[bool, typer.Option(help="Even where the host is another machine")] = False,
) -> None:
    """Print all commands of a deployment without TLS, for tests on one machine.

    [bold]subbit flower lines --nodes 3[/bold]
    """
    from subbit.flower.lines import all_lines, check_address

    if not insecure:
        check_address(host)
    print(all_lines(host, port, nodes, None))


@flower_app.command(name="app")
def app_(
    directory: Annotated[Path, typer.Argument(help="A new folder for the Flower app")],
    words: JobWords = None,
    plugin: PluginFiles = None,
) -> None:
    """Write a Flower app for a job: the folder for flwr run. Plugins are included.

    [bold]subbit flower app my-app experiments/demo.toml clients=2 rounds=5[/bold]
    """
    from subbit.config.resolve import resolve

    values, given = file_and_words(words)
    announce(values, given)
    with Teller():
        busy_with("loading PyTorch")
        settings = resolve(values, given)
        from subbit.flower.lines import write_app

        write_app(directory, settings)
    print(f"flwr run {directory} subbit --stream")


@flower_app.command()
def new(
    directory: Annotated[Path, typer.Argument(help="A new folder for the Flower app")],
    name: Annotated[str | None, typer.Option(help="Name of the app; the folder's own, if none")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="An app in plain Flower, with two lines for compression")
    ] = False,
) -> None:
    """Write a small, complete Flower app to start from: two functions to fill in, for your module and a node's data.

    [bold]subbit flower new my-app[/bold]
    [bold]subbit flower new my-app --plain[/bold]   FedAvg of Flower's own, compressed by subbit
    """
    from subbit.flower.new import write_new_app

    for path in write_new_app(directory, name, "template" if plain else "own_template"):
        print(path)
