"""Notifies systemd of a service's state: ready, alive, stopping. Without systemd it does nothing.

The protocol is that of sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names. `WATCHDOG_USEC`
holds the microseconds of silence after which systemd ends the service and starts it again.
"""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

_SHARE_OF_WATCHDOG = 4
"""Messages for each span of the watchdog: most of them may be late. sd_watchdog_enabled(3) advises two."""


@dataclass(slots=True)
class ServiceManager:
    """Systemd, as far as it listens. `interval_s`: between two signs of life; None: none is wanted."""

    address: str | None = None
    interval_s: float | None = None
    _due_s: float = 0.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "ServiceManager":
        """Return the manager that started this process; without one, an object that sends nothing."""
        address = environment.get("NOTIFY_SOCKET") or None
        wanted = environment.get("WATCHDOG_USEC", "")
        # Children inherit the variables; systemd waits for the one that `WATCHDOG_PID` names.
        own = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if address is None or not own or not wanted.isdecimal() or int(wanted) == 0:
            return cls(address)
        return cls(address, int(wanted) / 1e6 / _SHARE_OF_WATCHDOG)

    def ready(self, status: str) -> None:
        """Report that the service has started; units that need it may start."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        """Set the text that `systemctl status` shows."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Send a sign of life if one is due; to be called in every turn of the service's loop."""
        now_s = time.monotonic()
        if self.interval_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self.interval_s
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the service ends itself."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if self.address is None:
            return
        # Names of the abstract namespace are written with an @ in the environment.
        target = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                # A manager that does not read must not stop the service once its queue is full.
                sending.setblocking(False)
                sending.sendto(text.encode(), target)
        except OSError:
            return  # a manager that is gone, restarts or is behind: the service goes on
