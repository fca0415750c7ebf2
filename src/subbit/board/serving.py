"""Serves the board on this machine alone, until Ctrl-C."""

from __future__ import annotations

import socket
from pathlib import Path

from subbit.core.errors import ConfigError

HOST, PORT = "127.0.0.1", 8642
TRIES = 100


def bound_socket(port: int | None) -> socket.socket:
    """On the port that was asked for; if none was, on the usual one or the next that is free."""
    for each in range(PORT, PORT + TRIES) if port is None else (port,):
        try:
            return socket.create_server((HOST, each))
        except OSError as error:
            reason = error.strerror
    if port is None:
        raise ConfigError(f"no port from {PORT} to {PORT + TRIES - 1} is free ({reason}): give one with --port")
    raise ConfigError(f"--port {port}: {reason}: give another, or leave it out for the next that is free")


def serve_board(folder: Path, bound: socket.socket) -> None:
    import uvicorn

    from subbit.board.web import board_app

    servers: list[uvicorn.Server] = []
    app = board_app(folder, lambda: servers[0].should_exit)
    # Named, so that it is the same whatever else is installed.
    config = uvicorn.Config(app, http="h11", loop="asyncio", ws="none", log_level="warning", access_log=False)
    config.server_header = False
    config.timeout_graceful_shutdown = 3
    servers.append(uvicorn.Server(config))
    servers[0].run(sockets=[bound])
