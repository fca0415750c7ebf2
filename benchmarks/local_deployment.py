"""A real Flower deployment on this machine, for tests and measurements: SuperLink, SuperNodes and `flwr run` as
separate processes, with their own Flower home, keys and ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from subbit.config.resolve import resolve
from subbit.core.errors import SubbitError
from subbit.flower.certs import create_certificates
from subbit.flower.lines import (
    connection_table,
    register_line,
    superlink_line,
    supernode_line,
    write_app,
)

PATIENCE = 600.0  # The machine may be busy; no test asserts speed.
SCRIPTS = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LocalDeployment:
    """Context manager. On exit it ends everything it started, by process group."""

    def __init__(self, folder: Path, job: dict[str, Any], *, secure: bool) -> None:
        self.folder, self.port = folder, free_port()
        self.results = folder / "runs" / "job"
        self.settings = resolve({**job, "name": "job", "folder": str(folder / "runs")})
        self.nodes = self.settings.run.clients
        self.certificates = folder / "keys" if secure else None
        self.app = folder / "app"
        write_app(self.app, self.settings)
        home = folder / "home"
        home.mkdir()
        if self.certificates is not None:
            create_certificates(self.certificates, [], self.nodes + 1)  # One more key than is registered.
        (home / "config.toml").write_text(connection_table("there", self.address, self.certificates))
        self.environment = {
            **os.environ,
            "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> LocalDeployment:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            self.kill(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGKILL to the process and its children: each was started in its own group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start(self, line: str, log: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.log").open("ab") as output:
            process = subprocess.Popen(
                shlex.split(line),
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def _logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def superlink(self) -> subprocess.Popen[bytes]:
        process = self.start(superlink_line("127.0.0.1", self.port, self.certificates), "superlink")
        self.until(lambda: _listens(self.port), "the SuperLink listens")
        return process

    def supernode(
        self,
        node: int,
        *,
        key: int | None = None,
        address: str | None = None,
        partitions: int | None = None,
        config: str | None = None,
    ) -> subprocess.Popen[bytes]:
        """A node of the job; `partitions` overrides the number of partitions that it claims, `config` all of its
        `--node-config`."""
        partitions = partitions or self.nodes
        line = supernode_line(node, partitions, address or self.address, self.certificates, free_port())
        if config is not None:
            line = line.replace(shlex.quote(f"partition-id={node} num-partitions={partitions}"), shlex.quote(config))
        if key is not None:
            line = line.replace(f"nodes/node-{node}", f"nodes/node-{key}")
        return self.start(line, f"node-{node}")

    def register(self) -> None:
        if self.certificates is not None:
            for node in range(self.nodes):
                self.command(register_line(node, self.certificates, "there"))

    def command(self, line: str) -> str:
        """Run a command to completion and return its output."""
        done = subprocess.run(
            shlex.split(line), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE
        )
        if done.returncode:
            raise SubbitError(f"{line} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def submit(self, app: Path | None = None) -> None:
        """Start the run. The output of the ServerApp, with any error, is in the log "run"."""
        self.run = self.start(f"flwr run {shlex.quote(str(app or self.app))} there --stream", "run")

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = (f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self._logs())
                raise SubbitError("\n".join([f"waited {seconds:g} s in vain until {what}", *logs]))
            time.sleep(0.25)

    def finish(self) -> dict[str, Any]:
        path = self.results / "summary.json"
        self.until(lambda: path.exists() or self.run.poll() is not None, "the run is finished")
        if not path.exists():
            raise SubbitError(f"the run failed:\n{self.log('run')}")
        return dict(json.loads(path.read_text()))

    def memories(self) -> list[Path]:
        """Files that the nodes on this machine keep for their clients."""
        return sorted((self.folder / "home").rglob("subbit-memory/*/*/*.safetensors"))

    def rounds(self) -> list[dict[str, Any]]:
        path = self.results / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == "round"]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
