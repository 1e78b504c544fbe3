"""A lab whose agent shares nothing with the farm but Redis and the endpoint: a campaign of real models."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from agent.credentials import Applicant
from orchestrator.db.session import Database
from orchestrator.trust import enrolment
from orchestrator.trust.keys import farm_key
from tests.orchestrator.cli.models import unary_model
from tests.services.certificates import Authority
from tests.services.processes import Server
from tests.services.redis import RedisServer

CAMPAIGN = """\
version: 1
campaign: over-http
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, timed: {min_runs: 5, min_seconds: 0}, processes: 1}
models:
  - {id: small, source: small.tflite}
  - {id: large, source: large.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
devices:
  - {name: "*cpu*"}
"""
READ_TOKEN = "r" * 40


@dataclass
class HttpLab:
    """`farm serve` behind TLS, and one enrolled agent with a state folder of its own."""

    folder: Path
    redis: RedisServer
    services: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home, self.state = self.folder / "home", self.folder / "agent"
        self.authority = Authority(self.folder)
        pair = self.authority.issue()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"https://127.0.0.1:{free.getsockname()[1]}"
        self.environment = os.environ | {
            "FARM_HOME": str(self.home),
            "FARM_BROKER_URL": self.redis.socket_url,
            "FARM_ENDPOINT": self.url,
            "FARM_TLS_CERT": str(pair.certificate),
            "FARM_TLS_KEY": str(pair.key),
            "FARM_TLS_CA": str(self.authority.path),
            "FARM_READ_TOKEN": READ_TOKEN,
            "FARM_HEARTBEAT_S": "1",
            "FARM_RESEND_S": "3",
            "FARM_SWEEP_S": "0.2",
            "NO_COLOR": "1",
        }
        self.agent_environment = {
            name: text
            for name, text in self.environment.items()
            if not name.startswith("FARM_") or name.endswith("_S")
        } | {"FARM_LEASES": str(self.folder / "leases"), "SSL_CERT_FILE": str(self.authority.path)}

    def start(self) -> HttpLab:
        self.serve = self._service("serve", self.environment, "farm", "serve", "--log-format", "json")
        self.serve.until(lambda: "scheduling on" in self.serve.tail(), "farm serve")
        self._enrol()
        self.agent = self._service(
            "agent", self.agent_environment, "farm-agent", "start", "--state", str(self.state)
        )
        self.agent.until(lambda: "rack-1" in self.run("farm", "agents", "list").stdout, "the agent's hello")
        return self

    def _enrol(self) -> None:
        """As the agent's machine does it; the broker of this test has one user for all."""
        database = Database.connect(self.home / "farm.db")
        with database.write() as session:
            key_id = farm_key(self.home / "keys").public.key_id
            invitation = enrolment.invite(session, "rack-1", key_id, datetime.now(UTC))
        database.close()
        applicant = Applicant.new()
        trusting = ssl.create_default_context(cafile=self.authority.path)
        ask = applicant.ask(invitation)
        answer = httpx.post(f"{self.url}/enrol", json=ask, verify=trusting, trust_env=False)
        given = applicant.accept(invitation, answer.json())
        replace(given, broker_url=self.redis.socket_url).write(self.state)
        self.secrets = [invitation, given.token, given.signing_key, applicant.password]

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name(str(command[0]))), *map(str, command[1:])],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def close(self) -> None:
        for service in reversed(self.services):
            service.kill()

    def _service(self, name: str, environment: dict[str, str], program: str, *arguments: str) -> Server:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        made = Server(command, self.folder / f"{name}.log", environment)
        self.services.append(made)
        return made


@pytest.fixture
def lab(tmp_path: Path, redis_server: RedisServer) -> Iterator[HttpLab]:
    made = HttpLab(tmp_path, redis_server)
    try:
        yield made.start()
    finally:
        made.close()


def test_models_travel_there_and_samples_back_by_the_endpoint_alone(lab: HttpLab) -> None:
    models = {"small.tflite": unary_model(), "large.tflite": unary_model(size=1 << 16)}
    for name, content in models.items():
        (lab.folder / name).write_bytes(content)
    (lab.folder / "models.yaml").write_text(CAMPAIGN)
    ran = lab.run("farm", "submit", "models.yaml")
    assert ran.returncode == 0, ran.stderr + lab.serve.tail() + lab.agent.tail()

    kept = sorted(path.read_bytes() for path in (lab.state / "store" / "sha256").glob("*/*"))
    assert kept == sorted(models.values()), "the agent keeps the models and none of the samples"
    assert not (lab.state / "store").is_symlink()
    assert lab.run("farm", "db", "check", "--deep").returncode == 0

    headers = {"authorization": f"Bearer {READ_TOKEN}"}
    trusting = ssl.create_default_context(cafile=lab.authority.path)
    with httpx.Client(base_url=lab.url, headers=headers, verify=trusting, trust_env=False) as reader:
        cells = reader.get("/campaigns/over-http/results").json()
    assert [(cell["model"], cell["status"]) for cell in cells] == [("small", "done"), ("large", "done")]
    assert json.loads(lab.run("farm", "results", "--format", "json").stdout) == cells

    logs = (
        lab.serve.tail()
        + lab.agent.tail()
        + "".join(path.read_text(errors="replace") for path in lab.state.rglob("*.log"))
    )
    assert [secret for secret in [*lab.secrets, READ_TOKEN] if secret in logs] == []


def test_a_damaged_model_in_an_agents_cache_is_fetched_again_and_measured_right(lab: HttpLab) -> None:
    for name in ("small.tflite", "large.tflite"):
        (lab.folder / name).write_bytes(unary_model(size=64 if name[0] == "s" else 128))
    (lab.folder / "models.yaml").write_text(CAMPAIGN)
    assert lab.run("farm", "submit", "models.yaml").returncode == 0
    for path in (lab.state / "store" / "sha256").glob("*/*"):
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(damaged)
    again = lab.run("farm", "submit", "models.yaml", "--force")
    assert again.returncode == 0, again.stderr
    for path in (lab.state / "store" / "sha256").glob("*/*"):
        assert path.read_bytes() in [
            (lab.folder / f"{name}.tflite").read_bytes() for name in ("small", "large")
        ]
