"""The exact lines that start a deployment, and the folder of the Flower app that `flwr run` takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from shlex import quote
from typing import Any

import tomli_w

from subbit.config.load import Settings
from subbit.errors import ConfigError, RunFolderError
from subbit.files import replace_file
from subbit.flower.certs import is_loopback

FIRST_NODE_PORT = 9094


def check_address(host: str, insecure: bool) -> None:
    if insecure and not is_loopback(host):
        raise ConfigError(
            f"{host} is not this machine: without TLS anyone on the way reads and changes what is sent. Make "
            "certificates (subbit flower certs DIR --host NAME), or say --insecure-anywhere if the network is trusted"
        )


def superlink_line(host: str, port: int, folder: Path | None) -> str:
    """`folder` holds the certificates; none means without TLS and without node keys."""
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
    """`port` is that of the node's own runtime, on its loopback: nodes on one machine need different ones."""
    words = ["flower-supernode", "--superlink", address, "--port", str(port)]
    words += ["--node-config", f"partition-id={node} num-partitions={nodes}"]
    if folder is None:
        words.append("--insecure")
    else:
        words += ["--root-certificates", str(folder / "ca.crt")]
        words += ["--auth-supernode-private-key", str(folder / "nodes" / f"node-{node}")]
    return " ".join(map(quote, words))


def connection_table(name: str, address: str, folder: Path | None) -> str:
    """What `$FLWR_HOME/config.toml` needs, so that `flwr run APP NAME` finds the SuperLink."""
    connection: dict[str, Any] = {"address": address}
    if folder is None:
        connection["insecure"] = True
    else:
        connection["root-certificates"] = str((folder / "ca.crt").absolute())
    return tomli_w.dumps({"superlink": {name: connection}})


def write_app(path: Path, settings: Settings) -> None:
    """A Flower app of one file. It has every key, because `flwr run --run-config` overrides only what is there."""
    if path.exists() and any(path.iterdir()):
        raise RunFolderError(f"{path} is not empty: give a new folder")
    run = {key: value for key, value in dataclasses.asdict(settings.run).items() if key != "engine"}
    values = {**run, **dataclasses.asdict(settings.parameters)}
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
                        "serverapp": "subbit.flower:server_app",
                        "clientapp": "subbit.flower:client_app",
                    },
                    "config": {key: "none" if value is None else value for key, value in values.items()},
                }
            }
        },
    }
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / "pyproject.toml", tomli_w.dumps(document).encode())
