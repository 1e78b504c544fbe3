"""The endpoint has descriptors for its connections, or says that it does not."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from pathlib import Path

import pytest
from starlette.applications import Starlette

from orchestrator.config.address import Address
from orchestrator.endpoint.server import EndpointServer
from orchestrator.errors import FarmError
from tests.services.forks import run


def serve() -> None:
    """Serve for a moment within the limits that the arguments say, and write out the one in force."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
    try:
        with EndpointServer(Starlette(), Address("http://127.0.0.1", "127.0.0.1", 0)):
            sys.stdout.write(str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    except FarmError as error:
        sys.stdout.write(str(error))


@pytest.mark.parametrize(
    ("soft", "hard", "said"),
    [
        (1024, 8192, "2048"),
        (1024, 1024, "1024"),
        (4096, 4096, "4096"),
        (256, 256, "cannot serve with 256 open files; allow 2048: `ulimit -n`"),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(
    tmp_path: Path, soft: int, hard: int, said: str
) -> None:
    ran = run(f"{__name__}:serve", str(soft), str(hard), cwd=tmp_path, env=os.environ, timeout=120)
    assert ran.returncode == 0
    assert said in ran.stdout


def test_without_descriptors_it_says_so_in_one_line_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with (
        EndpointServer(Starlette(), Address("http://127.0.0.1", "127.0.0.1", 0)) as server,
        socket.socket() as first,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as second,
    ):
        second.sendall(b"GET / HTTP/1.1\r\nHost: farm\r\n\r\n")
        assert second.recv(12) == b"HTTP/1.1 404"
        first.settimeout(60)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            first.connect(("127.0.0.1", server.port))
            until = time.monotonic() + 60
            while not (said := [r for r in caplog.records if "Too many open files" in r.getMessage()]):
                assert time.monotonic() < until, caplog.text
                time.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert not any(record.exc_info for record in said)
        first.sendall(b"GET / HTTP/1.1\r\nHost: farm\r\n\r\n")
        assert first.recv(12) == b"HTTP/1.1 404"
