"""A real PostgreSQL under an unprivileged user: private socket, durable commits, real crashes."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psycopg

from tests.services.processes import Server

PORT = 5432
_OWNER = "nobody"
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_numbers = itertools.count(1)


@dataclass
class PostgresCluster:
    """One cluster. `enter` wraps the server's command (a network namespace); `address`: TCP as well.

    `binaries`: the folder with `initdb` and `postgres`. `settings`: lines of its configuration.
    """

    folder: Path
    binaries: Path
    address: str | None = None
    enter: Callable[[Sequence[str]], list[str]] = list
    settings: tuple[str, ...] = ()
    server: Server | None = field(default=None, init=False)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def user(self) -> str:
        """Database superuser, by the socket's or the lab's trust."""
        return "farm"

    def create(self) -> PostgresCluster:
        """initdb, as a user that is not root."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._give_away()
        options = ["-U", self.user, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            [*_unprivileged(), str(self.binaries / "initdb"), "-D", str(self.data), *options],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        lines = [f"unix_socket_directories = '{self.folder}'", "fsync = on", "max_connections = 60"]
        lines += [f"listen_addresses = '{self.address or ''}'", f"port = {PORT}", "shared_buffers = 32MB"]
        with (self.data / "postgresql.conf").open("a") as out:
            out.writelines(f"{line}\n" for line in [*lines, *self.settings])
        with (self.data / "pg_hba.conf").open("a") as out:
            out.write("host all all 0.0.0.0/0 trust\n")
        return self

    def start(self) -> PostgresCluster:
        command = [*_unprivileged(), str(self.binaries / "postgres"), "-D", str(self.data)]
        self.server = Server(self.enter(command), self.folder / "postgres.log")
        self.server.until(self._answers, "postgres")
        return self

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """`immediate` is a crash: the write-ahead log is replayed at the next start."""
        if self.server is not None and self.server.running:
            self.server.stop(_SIGNALS[mode], limit_s=30.0)

    def restart(self, mode: Literal["fast", "immediate"] = "immediate", pause_s: float = 0.0) -> None:
        self.stop(mode)
        time.sleep(pause_s)
        self.start()

    def new_database(self, template: str = "template1") -> str:
        """Return an empty database, or a copy of one that nobody is connected to; its name."""
        name = f"farm_{next(_numbers)}"
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    def drop_database(self, name: str) -> None:
        with self.connect("postgres") as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def connect(self, database: str) -> psycopg.Connection:
        """Open a connection over the socket; every statement is a transaction."""
        return psycopg.connect(
            host=str(self.folder), port=PORT, user=self.user, dbname=database, autocommit=True
        )

    def socket_url(self, database: str) -> str:
        """Over the private socket."""
        return f"postgresql://{self.user}@/{database}?host={self.folder}&port={PORT}"

    def url(self, database: str) -> str:
        """Over TCP."""
        assert self.address is not None
        return f"postgresql://{self.user}@{self.address}:{PORT}/{database}"

    def _answers(self) -> bool:
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def _give_away(self) -> None:
        """Give the folder, and a way to it, to the server's user."""
        if os.getuid() != 0:
            return
        owner = pwd.getpwnam(_OWNER)
        os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        for parent in self.folder.parents:
            mode = parent.stat().st_mode
            if not mode & 0o001 and parent.stat().st_uid == 0:
                parent.chmod(mode | 0o001)


def _unprivileged() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    owner = pwd.getpwnam(_OWNER)
    words = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups", "--pdeathsig=KILL"]
    return [shutil.which("setpriv") or "setpriv", *words, "--"]
