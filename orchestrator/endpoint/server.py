"""The HTTP server, which runs in one thread of `farm lab serve`."""

import logging
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from orchestrator.config.address import Address
from orchestrator.endpoint.access import AgentRegistry
from orchestrator.endpoint.app import application
from orchestrator.endpoint.connections import MOST_CONNECTIONS, Connections
from orchestrator.endpoint.listener import Listener
from orchestrator.endpoint.protocol import HEAD_LIMIT_BYTES, KEEP_ALIVE_S, Protocol
from orchestrator.endpoint.user_calls import Face
from orchestrator.errors import FarmError
from orchestrator.monitoring.metrics_page import MetricsPage
from orchestrator.sources.store import Store
from orchestrator.trust.credentials_service import CredentialsService

START_LIMIT_S: Final = 30.0
"""Seconds that the server has to start. Chosen: it takes well under one; a thread that hangs must not hang
the farm.
"""

END_LIMIT_S: Final = 5
"""Whole seconds (uvicorn's unit) that requests under way have when the farm stops; uploads resume
afterwards.
"""

_OTHER_DESCRIPTORS: Final = 512
"""Descriptors that are left for the rest of the farm: database, broker, log, store. It uses some 50."""

_FEWEST_CONNECTIONS: Final = 32
"""Connections below which the endpoint does not start: it would close those of ordinary agents."""

_WAITING_CONNECTIONS: Final = 1024
"""Connections that the kernel keeps until they are accepted. Chosen: it holds what arrives while a turn of
the loop takes some tenths of a second; larger only lets a flood wait longer.
"""

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

log = logging.getLogger(__name__)


class EndpointServer:
    """A context manager that serves HTTP within its block."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        """Listen. Raises `FarmError` where the address or the certificate cannot be used."""
        self._address = address
        self._socket = Listener(_listen(address), Connections(_affordable()))
        config = uvicorn.Config(
            app,
            # uvloop, where it is installed, would accept connections by itself, past the listener.
            loop="asyncio",
            http=partial(Protocol, self._socket),  # type: ignore[arg-type]  # only ever called
            # uvicorn would replace the farm's log handlers, and log an access line per request.
            log_config=None,
            access_log=False,
            # A request that is no HTTP is answered 400; a line of the log for each would let anyone fill it.
            log_level="error",
            interface="asgi3",
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            backlog=_WAITING_CONNECTIONS,
            h11_max_incomplete_event_size=HEAD_LIMIT_BYTES,
            timeout_graceful_shutdown=END_LIMIT_S,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        try:
            # Here, and not in the thread, so that a bad certificate is an error of the start.
            config.load()
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise FarmError(
                f"FARM_TLS_CERT, FARM_TLS_KEY: {address.certificate}, {address.key} cannot be used: {error}"
            ) from error
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)

    @property
    def port(self) -> int:
        """The port on which the server listens, also where port 0 was configured."""
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> "EndpointServer":
        self._thread.start()
        until = time.monotonic() + START_LIMIT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise FarmError(f"the endpoint {self._address.url} did not start; see the log")
            time.sleep(0.01)
        log.info("answering on %s:%d as %s", self._address.host, self.port, self._address.url)
        if self._address.is_open:
            log.warning(
                "TOKENS CROSS THE NETWORK IN THE CLEAR: %s has no TLS; set FARM_TLS_CERT and FARM_TLS_KEY",
                self._address.url,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        # uvicorn ends what is under way after `END_LIMIT_S`; a thread that hangs still ends with the process.
        self._thread.join(2 * END_LIMIT_S)
        self._socket.close()

    def _run(self) -> None:
        # The kernel gives a signal to any thread that does not block it, and Python then handles it in the
        # main thread at once, also in a transaction that has blocked it there. Threads started from here
        # inherit this.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            log.exception("the endpoint ended")


def _listen(address: Address) -> socket.socket:
    try:
        family, _, _, _, name = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.create_server(name[:2], family=family, backlog=_WAITING_CONNECTIONS)
    except OSError as error:
        raise FarmError(
            f"the endpoint cannot listen on {address.host}:{address.port}: {error.strerror}; "
            "another program may have that port: set FARM_LISTEN"
        ) from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
    return made


def _affordable() -> int:
    """Return the number of connections that the limit of open files allows, after raising it as far as
    possible.

    Raises `FarmError` where that is too few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A connection needs two where it transfers a file.
    wanted = 2 * MOST_CONNECTIONS + _OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # No privilege is needed up to the hard limit.
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = (
        MOST_CONNECTIONS
        if soft == resource.RLIM_INFINITY
        else min(MOST_CONNECTIONS, (soft - _OTHER_DESCRIPTORS) // 2)
    )
    if most < _FEWEST_CONNECTIONS:
        raise FarmError(
            f"the endpoint cannot serve with {soft} open files; allow {wanted}: "
            "`ulimit -n`, or LimitNOFILE= of its unit"
        )
    return most


@contextmanager
def answering(
    credentials: CredentialsService, address: Address, face: Face, metrics: MetricsPage | None = None
) -> Iterator[None]:
    """Serve HTTP at this address until the block ends; `face`: what users may call. Raises `FarmError`."""
    address.require_certificate()
    registry = AgentRegistry(credentials.database, address, credentials.key_folder.keys, credentials.admit)
    store, limits = Store(credentials.home.store), credentials.lab.limits
    app = application(credentials.database, store, limits, registry, address, face, metrics)
    with EndpointServer(app, address):
        yield
