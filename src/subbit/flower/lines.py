"""The commands that start a deployment, and the Flower app folder for `flwr run`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from shlex import quote
from typing import Any

import tomli_w

from subbit.config.resolve import Settings
from subbit.core.errors import ConfigError, RunFolderError
from subbit.core.files import replace_file
from subbit.core.pieces import as_words
from subbit.core.plugins import recorded_files
from subbit.flower.certs import is_loopback

FIRST_NODE_PORT = 9094
WITH_PLUGINS = "with_plugins"
LOADER = '''"""The app of subbit, with the plugins that are beside it."""

from pathlib import Path

from subbit import flower
from subbit.core.plugins import offer_folder

offer_folder(Path(__file__).with_name("plugins"))
# Flower reads this file without running it and wants to see the two names assigned.
client_app = flower.client_app
server_app = flower.server_app
'''
FLOWER_CONFIG = "~/.flwr/config.toml"


def check_address(host: str) -> None:
    """Reject addresses other than loopback, for use without TLS."""
    if not is_loopback(host):
        raise ConfigError(
            f"{host} is not this machine: without TLS anyone on the way reads and changes what is sent. Make "
            "certificates (subbit flower certs DIR --host NAME), or say --insecure if the network is trusted"
        )


def superlink_line(host: str, port: int, folder: Path | None) -> str:
    """`folder` contains the certificates; none: no TLS and no node keys."""
    words = ["flower-superlink", "--host", host, "--port", str(port), "--database", "superlink.db"]
    words.append("--disable-runtime-dependency-installation")
    if folder is None:
        words.append("--insecure")
    else:
        words += ["--ssl-ca-certfile", str(folder / "ca.crt"), "--ssl-certfile", str(folder / "server.pem")]
        words += ["--ssl-keyfile", str(folder / "server.key"), "--enable-supernode-auth"]
    return " ".join(map(quote, words))


def register_line(node: int, folder: Path, connection: str) -> str:
    return " ".join(
        map(quote, ["flwr", "supernode", "register", str(folder / "nodes" / f"node-{node}.pub"), connection])
    )


def supernode_line(node: int, nodes: int, address: str, folder: Path | None, port: int) -> str:
    """`port` is that of the node's own runtime on loopback; nodes on one machine need different ones."""
    words = ["flower-supernode", "--superlink", address, "--port", str(port)]
    words += ["--node-config", f"partition-id={node} num-partitions={nodes}"]
    if folder is None:
        words.append("--insecure")
    else:
        words += ["--root-certificates", str(folder / "ca.crt")]
        words += ["--auth-supernode-private-key", str(folder / "nodes" / f"node-{node}")]
    return " ".join(map(quote, words))


def connection_table(name: str, address: str, folder: Path | None) -> str:
    """The entry in `$FLWR_HOME/config.toml` with which `flwr run APP NAME` finds the SuperLink."""
    connection: dict[str, Any] = {"address": address}
    if folder is None:
        connection["insecure"] = True
    else:
        connection["root-certificates"] = str((folder / "ca.crt").absolute())
    return tomli_w.dumps({"superlink": {name: connection}})


def all_lines(host: str, port: int, nodes: int, folder: Path | None, connection: str = "subbit") -> str:
    """All commands in order, and where to run them, for a deployment whose nodes reach the SuperLink at `host`."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    bind = host if is_loopback(host) else "0.0.0.0"
    steps = ["# 1. the server, first terminal", superlink_line(bind, port, folder), ""]
    steps += [f"# 2. the server, second terminal: put this into {FLOWER_CONFIG}"]
    steps += [connection_table(connection, address, folder)]
    if folder is not None:
        steps += [register_line(node, folder, connection) for node in range(nodes)]
        steps += ["", f"# 3. each node, with {folder / 'ca.crt'} and its own key copied to the same place"]
    else:
        steps += ["# 3. each node"]
    for node in range(nodes):
        own_port = FIRST_NODE_PORT + (node if is_loopback(host) else 0)
        steps.append(supernode_line(node, nodes, address, folder, own_port))
    steps += ["", "# 4. the server, second terminal; the same line goes on with a run that was interrupted"]
    steps += [f"subbit flower app my-app clients={nodes}", f"flwr run my-app {connection} --stream"]
    return "\n".join(steps)


def write_app(path: Path, settings: Settings) -> None:
    """Write a single-file Flower app, including the job's plugins in its code.

    It contains every key, because `flwr run --run-config` can only override existing keys.
    """
    if path.exists() and any(path.iterdir()):
        raise RunFolderError(f"{path} is not empty: give a new folder")
    plugins = recorded_files(settings.run.plugins)
    for name in plugins:
        if re.fullmatch(r"test_.*|.*_test", Path(name).stem):
            raise ConfigError(
                f"{Path(name).name}: Flower leaves files with such names out of an app; rename the plugin"
            )
    home = WITH_PLUGINS if plugins else "subbit.flower"
    run = {key: value for key, value in dataclasses.asdict(settings.run).items() if key != "engine"}
    values = {**run, **as_words(settings.parameters)}
    document = {
        "project": {
            "name": "subbit-app",
            "version": "1.0.0",
            "description": f"{settings.run.method} with subbit",
            "license": "Apache-2.0",
            "dependencies": ["subbit[flower]"],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "subbit",
                    "components": {
                        "serverapp": f"{home}:server_app",
                        "clientapp": f"{home}:client_app",
                    },
                    "config": {key: "none" if value is None else value for key, value in values.items()},
                }
            }
        },
    }
    path.mkdir(parents=True, exist_ok=True)
    for name, source in plugins.items():
        (path / name).parent.mkdir(exist_ok=True)
        replace_file(path / name, source)
    if plugins:
        replace_file(path / f"{WITH_PLUGINS}.py", LOADER.encode())
    replace_file(path / "pyproject.toml", tomli_w.dumps(document).encode())
