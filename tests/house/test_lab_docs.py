"""`docs/lab.md` names every setting and every verb that a lab has."""

from __future__ import annotations

import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
import redis

from agent.attempt.lease import LEASES_VARIABLE
from agent.config import MEMORY_VARIABLE, STATE_VARIABLE
from agent.link.cache import BUDGET_VARIABLE
from agent.runner.probe.host import SIDE_BY_SIDE_VARIABLE
from orchestrator.config.address import KEYS
from orchestrator.config.lab import LabTimes
from orchestrator.db.devices.quarantine import CHECK_DELAYS_S
from tests import needs
from tests.needs import REPOSITORY
from tests.services.ports import free_port
from tests.services.processes import Server

TEXT = (REPOSITORY / "docs/lab.md").read_text()


@pytest.mark.parametrize("time", fields(LabTimes), ids=lambda entry: entry.name)
def test_every_time_stands_there_with_its_default(time):
    assert f"| `{time.name}` | {time.default:g} |" in TEXT


@pytest.mark.parametrize(
    "name",
    [
        "FARM_HOME", "broker_url", "database_url", "key_prefix", "allow_private", *KEYS, STATE_VARIABLE,
        LEASES_VARIABLE, MEMORY_VARIABLE, SIDE_BY_SIDE_VARIABLE, BUDGET_VARIABLE,
    ],
)  # fmt: skip
def test_every_setting_is_named(name):
    assert f"`{name}`" in TEXT


def test_the_pauses_before_health_checks_are_the_codes():
    assert CHECK_DELAYS_S == (10, 60, 600, 3600)
    assert "after 10 s, 1 min, 10 min and every hour" in TEXT


@pytest.mark.slow
def test_redis_starts_with_the_commands_and_the_configuration_that_stand_there(tmp_path: Path) -> None:
    port, data = free_port(), tmp_path / "data"
    data.mkdir()
    text = (REPOSITORY / "examples/redis.conf").read_text()
    text = text.replace("/etc/farm", str(tmp_path)).replace("/var/lib/redis", str(data))
    text = text.replace("bind 10.0.0.5 ", "bind ").replace("tls-port 6379", f"tls-port {port}")
    (tmp_path / "redis.conf").write_text(text)
    block = TEXT[TEXT.index("       umask 077") :].partition("\n\n")[0]
    *makes, starts = re.findall(r"^ {7}(.+)$", block, re.MULTILINE)
    assert starts == "redis-server /etc/farm/redis.conf"
    subprocess.run(["sh", "-ec", "\n".join(makes)], cwd=tmp_path, check=True, capture_output=True)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("*.key")} == {0}
    password_file = tmp_path / "redis-password.conf"
    assert password_file.stat().st_mode & 0o077 == 0
    password = password_file.read_text().split()[1]
    server = Server([needs.redis_server(), str(tmp_path / "redis.conf")], tmp_path / "redis.log")
    try:
        with redis.Redis(
            host="localhost", port=port, password=password, ssl=True, ssl_ca_certs=str(tmp_path / "ca.pem")
        ) as client:
            server.until(lambda: answers(client), "redis-server")
            given = {name: client.config_get(name)[name] for name in ("maxmemory-policy", "appendonly")}
            assert given == {"maxmemory-policy": "noeviction", "appendonly": "yes"}
            assert int(client.config_get("maxmemory")["maxmemory"]) > 0
    finally:
        server.kill()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
