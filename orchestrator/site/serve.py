"""Serves a site on this machine, and builds it again as results arrive."""

import time
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from orchestrator.errors import UsageError

_ADDRESS: Final = "127.0.0.1"
"""Where it listens: a site has names of users and hosts, so others get it from a web server that chooses."""

LOOK_S: Final = 2.0
"""Seconds between two looks for news. Chosen: a page that is loaded again is at most so old, and a look is
one query of each campaign's counts."""


class _Handler(SimpleHTTPRequestHandler):
    """Sends files; a browser asks again for each, as it may have changed."""

    def end_headers(self) -> None:
        """Add the header that says so."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
        """Say nothing of each request."""


def serve_site(
    build: Callable[[], Path],
    newest: Callable[[], object],
    port: int,
    say: Callable[[str], None],
    look_s: float = LOOK_S,
) -> None:
    """Build and serve until it is interrupted; build again whenever `newest` returns something else.

    `build` returns the site's `index.html`; port 0 takes any that is free. `say` gets a line for each build.
    Raises `UsageError` where the port is taken.
    """
    # Before the build: what arrives while it runs is news afterwards.
    seen = newest()
    folder = build().parent
    try:
        # By its path: a build puts another folder there.
        server = ThreadingHTTPServer((_ADDRESS, port), partial(_Handler, directory=str(folder)))
    except OSError as error:
        raise UsageError(f"port {port}: {error.strerror}; choose another one: --port") from error
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        say(f"site: http://{_ADDRESS}:{server.server_port}/ (Ctrl-C ends)")
        try:
            while True:
                time.sleep(look_s)
                if (now := newest()) != seen:
                    seen = now
                    build()
                    say("built again: new results")
        finally:
            server.shutdown()
