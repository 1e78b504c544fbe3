"""The end of systemd's socket for what services say: a datagram socket of the abstract namespace."""

from __future__ import annotations

import socket
import uuid


class Notified:
    """The messages of a service. `environment` is the one in which systemd would start it."""

    def __init__(self, watchdog_s: float) -> None:
        name = f"farm-test-{uuid.uuid4().hex}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{name}")
        self._said: list[str] = []
        self.environment = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}

    def said(self) -> list[str]:
        """Every line so far, in order."""
        while True:
            try:
                self._said += self._socket.recv(4096, socket.MSG_DONTWAIT).decode().splitlines()
            except BlockingIOError:
                return list(self._said)

    def close(self) -> None:
        self._socket.close()
