"""Run a Flower app without and with compressed replies, and print the uploaded bytes and the accuracy of both.

    python examples/flower_compressed.py

Writes the app of `subbit flower new` into a temporary folder, starts its own SuperLink in simulation mode (Ray, ten
clients on this machine), runs the app with `compress=false` and `compress=true`, and stops what it started.
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
from dataclasses import dataclass
from pathlib import Path

from subbit.flower.new import write_new_app

CLIENTS = 10
PATIENCE = 300.0
SCRIPTS = Path(sys.executable).parent
RESULT = re.compile(r"uplink (\d+) bytes in (\d+) replies, accuracy ([0-9.]+)")


@dataclass(frozen=True)
class Outcome:
    uplink_bytes: int
    replies: int
    accuracy: float


def compare(folder: Path) -> tuple[Outcome, Outcome]:
    """Run the app without and with compression."""
    write_new_app(folder / "app", "digits_app")
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
    superlink = subprocess.Popen(
        ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)],
        env=environment,
        cwd=folder,
        stdout=(folder / "superlink.log").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,  # So that it can be ended together with its children.
    )
    try:
        wait_for(port)
        return run_app(folder, environment, False), run_app(folder, environment, True)
    finally:
        os.killpg(superlink.pid, signal.SIGTERM)
        superlink.wait(30)


def run_app(folder: Path, environment: dict[str, str], compressed: bool) -> Outcome:
    command = ["flwr", "run", "app", "here", "--stream", "--run-config", f"compress={str(compressed).lower()}"]
    command += ["--federation-config", f"num-supernodes={CLIENTS} client-resources-num-cpus=1"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    found = RESULT.search(done.stdout + done.stderr)
    if found is None:
        raise RuntimeError(f"the run did not finish:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return Outcome(int(found[1]), int(found[2]), float(found[3]))


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
        per_reply = outcome.uplink_bytes // outcome.replies
        print(
            f"{name:12} {outcome.uplink_bytes:>12,} bytes up ({per_reply:,} a reply), accuracy {outcome.accuracy:.4f}"
        )
    print(f"{plain.uplink_bytes / compressed.uplink_bytes:.1f} times fewer bytes")


if __name__ == "__main__":
    main()
