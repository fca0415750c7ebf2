"""A TLS proxy that keeps what passes through it, in the clear: what really leaves a node."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

PROTOCOLS = ["h2", "http/1.1"]


class Listener:
    """Nodes connect to `port` as if it were the SuperLink; it has the SuperLink's own certificate."""

    def __init__(self, certificates: Path, target: int) -> None:
        self.target, self.certificates = target, certificates
        self.up, self.down = bytearray(), bytearray()
        self._here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._here.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        self._here.set_alpn_protocols(PROTOCOLS)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            node = self._here.wrap_socket(connection, server_side=True)
            there = ssl.create_default_context(cafile=str(self.certificates / "ca.crt"))
            spoken = node.selected_alpn_protocol()
            there.set_alpn_protocols([spoken] if spoken else PROTOCOLS)
            raw = socket.create_connection(("127.0.0.1", self.target))
            server = there.wrap_socket(raw, server_hostname="127.0.0.1")
            threading.Thread(target=self._pass, args=(server, node, self.down), daemon=True).start()
            self._pass(node, server, self.up)

    @staticmethod
    def _pass(source: ssl.SSLSocket, target: ssl.SSLSocket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                kept += data
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
