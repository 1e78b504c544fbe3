"""TCP ports for servers whose address is written down before they start."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST = 20_000
"""Below the range that Linux hands to outgoing connections (32768 and up), so that no client of a test that
runs meanwhile takes a port between its choice and its use.
"""
_PER_WORKER = 1_000
"""Every worker of a run has ports of its own; a worker that needs more starts over with its first."""

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_offsets = itertools.count(os.getpid())


def free_port() -> int:
    """Return a port of the loopback on which nobody listens."""
    for offset in itertools.islice(_offsets, _PER_WORKER):
        port = _FIRST + _worker * _PER_WORKER + offset % _PER_WORKER
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError(f"all {_PER_WORKER} ports from {_FIRST + _worker * _PER_WORKER} are in use")
