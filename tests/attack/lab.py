"""The lab under attack: Redis with access lists and TLS, PostgreSQL, `farm lab serve` with its endpoint over
TLS, two enrolled agents as processes, and the credentials of a third that belongs to the attacker.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from agent.wire.credentials import Applicant, Credentials
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.engine.sessions import Database
from orchestrator.trust.credentials_service import CredentialsService
from orchestrator.trust.users import Users
from tests import needs
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.endpoint.http_lab import READ_TOKEN, SUBMIT_TOKEN
from tests.orchestrator.trust.lab import PASSWORD, TrustedLab
from tests.services import known
from tests.services.certificates import Authority
from tests.services.ports import free_port
from tests.services.postgres import PostgresCluster
from tests.services.processes import Server
from tests.services.redis import Certificates, RedisServer

VICTIM, NEIGHBOUR, ROGUE, WITNESS = "rack-1", "rack-2", "rogue", "witness"
"""Two agents that run, the attacker's credentials, and credentials by which a test sends good messages."""
PROMPT_S = 20.0
"""A good message is applied within so long, whatever is sent beside it."""
PATIENCE_S = 180.0
"""A test waits so long for what comes in any case, but nobody promises when."""

CAMPAIGN = """\
version: 1
campaign: under-attack
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0}}
models:
MODELS
delegates:
  chosen: {kind: KIND}
devices:
  - {name: "DEVICE"}
"""


@dataclass
class AttackLab(TrustedLab):
    """A `TrustedLab` with PostgreSQL; `rack-1` and `rack-2` run."""

    postgres: PostgresCluster | None = None
    database_name: str = ""

    def start(self) -> AttackLab:
        super().start()
        self.bare = {name: self.enrol(name) for name in (ROGUE, WITNESS)}
        self.enrol(NEIGHBOUR).write(self.state_of(NEIGHBOUR))
        self.neighbour = self.start_agent(self.state_of(NEIGHBOUR))
        self.until(lambda: self.heard_at(NEIGHBOUR), "the neighbour's hello")
        return self

    @property
    def url(self) -> str:
        """Of the endpoint."""
        return self.environment["FARM_ENDPOINT"]

    @property
    def address(self) -> tuple[str, int]:
        parts = httpx.URL(self.url)
        return parts.host, int(parts.port or 0)

    @property
    def trusting(self) -> ssl.SSLContext:
        assert self.authority is not None
        return ssl.create_default_context(cafile=self.authority.path)

    def state_of(self, name: str) -> Path:
        return self.state if name == VICTIM else self.folder / name

    def credentials_of(self, name: str) -> Credentials:
        return self.bare.get(name) or Credentials.read(self.state_of(name))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        assert self.postgres is not None
        with self.postgres.connect(self.database_name) as connection:
            return connection.execute(query).fetchall()

    def invite(self, name: str, valid: timedelta = timedelta(hours=1)) -> str:
        """Return a one-time token for this name."""
        config = LabConfig.load(FarmHome(self.home), self.environment)
        database = Database.connect(self.environment["FARM_DATABASE_URL"])
        try:
            return CredentialsService.open(FarmHome(self.home), config, database).invite(name, valid)
        finally:
            database.close()

    def user(self, name: str) -> str:
        """Return the token of a new user with the usual scopes."""
        database = Database.connect(self.environment["FARM_DATABASE_URL"])
        try:
            return Users(database).add(name, replace=True)
        finally:
            database.close()

    def enrol(self, name: str) -> Credentials:
        """Enrol over HTTPS, as an agent's machine does."""
        invitation, applicant = self.invite(name), Applicant.new()
        with self.http() as stranger:
            answer = stranger.post("/enrol", json=applicant.request(invitation))
        assert answer.status_code == 200, answer.text
        return applicant.accept(invitation, answer.json())

    def http(self, token: str | None = None, **options: Any) -> httpx.Client:
        """Return a client of the endpoint."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        chosen = {"timeout": 30.0, "verify": self.trusting} | options
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, **chosen)

    def heard_at(self, name: str) -> float:
        """When the farm heard from an agent last, as `farm lab agents list` shows it; 0: never."""
        found = self.rows(f"SELECT extract(epoch FROM seen_at) FROM agent WHERE agent_id = '{name}'")
        return float(found[0][0]) if found else 0.0

    def submit(
        self, models: Mapping[str, bytes], device: str = f"{VICTIM}.host-cpu", delegate: str = "cpu"
    ) -> list[dict[str, Any]]:
        """Measure these models on a device; a row per cell, as `farm results --format json` shows it."""
        lines = []
        for number, (name, content) in enumerate(models.items()):
            (self.folder / f"{number}.tflite").write_bytes(content)
            lines.append(f"  - {{id: {name}, source: {number}.tflite}}")
        text = (
            CAMPAIGN.replace("MODELS", "\n".join(lines)).replace("DEVICE", device).replace("KIND", delegate)
        )
        (self.folder / "models.yaml").write_text(text)
        done = self.call("submit", "models.yaml", "--force", within_s=60 + 20 * len(models))
        assert done.returncode in (0, 1), done.stdout + done.stderr + self.last_words()
        told = self.call("results", "--format", "json")
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    def measure(self, device: str = f"{VICTIM}.host-cpu") -> None:
        """Measure a model that runs: the lab does its normal work."""
        (cell,) = self.submit({"honest": unary_model()}, device)
        assert cell["status"] == "done", f"{cell['reason']}: {self.last_words()}"

    def last_words(self) -> str:
        return "\n".join(service.tail() for service in self.services)

    def peak_bytes(self, service: Server) -> int:
        """Return the most memory that the process ever had, in bytes."""
        for line in Path(f"/proc/{service.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"{service.command[0]} is gone: {service.tail()}")

    def within(self, seconds: float, happens: Callable[[], Any], what: str) -> None:
        """Wait until something is truthy."""
        until = time.monotonic() + seconds
        while not happens():
            assert time.monotonic() < until, f"not within {seconds:g} s: {what}\n{self.last_words()}"
            time.sleep(0.05)


@contextmanager
def attack_lab(folder: Path, postgres: PostgresCluster) -> Iterator[AttackLab]:
    """Start a lab of its own. Its folder is open to every user: closing a file is the lab's own doing."""
    authority = Authority(folder)
    pair = authority.issue()
    broker = RedisServer(
        folder / "redis",
        address="127.0.0.1",
        port=free_port(),
        settings=(f"requirepass {PASSWORD}",),
        tls=Certificates(authority.path, pair.certificate, pair.key),
        binary=needs.redis_server(),
    ).start()
    name = postgres.new_database()
    settings = {
        "FARM_DATABASE_URL": postgres.socket_url(name),
        "FARM_ENDPOINT": f"https://127.0.0.1:{free_port()}",
        "FARM_TLS_CERT": str(pair.certificate),
        "FARM_TLS_KEY": str(pair.key),
        "FARM_TLS_CA": str(authority.path),
        "FARM_READ_TOKEN": READ_TOKEN,
        "FARM_SUBMIT_TOKEN": SUBMIT_TOKEN,
        **known.ALONE,  # what is attacked is the product's own processes
    }
    lab = AttackLab(folder, broker, authority, settings, postgres=postgres, database_name=name)
    try:
        yield lab.start()
    finally:
        lab.close()
        broker.kill()
        postgres.drop_database(name)
