"""A real lab over a Redis with TLS, a password and access lists: what works, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from tests import needs
from tests.orchestrator.cli.models import unary_model
from tests.services.certificates import Authority
from tests.services.processes import Server
from tests.services.redis import Certificates, RedisServer

PASSWORD = "admins-own-password-of-this-test"
CAMPAIGN = """\
version: 1
campaign: trusted
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, timed: {min_runs: 5, min_seconds: 0}, processes: 1}
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
    authority: Authority
    services: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home, self.state = self.folder / "home", self.folder / "agent"
        self.environment = os.environ | {
            "FARM_HOME": str(self.home),
            "FARM_BROKER_URL": self.redis.url.replace("://", f"://:{PASSWORD}@"),
            "FARM_BROKER_CA": str(self.authority.path),
            "FARM_LEASES": str(self.folder / "leases"),
            "FARM_HEARTBEAT_S": "0.5",
            "FARM_RESEND_S": "3",
            "FARM_SWEEP_S": "0.2",
            "FARM_BACKOFF_S": "1",
            "FARM_WATCHDOG_S": "8",
            "NO_COLOR": "1",
        }

    def start(self) -> TrustedLab:
        self.serve = self._service("serve", "farm", "serve")
        self.serve.until(lambda: "the broker answers" in self.serve.tail(), "farm serve")
        self.farm("agents", "enrol", "rack-1", "--write", str(self.state))
        self.agent = self._service("agent", "farm-agent", "start", "--state", str(self.state))
        self.until(lambda: self.standing() == "active", "the agent's hello")
        return self

    def standing(self) -> str:
        return next((row["state"] for row in self.farm("agents", "list") if row["agent"] == "rack-1"), "")

    def measure(self) -> None:
        (self.folder / "small.tflite").write_bytes(unary_model())
        (self.folder / "models.yaml").write_text(CAMPAIGN)
        done = self.call("submit", "models.yaml", "--force")
        assert done.returncode == 0, done.stdout + done.stderr + self.serve.tail() + self.agent.tail()

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("farm")), *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def farm(self, *arguments: str) -> Any:
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def until(self, happens: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 60
        while not happens():
            assert time.monotonic() < deadline, f"{what}: {self.serve.tail()}{self.agent.tail()}"
            time.sleep(0.1)

    def credentials(self) -> dict[str, str]:
        return json.loads((self.state / "credentials.json").read_text())

    def as_agent(self) -> redis.Redis:
        return redis.Redis.from_url(self.credentials()["broker_url"], ssl_ca_certs=str(self.authority.path))

    def as_admin(self) -> redis.Redis:
        return self.redis.client(password=PASSWORD)

    def close(self) -> None:
        for service in reversed(self.services):
            service.kill()

    def _service(self, name: str, program: str, *arguments: str) -> Server:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        made = Server(command, self.folder / f"{name}.log", self.environment)
        self.services.append(made)
        return made


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TrustedLab]:
    needs.redis_server()
    authority = Authority(tmp_path)
    pair = authority.issue()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = RedisServer(
        tmp_path / "redis",
        address="127.0.0.1",
        port=port,
        settings=(f"requirepass {PASSWORD}",),
        tls=Certificates(authority.path, pair.certificate, pair.key),
    ).start()
    made = TrustedLab(tmp_path, broker, authority)
    try:
        yield made.start()
    finally:
        made.close()
        broker.kill()


def test_a_campaign_needs_no_right_that_an_agent_lacks_and_no_log_tells_a_secret(lab: TrustedLab) -> None:
    with lab.as_admin() as admin:
        admin.acl_log_reset()
        lab.measure()
        time.sleep(5)
        assert admin.acl_log() == [], "the link pings, restores and publishes with its own rights"
    token = lab.farm("agents", "enrol", "rack-2")["token"]
    found = lab.credentials()
    secrets = [PASSWORD, token, found["token"], found["signing_key"], found["broker_url"].split("@")[0][-43:]]
    secrets.append((lab.home / "keys" / "farm.key").read_text().strip())
    logs = [lab.folder / "serve.log", lab.folder / "agent.log", lab.state / "link" / "log"]
    logs += [path for path in lab.state.rglob("*log*") if path.is_file()]
    text = "".join(path.read_text(errors="replace") for path in logs if path.exists())
    assert "scheduling on" in text
    assert [secret for secret in secrets if secret in text] == []
    assert lab.call("doctor").stdout.count(PASSWORD) == 0


@pytest.mark.parametrize("url", ["plain", "untrusted"])
def test_redis_is_not_reached_without_tls_or_with_another_authority(lab: TrustedLab, url: str) -> None:
    if url == "plain":
        lab.environment["FARM_BROKER_URL"] = lab.environment["FARM_BROKER_URL"].replace("rediss:", "redis:")
    else:
        lab.environment["FARM_BROKER_CA"] = str(Authority(lab.folder, "another").path)
    told = lab.call("doctor").stdout
    assert "BAD  broker: cannot be reached" in told, told


def test_an_agent_cannot_touch_what_is_not_its_own(lab: TrustedLab) -> None:
    refused = (
        ("GET", "farm:agent.rack-2.unacked_mutex"),
        ("BRPOP", "farm:agent.rack-2.jobs", "1"),
        ("LPUSH", "farm:agent.rack-2.jobs", "x"),
        ("LPUSH", "farm:agent.rack-10.jobs", "x"),
        ("LPUSH", "other:ingest", "x"),
        ("RPOP", "farm:ingest"),
        ("BRPOP", "farm:ingest", "1"),
        ("DEL", "farm:ingest"),
        ("SET", "farm:ingest", "x"),
        ("HGET", "farm:ingest.unacked", "x"),
        ("KEYS", "*"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "requirepass"),
        ("CONFIG", "SET", "requirepass", ""),
        ("ACL", "LIST"),
        ("SUBSCRIBE", "x"),
        ("PUBLISH", "x", "y"),
        ("SHUTDOWN",),
        ("EVAL", "return redis.call('KEYS', '*')", "0"),
        ("MONITOR",),
        ("REPLICAOF", "NO", "ONE"),
    )
    with lab.as_agent() as agent:
        agent.ping()
        for command in refused:
            with pytest.raises(redis.exceptions.NoPermissionError):
                agent.execute_command(*command)


def test_a_forged_message_is_dropped_and_the_agent_goes_on(lab: TrustedLab) -> None:
    with lab.as_admin() as admin:
        body = json.dumps({"agent_id": "rack-1", "payload": '{"type":"shutdown"}'})
        from kombu import Connection, Producer

        from agent.link.broker import Broker, publish

        broker = Broker("rack-1", lab.environment["FARM_BROKER_URL"], ca_file=lab.authority.path)
        options = broker.transport_options()
        with Connection(broker.url, ssl=broker.tls(), transport_options=options) as connection:
            producer = Producer(connection.channel())
            publish(producer, "farm.message", broker.queue, body)
            publish(producer, "farm.ingest", "ingest", body)
        log = lab.state / "link" / "log"
        lab.until(lambda: "no signed envelope" in log.read_text(), "the agent refuses")
        lab.until(lambda: "no signed envelope" in lab.serve.tail(), "the farm refuses")
        assert admin.llen("farm:ingest") == 0
    lab.measure()


def test_a_redis_that_forgot_its_users_gets_them_again_and_a_revoked_agent_stays_out(lab: TrustedLab) -> None:
    lab.redis.lose_everything()
    with lab.as_admin() as admin:
        lab.until(lambda: b"farm:agent.rack-1" in map(_bytes, admin.acl_users()), "the users are back")
    lab.measure()
    assert lab.farm("agents", "revoke", "rack-1")["state"] == "revoked"
    with pytest.raises(redis.exceptions.AuthenticationError), lab.as_agent() as agent:
        agent.ping()
    assert lab.standing() == "removed"
    lab.farm("agents", "enrol", "rack-1", "--write", str(lab.state))
    lab.until(lambda: lab.standing() == "active", "the agent is back with new secrets")
    lab.measure()


def test_a_rotation_under_way_disturbs_nothing(lab: TrustedLab) -> None:
    before = lab.credentials()
    lab.farm("agents", "rotate", "rack-1", "--overlap", "60", "--write", str(lab.state))
    assert lab.credentials()["token"] != before["token"]
    with lab.as_agent() as new:
        new.ping()
    old = redis.Redis.from_url(before["broker_url"], ssl_ca_certs=str(lab.authority.path))
    with old:
        old.ping()
    log = lab.state / "link" / "log"
    lab.until(lambda: "enrolled anew" in log.read_text(), "the link takes the new secrets")
    lab.measure()


def _bytes(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode()
