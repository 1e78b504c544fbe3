"""A real redis-server with an append-only file, on a unix socket and, where wanted, on TCP or TLS."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests import needs
from tests.services.processes import Server

PORT = 6379


@dataclass(frozen=True)
class Certificates:
    """Files for TLS: the authority's certificate, the server's certificate and key (PEM)."""

    authority: Path
    certificate: Path
    key: Path


@dataclass
class RedisServer:
    """One server. `enter` wraps its command (a network namespace), `address` is where it listens.

    Without an address it listens on its socket alone. `settings` are further lines of its configuration
    (`maxmemory 3mb`), `acl` the lines of an ACL file, `binary` another server than the machine's.
    """

    folder: Path
    address: str | None = None
    port: int = PORT
    enter: Callable[[Sequence[str]], list[str]] = list
    settings: tuple[str, ...] = ()
    acl: tuple[str, ...] = ()
    tls: Certificates | None = None
    binary: str = field(default_factory=needs.redis_server)
    server: Server | None = field(default=None, init=False)
    disk: Path | None = field(default=None, init=False)

    @property
    def data(self) -> Path:
        """The folder of its append-only file."""
        return self.disk or self.folder / "data"

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def socket_url(self) -> str:
        """The socket's URL as Celery and Kombu write it."""
        return f"redis+socket://{self.socket}"

    @property
    def url(self) -> str:
        assert self.address is not None
        scheme = "redis" if self.tls is None else "rediss"
        return f"{scheme}://{self.address}:{self.port}/0"

    def client(
        self, username: str | None = None, password: str | None = None, timeout_s: float = 10.0
    ) -> redis.Redis:
        """Return a client on the socket, which no fault of the network reaches. It tries everything once."""
        return redis.Redis(
            unix_socket_path=str(self.socket),
            username=username,
            password=password,
            socket_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )

    def start(self) -> RedisServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configure()
        command = self.enter([self.binary, str(self.folder / "redis.conf")])
        self.server = Server(command, self.folder / "redis.log")
        self.server.until(self._answers, "redis-server")
        return self

    def kill(self) -> None:
        """Kill the server as a crash does: nothing is flushed, only the append-only file is left."""
        if self.server is not None:
            self.server.kill()

    def restart(self, pause_s: float = 0.0) -> None:
        """Crash, and come back with the data of the append-only file."""
        self.kill()
        time.sleep(pause_s)
        self.start()

    def move_to(self, disk: Path) -> None:
        """Start anew with the data in another folder."""
        self.kill()
        self.disk = disk
        self.start()

    def lose_everything(self) -> None:
        """Crash, and come back empty."""
        self.kill()
        for path in sorted(self.data.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.start()

    def pause(self) -> None:
        assert self.server is not None
        self.server.pause()

    def resume(self) -> None:
        assert self.server is not None
        self.server.resume()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop(signal.SIGTERM, limit_s=5.0)

    def _configure(self) -> None:
        self.data.mkdir(exist_ok=True)
        lines = [f"dir {self.data}", f"unixsocket {self.socket}", "unixsocketperm 700", "appendonly yes"]
        lines += ["appendfsync everysec", 'save ""', "maxmemory-policy noeviction", "daemonize no"]
        lines += self._listening()
        if self.acl:
            (self.folder / "users.acl").write_text("".join(f"{line}\n" for line in self.acl))
            lines.append(f"aclfile {self.folder / 'users.acl'}")
        (self.folder / "redis.conf").write_text("".join(f"{line}\n" for line in [*lines, *self.settings]))

    def _listening(self) -> list[str]:
        if self.address is None:
            return ["port 0"]
        lines = [f"bind {self.address}", "protected-mode no"]
        if self.tls is None:
            return [*lines, f"port {self.port}"]
        return [
            *lines,
            "port 0",
            f"tls-port {self.port}",
            f"tls-ca-cert-file {self.tls.authority}",
            f"tls-cert-file {self.tls.certificate}",
            f"tls-key-file {self.tls.key}",
            "tls-auth-clients no",
        ]

    def _answers(self) -> bool:
        """Ready once it has loaded its data; an ACL that refuses us is an answer too."""
        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return True
        except redis.RedisError:
            return False
