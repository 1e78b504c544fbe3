"""The HTTP server, which runs in one thread of `farm serve`."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from orchestrator.config.address import Address
from orchestrator.errors import FarmError

START_LIMIT_S: Final = 30.0
"""Seconds that the server has to start. Chosen: it takes well under one; a thread that hangs must not hang
the farm.
"""

END_LIMIT_S: Final = 5
"""Whole seconds (uvicorn's unit) that requests under way have when the farm stops; uploads resume
afterwards.
"""

MOST_CONNECTIONS: Final = 256
"""Connections and tasks at a time; further requests are answered 503. Chosen: above the agents of a
large lab that transfer at once, and few enough for the memory of a small server.
"""

log = logging.getLogger(__name__)


class EndpointServer:
    """A context manager that serves HTTP within its block."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        """Listen. Raises `FarmError` where the address or the certificate cannot be used."""
        self._address = address
        self._socket = _listen(address)
        config = uvicorn.Config(
            app,
            # uvicorn would replace the farm's log handlers, and log an access line per request.
            log_config=None,
            access_log=False,
            interface="asgi3",
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=END_LIMIT_S,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        try:
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

    def __enter__(self) -> EndpointServer:
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
        self._thread.join(2 * END_LIMIT_S)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:
            log.exception("the endpoint ended")


def _listen(address: Address) -> socket.socket:
    try:
        family, _, _, _, name = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.create_server(name[:2], family=family, backlog=128)
    except OSError as error:
        raise FarmError(
            f"the endpoint cannot listen on {address.host}:{address.port}: {error.strerror}; "
            "another program may have that port: set FARM_LISTEN"
        ) from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted connections inherit it
    return made
