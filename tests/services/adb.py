"""A server that speaks adb's protocol to the real `adb`, with devices that are this machine.

It follows adb's documents (`SERVICES.TXT`, `shell_protocol.h`): a service is named behind four hex digits of
its length and answered by OKAY or FAIL; a shell's bytes come in packets of a kind, a length and data.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import socketserver
import struct
import subprocess
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from tests.services.ports import free_port

_HEAD: Final = struct.Struct("<BI")
_STDIN, _STDOUT, _EXIT, _CLOSE_STDIN = 0, 1, 3, 4


class AdbServer(socketserver.ThreadingTCPServer):
    """Devices by serial numbers, one of which a test may `unplug`. `environment`: what their shells inherit.

    `version`: what the client has, as it replaces a server of another one.
    """

    daemon_threads = True

    def __init__(self, serials: Collection[str], version: int, environment: dict[str, str]) -> None:
        self.port = free_port()
        super().__init__(("127.0.0.1", self.port), _Connection)
        self.serials, self.version, self.environment = set(serials), version, environment
        self.shells: set[socket.socket] = set()

    def unplug(self, serial: str) -> None:
        """Let a device go: its connections end at once, and its programs are not told."""
        self.serials.discard(serial)
        for connection in [*self.shells]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Connection(socketserver.StreamRequestHandler):
    server: AdbServer

    def handle(self) -> None:
        """Answer services until one of them takes the connection."""
        while length := self.rfile.read(4):
            service = self.rfile.read(int(length, 16)).decode()
            serial = re.sub(r"^host(-serial|:transport|:tport:serial):|:features$", "", service)
            if service == "host:version":
                self._told(f"{self.server.version:04x}")
                return
            if service.startswith("shell,"):
                self._shell(service.split(":", 1)[1])
                return
            if serial not in self.server.serials:
                text = f"device '{serial}' not found".encode()
                self.wfile.write(b"FAIL%04x%s" % (len(text), text))
                return
            if service.endswith(":features"):
                self._told("shell_v2,cmd,stat_v2")
                return
            # The newer way to choose a device tells the number of the connection, too.
            self.wfile.write(b"OKAY" + (struct.pack("<Q", 1) if ":tport:" in service else b""))

    def _told(self, text: str) -> None:
        self.wfile.write(b"OKAY%04x%s" % (len(text), text.encode()))

    def _shell(self, command: str) -> None:
        self.wfile.write(b"OKAY")
        self.server.shells.add(self.connection)
        with subprocess.Popen(
            ["sh", "-c", command],
            env=self.server.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as shell:
            threading.Thread(target=self._feed, args=(shell,), daemon=True).start()
            assert shell.stdout is not None
            with contextlib.suppress(OSError):
                while read := os.read(shell.stdout.fileno(), 1 << 16):
                    self.wfile.write(_HEAD.pack(_STDOUT, len(read)) + read)
            with contextlib.suppress(OSError):
                self.wfile.write(_HEAD.pack(_EXIT, 1) + bytes([shell.wait() & 0xFF]))
                # As a device does: the client waits for it, and then ends, and with it what feeds the shell.
                self.connection.shutdown(socket.SHUT_WR)
        self.server.shells.discard(self.connection)

    def _feed(self, shell: subprocess.Popen[bytes]) -> None:
        """Give the shell its input, which ends with the connection."""
        assert shell.stdin is not None
        with contextlib.suppress(OSError, ValueError), shell.stdin:
            while head := self.rfile.read(_HEAD.size):
                kind, length = _HEAD.unpack(head)
                data = self.rfile.read(length)
                if kind == _STDIN:
                    shell.stdin.write(data)
                    shell.stdin.flush()
                elif kind == _CLOSE_STDIN:
                    break


@contextlib.contextmanager
def adb_server(adb: Path, serials: Collection[str], environment: dict[str, str]) -> Iterator[AdbServer]:
    """Start a server for this `adb`, and end it."""
    said = subprocess.run([str(adb), "version"], check=True, capture_output=True, text=True).stdout
    version = int(re.findall(r"version 1\.0\.(\d+)", said)[0])
    with AdbServer(serials, version, environment) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
