"""Run a Flower app without and with compression, and print the bytes both ways and the accuracy of both.

    python examples/flower_compressed.py

Writes the app of `subbit flower new --plain` into a temporary folder, starts its own SuperLink in simulation mode (Ray,
ten clients on this machine), runs the app with `compress=false` and `compress=true`, and stops what it started.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from subbit.flower.new import write_new_app

CLIENTS = 10
ROUNDS = 20
PATIENCE = 300.0
SCRIPTS = Path(sys.executable).parent
RESULT = re.compile(r"uplink (\d+) bytes in (\d+) replies, downlink (\d+) bytes\s+accuracy ([0-9.]+)")


@dataclass(frozen=True)
class Outcome:
    uplink_bytes: int
    replies: int
    downlink_bytes: int
    accuracy: float

    @property
    def both_ways(self) -> int:
        return self.uplink_bytes + self.downlink_bytes


def compare(folder: Path) -> tuple[Outcome, Outcome]:
    """Run the app without and with compression."""
    write_new_app(folder / "app", "digits_app", "template")
    with superlink(folder) as environment:
        return run_app(folder, environment, False), run_app(folder, environment, True)


@contextmanager
def superlink(folder: Path) -> Iterator[dict[str, str]]:
    """A SuperLink in simulation mode, which `flwr run` finds as `here` in this environment."""
    port, home = free_port(), folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    environment = {
        **os.environ,
        "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # All is installed, and PyPI may be unreachable.
        "OMP_NUM_THREADS": "1",
        "RAY_raylet_start_wait_time_s": "180",  # Half a minute is short on a busy machine.
    }
    process = subprocess.Popen(
        ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)],
        env=environment,
        cwd=folder,
        stdout=(folder / "superlink.log").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,  # So that it can be ended together with its children.
    )
    try:
        wait_for(port)
        yield environment
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def run_app(folder: Path, environment: dict[str, str], compressed: bool) -> Outcome:
    keys = f"compress={str(compressed).lower()} num-server-rounds={ROUNDS}"
    found = flwr_run(folder, environment, keys, CLIENTS, RESULT)
    return Outcome(int(found[1]), int(found[2]), int(found[3]), float(found[4]))


def flwr_run(
    folder: Path, environment: dict[str, str], keys: str, clients: int, result: re.Pattern[str]
) -> re.Match[str]:
    """Run the app in `folder`/app, and find the result in what it prints."""
    command = ["flwr", "run", "app", "here", "--stream", "--run-config", keys]
    command += ["--federation-config", f"num-supernodes={clients} client-resources-num-cpus=1"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    found = result.search(done.stdout + done.stderr)
    if found is None:
        raise RuntimeError(f"the run did not finish:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError(f"nothing listens on port {port}: see superlink.log")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, compressed = compare(Path(folder))
    for name, outcome in (("plain", plain), ("eden, 1 bit", compressed)):
        print(
            f"{name:12} {outcome.uplink_bytes:>12,} bytes up, {outcome.downlink_bytes:>12,} down in {ROUNDS} rounds of "
            f"{CLIENTS} clients, accuracy {outcome.accuracy:.4f}"
        )
    up, down = plain.uplink_bytes / compressed.uplink_bytes, plain.downlink_bytes / compressed.downlink_bytes
    both = plain.both_ways / compressed.both_ways
    print(f"{up:.1f} times fewer bytes up, {down:.1f} down (the first time 8 bits a weight), {both:.1f} both ways")


if __name__ == "__main__":
    main()
