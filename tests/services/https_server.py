"""A small HTTPS server on the loopback whose answers a test writes down, path by path."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.services.certificates import Pair


@dataclass
class Answer:
    """`length`: what the server claims; None: the truth, -1: nothing."""

    content: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None


class HttpsServer:
    """`pages`: an answer, or what makes one, by path. `asked`: every path that was asked for. `posted`: the
    headers and the body of every message.
    """

    def __init__(self, pair: Pair) -> None:
        self.pages: dict[str, Answer | Callable[[], Answer]] = {}
        self.asked: list[str] = []
        self.posted: list[tuple[Mapping[str, str], bytes]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client may hang up
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"https://localhost:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                page = outer.pages.get(self.path, Answer(status=404))
                answer = page() if callable(page) else page
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.length != -1:
                    size = len(answer.content) if answer.length is None else answer.length
                    self.send_header("content-length", str(size))
                self.end_headers()
                self.wfile.write(answer.content)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.posted.append((dict(self.headers), body))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                return

        return Handler
