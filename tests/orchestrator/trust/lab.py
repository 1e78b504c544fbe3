"""A lab over a real Redis: `farm lab serve`, one enrolled agent, and every way to look at both."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.orchestrator.cli.models import unary_model
from tests.services import known
from tests.services.certificates import Authority
from tests.services.forks import Program, run
from tests.services.ports import free_port
from tests.services.processes import Server
from tests.services.redis import Certificates, RedisServer

PASSWORD = "admins-own-password-of-this-test"
CAMPAIGN = """\
version: 1
campaign: trusted
defaults:
  measure:
    warmup: {runs: 1, min_seconds: 0}
    blocks: 1
    rounds: 10
    slice: {seconds: SECONDS}
models:
  - {id: small, source: small.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
devices:
  - {name: "*cpu*"}
"""


@dataclass
class TrustedLab:
    folder: Path
    redis: RedisServer
    authority: Authority | None
    endpoint: Mapping[str, str] = field(default_factory=dict)
    services: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home, self.state = self.folder / "home", self.folder / "agent"
        self.environment = os.environ | {
            "FARM_HOME": str(self.home),
            "FARM_BROKER_URL": self.redis.url.replace("://", f"://:{PASSWORD}@"),
            **({} if self.authority is None else {"FARM_BROKER_CA": str(self.authority.path)}),
            "FARM_LEASES": str(self.folder / "leases"),
            "FARM_HEARTBEAT_S": "0.5",
            "FARM_RESEND_S": "3",
            "FARM_SWEEP_S": "0.2",
            "FARM_BACKOFF_S": "1",
            "FARM_WATCHDOG_S": "8",
            "NO_COLOR": "1",
            **self.endpoint,
        }

    def start(self) -> TrustedLab:
        self.start_serve()
        self.farm("lab", "agents", "enrol", "rack-1", "--write", str(self.state))
        self.agent = self._service("agent", "farm-agent", "start", "--state", str(self.state))
        self.until(self.is_active, "the agent's hello")
        return self

    def start_serve(self) -> None:
        self.serve = self._service("serve", "farm", "lab", "serve")
        self.serve.until(lambda: "the broker answers" in self.serve.tail(), "farm lab serve")

    def standing(self, name: str = "rack-1") -> str:
        return next((row["state"] for row in self.farm("lab", "agents", "list") if row["agent"] == name), "")

    def is_active(self, name: str = "rack-1") -> bool:
        """Whether an agent stands so in the database: `farm` takes longer than the time between two looks."""
        heard = f"agent_id = '{name}' AND heard_at IS NOT NULL AND refused IS NULL"
        return self.rows(f"SELECT state FROM agent WHERE {heard}") == [("active",)]

    def start_agent(self, state: Path, **environment: str) -> Server:
        """Start a further agent, with nothing of the farm's but these settings."""
        own = {
            name: text
            for name, text in self.environment.items()
            if name.endswith("_S") or name == known.VARIABLE or "FARM" not in name
        }
        environment |= {"FARM_LEASES": str(self.folder / "leases"), **own}
        if self.authority is not None:
            environment["SSL_CERT_FILE"] = str(self.authority.path)
        made = Program(
            "farm-agent", ["start", "--state", str(state)], self.folder / f"{state.name}.log", environment
        )
        self.services.append(made)
        return made

    def write_campaign(self, seconds: float) -> None:
        """One model that is measured for so long; a larger one where that is longer than a few runs."""
        (self.folder / "small.tflite").write_bytes(unary_model(size=1 << 18 if seconds else 1 << 10))
        (self.folder / "models.yaml").write_text(CAMPAIGN.replace("SECONDS", f"{seconds / 10:g}"))

    def begin(self, seconds: float) -> Server:
        """Submit a campaign whose only attempt runs now."""
        self.write_campaign(seconds)
        submitting = self._service("submit", "farm", "submit", str(self.folder / "models.yaml"), "--force")
        running = "SELECT 1 FROM attempt WHERE state = 'running'"
        self.until(lambda: self.rows(running), "an attempt runs")
        return submitting

    def measure(self) -> None:
        self.write_campaign(0.0)
        done = self.call("submit", "models.yaml", "--force")
        assert done.returncode == 0, done.stdout + done.stderr + self.serve.tail() + self.agent.tail()

    def call(self, *arguments: str, within_s: float = 120) -> subprocess.CompletedProcess[str]:
        return run("farm", *arguments, cwd=self.folder, env=self.environment, timeout=within_s)

    def farm(self, *arguments: str) -> Any:
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def until(self, happens: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 180
        while not happens():
            assert time.monotonic() < deadline, f"{what}: {self.serve.tail()}{self.agent.tail()}"
            time.sleep(0.1)

    def credentials(self) -> dict[str, str]:
        return json.loads((self.state / "credentials.json").read_text())

    def as_user(self, url: str) -> redis.Redis:
        """Return a client that logs in with a broker's URL."""
        own = {} if self.authority is None else {"ssl_ca_certs": str(self.authority.path)}
        return redis.Redis.from_url(url, **own)

    def as_agent(self) -> redis.Redis:
        return self.as_user(self.credentials()["broker_url"])

    def link_log(self) -> str:
        return (self.state / "link" / "log").read_text(errors="replace")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Of the farm's database."""
        with closing(sqlite3.connect(f"file:{self.home / 'farm.db'}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchall()

    def attempts(self) -> list[tuple[Any, ...]]:
        """Return number and state of each attempt, the first begun first."""
        return self.rows("SELECT attempt_no, state FROM attempt ORDER BY dispatched_at")

    def spooled(self) -> int:
        """Results that the agent keeps until the farm confirms them."""
        with closing(sqlite3.connect(f"file:{self.state / 'journal.db'}?mode=ro", uri=True)) as journal:
            return int(journal.execute("SELECT count(*) FROM attempt WHERE state = 'spooled'").fetchone()[0])

    def as_admin(self) -> redis.Redis:
        return self.redis.client(password=PASSWORD)

    def close(self) -> None:
        for service in reversed(self.services):
            service.kill()

    def _service(self, name: str, program: str, *arguments: str) -> Server:
        made = Program(program, arguments, self.folder / f"{name}.log", self.environment)
        self.services.append(made)
        return made


def modes_in(root: Path) -> dict[Path, int]:
    """Return the mode of a folder and of all below it but links. Files that a lab deletes meanwhile are left
    out.
    """
    modes = {}
    for path in (root, *root.rglob("*")):
        with suppress(FileNotFoundError):
            modes[path] = path.lstat().st_mode
    return {path: mode for path, mode in modes.items() if not stat.S_ISLNK(mode)}


@contextmanager
def trusted_lab(folder: Path, binary: str, *, tls: bool) -> Iterator[TrustedLab]:
    """Start a lab over a Redis of this program with a password; with TLS an endpoint, too."""
    authority = Authority(folder) if tls else None
    pair = None if authority is None else authority.issue()
    broker = RedisServer(
        folder / "redis",
        address="127.0.0.1",
        port=free_port(),
        settings=(f"requirepass {PASSWORD}",),
        tls=Certificates(authority.path, pair.certificate, pair.key) if authority and pair else None,
        binary=binary,
    ).start()
    endpoint = {}
    if authority and pair:
        endpoint["FARM_ENDPOINT"] = f"https://127.0.0.1:{free_port()}"
        endpoint |= {"FARM_TLS_CERT": str(pair.certificate), "FARM_TLS_KEY": str(pair.key)}
        endpoint |= {"FARM_TLS_CA": str(authority.path)}
    made = TrustedLab(folder, broker, authority, endpoint)
    try:
        yield made.start()
    finally:
        made.close()
        broker.kill()
