"""A lab whose agent shares nothing with the farm but Redis and the endpoint."""

from __future__ import annotations

import os
import shlex
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
from sqlmodel import select

from agent.wire.credentials import Applicant
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.trust import enrolment
from orchestrator.trust.farm_key_rotation import farm_key
from tests.services import known
from tests.services.certificates import Authority
from tests.services.forks import Program, run
from tests.services.notified import Notified
from tests.services.ports import free_port
from tests.services.postgres import PostgresCluster
from tests.services.processes import Server
from tests.services.redis import RedisServer

READ_TOKEN = "r" * 40
SUBMIT_TOKEN = "s" * 40
WATCHDOG_S = 4.0
"""Seconds after which systemd would restart a service that is silent; a second passes between two signs."""


@dataclass
class HttpLab:
    """`farm lab serve` behind TLS, and one enrolled agent with a state folder of its own."""

    folder: Path
    redis: RedisServer
    database_url: str
    services: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home, self.state = self.folder / "home", self.folder / "agent"
        self.notified = {name: Notified(WATCHDOG_S) for name in ("serve", "agent")}
        self.authority = Authority(self.folder)
        pair = self.authority.issue()
        self.url = f"https://127.0.0.1:{free_port()}"
        self.environment = os.environ | {
            "FARM_HOME": str(self.home),
            "FARM_BROKER_URL": self.redis.socket_url,
            "FARM_ENDPOINT": self.url,
            "FARM_TLS_CERT": str(pair.certificate),
            "FARM_TLS_KEY": str(pair.key),
            "FARM_TLS_CA": str(self.authority.path),
            "FARM_READ_TOKEN": READ_TOKEN,
            "FARM_SUBMIT_TOKEN": SUBMIT_TOKEN,
            "FARM_DATABASE_URL": self.database_url,
            "FARM_HEARTBEAT_S": "1",
            "FARM_RESEND_S": "3",
            "FARM_SWEEP_S": "0.2",
            "FARM_REFERENCE_AGENTS": "1",
            "NO_COLOR": "1",
        }
        self.agent_environment = {
            name: text
            for name, text in self.environment.items()
            if not name.startswith("FARM_") or name.endswith("_S") or name == known.VARIABLE
        } | {"FARM_LEASES": str(self.folder / "leases"), "SSL_CERT_FILE": str(self.authority.path)}

    def start(self) -> HttpLab:
        self.serve = self.service("serve", self.environment, "farm", "lab", "serve", "--log-format", "json")
        self.serve.until(lambda: "scheduling on" in self.serve.tail(), "farm lab serve")
        self._enrol()
        self.agent = self.service(
            "agent", self.agent_environment, "farm-agent", "start", "--state", str(self.state)
        )
        with self._database() as database:
            self.agent.until(lambda: _has_agents(database), "the agent's hello")
        return self

    def _database(self) -> closing[Database]:
        return closing(Database.connect(self.database_url))

    def _enrol(self) -> None:
        """Enrol the agent as its machine does it; the broker of this test has one user for all."""
        with self._database() as database, database.write() as session:
            key_id = farm_key(self.home / "keys").public.key_id
            invitation = enrolment.invite(session, "rack-1", key_id, datetime.now(UTC))
        applicant = Applicant.new()
        trusting = ssl.create_default_context(cafile=self.authority.path)
        ask = applicant.request(invitation)
        answer = httpx.post(f"{self.url}/enrol", json=ask, verify=trusting, trust_env=False)
        given = applicant.accept(invitation, answer.json())
        replace(given, broker_url=self.redis.socket_url).write(self.state)
        self.secrets = [invitation, given.token, given.signing_key, applicant.password]

    def elsewhere(self, **settings: str) -> dict[str, str]:
        """Return the environment of a user on a machine with a folder of its own and the settings of a
        client.
        """
        server = ("FARM_ENDPOINT", "FARM_TLS", "FARM_READ_TOKEN", "FARM_SUBMIT_TOKEN")
        kept = {name: text for name, text in self.environment.items() if not name.startswith(server)}
        return kept | {"FARM_HOME": str(self.folder / "users-home")} | settings

    def user(self, name: str) -> dict[str, str]:
        """Return the environment of a user whose machine has only the line of `farm lab users add`."""
        line = self.run("farm", "lab", "users", "add", name).stdout
        bare = {key: text for key, text in os.environ.items() if not key.startswith("FARM_")}
        given = dict(word.split("=", 1) for word in shlex.split(line)[1:])
        self.secrets.append(given["FARM_TOKEN"])
        return bare | {"FARM_HOME": str(self.folder / f"{name}s-home"), "NO_COLOR": "1"} | given

    def run(
        self, *command: str | Path, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        program, *arguments = map(str, command)
        return run(program, *arguments, cwd=self.folder, env=environment or self.environment, timeout=240)

    def close(self) -> None:
        for service in reversed(self.services):
            service.kill()
        for notified in self.notified.values():
            notified.close()

    def service(self, name: str, environment: dict[str, str], program: str, *arguments: str) -> Server:
        listening = self.notified.get(name)
        environment = environment | (listening.environment if listening else {})
        made = Program(program, arguments, self.folder / f"{name}.log", environment)
        self.services.append(made)
        return made


def _has_agents(database: Database) -> bool:
    with database.read() as session:
        return session.exec(select(tables.Agent)).first() is not None


@contextmanager
def http_lab(folder: Path, short_folder: Path, postgres: PostgresCluster) -> Iterator[HttpLab]:
    """Start a lab with a Redis, whose socket needs the short path, and a database of its own."""
    redis = RedisServer(Path(tempfile.mkdtemp(prefix="redis-", dir=short_folder))).start()
    name = postgres.new_database()
    made = HttpLab(folder, redis, postgres.socket_url(name))
    try:
        yield made.start()
    finally:
        made.close()
        redis.kill()
        postgres.drop_database(name)
