"""Bytes at the socket against bytes in the ledger, for a real deployment on this machine.

Nodes connect to the SuperLink through a forwarder that counts all bytes: TLS, HTTP, Flower's records, its object store,
and polling every three seconds while a node waits. The ledger counts frames.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.local_deployment import LocalDeployment
from subbit.wire.ledger import Ledger

JOB = {
    "method": "deltamask",
    "model": "mlp",
    "dataset": "digits",
    "select": "backbone: weights",
    "head": "lda",
    "clients": 2,
    "rounds": 2,
    "limit": 200,
    "test_limit": 100,
    "deadline": 600.0,
}
CHUNK = 1 << 16


class Forwarder:
    """Forwards TCP connections from its own port to a target on loopback and counts the bytes in each direction."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._counted = {"up": 0, "down": 0}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def counted(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counted)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                node, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return  # The connection was closed or the SuperLink has stopped: the measurement is over.
            for source, sink, way in ((node, server, "up"), (server, node, "down")):
                threading.Thread(target=self._forward, args=(source, sink, way), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(CHUNK):
                with self._lock:
                    self._counted[way] += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


def measure_socket_bytes() -> dict[str, Any]:
    """Bytes at the socket during the last round of a small job with TLS and node keys."""
    with TemporaryDirectory() as folder, LocalDeployment(Path(folder), JOB, secure=True) as deployment:
        deployment.superlink()
        deployment.register()
        forwarder = Forwarder(deployment.port)
        try:
            for node in range(deployment.nodes):
                deployment.supernode(node, address=f"127.0.0.1:{forwarder.port}")
            deployment.submit()
            # The head phase and the first round, in which the head is sent, are not measured.
            deployment.until(lambda: len(deployment.rounds()) == 2, "the first round is over")
            before, started = forwarder.counted(), time.monotonic()
            summary = deployment.finish()
            after, seconds = forwarder.counted(), time.monotonic() - started
        finally:
            forwarder.close()
        entries = Ledger.read_csv(deployment.results / "ledger.csv").entries
    last = [entry for entry in entries if entry.phase == "main" and entry.round_number == 1]
    ledger = {way: sum(entry.frame_bytes for entry in last if entry.direction == way) for way in ("up", "down")}
    crossed = {way: after[way] - before[way] for way in ("up", "down")}
    return {
        "parameters": summary["parameters"],
        "clients": deployment.nodes,
        "ledger_bytes": ledger,
        "socket_bytes": crossed,
        "whole_run_ledger_bytes": summary["total_bytes"],
        "whole_run_socket_bytes": sum(after.values()),
        "ledger_over_socket": sum(ledger.values()) / sum(crossed.values()),
        "round_seconds": seconds,
    }
