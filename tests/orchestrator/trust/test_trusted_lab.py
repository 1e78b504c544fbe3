"""A real lab over a Redis with a password, access lists and TLS: what works, and what is refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from agent.wire.service_urls import for_ingest
from tests import needs
from tests.orchestrator.trust.lab import PASSWORD, TrustedLab, modes_in, trusted_lab
from tests.services.certificates import Authority

REFUSED = "the broker refuses agent rack-1: it was revoked"
COUNTED_S = 4.0
"""How long a refused agent's connections are counted: several times its first pause, FARM_BACKOFF_S of 1 s;
each pause is longer than the one before.
"""


@pytest.fixture(scope="module")
def quiet_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrustedLab]:
    """One lab for the tests that leave its agent, its keys and its broker as they are."""
    with trusted_lab(tmp_path_factory.mktemp("lab"), needs.redis_server(), tls=True) as made:
        yield made


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TrustedLab]:
    with trusted_lab(tmp_path, needs.redis_server(), tls=True) as made:
        yield made


@contextmanager
def lab_over(redis_version: str, folder: Path) -> Iterator[TrustedLab]:
    """Start a lab over this machine's Redis, with TLS, or over the oldest that the farm takes, without."""
    oldest = redis_version == "6.2"
    binary = needs.oldest_redis_server() if oldest else needs.redis_server()
    with trusted_lab(folder, binary, tls=not oldest) as made:
        with made.as_admin() as admin:
            version = str(admin.info("server")["redis_version"])
        assert version.startswith("6.2.") == oldest, version
        yield made


EACH = ["installed", pytest.param("6.2", marks=pytest.mark.conformance)]


@pytest.fixture(params=EACH)
def each_lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TrustedLab]:
    with lab_over(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=EACH)
def each_quiet_lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TrustedLab]:
    """Start a lab as `each_lab` does, or take the one of the tests that leave it as it is."""
    if request.param == "installed":
        yield request.getfixturevalue("quiet_lab")
        return
    with lab_over(request.param, tmp_path) as made:
        yield made


def test_a_campaign_needs_no_right_that_an_agent_lacks_and_no_log_tells_a_secret(
    each_lab: TrustedLab,
) -> None:
    lab = each_lab
    with lab.as_admin() as admin:
        admin.acl_log_reset()
        admin.config_resetstat()
        lab.measure()
        lab.until(lambda: renewals(admin) >= 2, "the link pings itself and keeps its name")
        assert admin.acl_log() == [], "the link receives, pings and publishes with its own rights"
    token = lab.farm("lab", "agents", "enrol", "rack-2")["token"]
    found = lab.credentials()
    secrets = [PASSWORD, token, found["token"], found["signing_key"], found["broker_url"].split("@")[0][-43:]]
    secrets.append((lab.home / "keys" / "farm.key").read_text().strip())
    text = "".join(path.read_text(errors="replace") for path in (lab.serve.log, lab.agent.log))
    for path in lab.state.rglob("*log*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # the agent deletes what an attempt wrote
            text += path.read_text(errors="replace")
    modes = modes_in(lab.home) | modes_in(lab.state)
    assert [path for path, mode in modes.items() if mode & 0o077] == []
    assert "scheduling on" in text
    assert [secret for secret in secrets if secret in text] == []
    assert lab.call("doctor").stdout.count(PASSWORD) == 0


@pytest.mark.parametrize("url", ["plain", "untrusted"])
def test_redis_is_not_reached_without_tls_or_with_another_authority(
    quiet_lab: TrustedLab, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = quiet_lab.environment
    if url == "plain":
        plain = environment["FARM_BROKER_URL"].replace("rediss:", "redis:")
        monkeypatch.setitem(environment, "FARM_BROKER_URL", plain)
    else:
        monkeypatch.setitem(environment, "FARM_BROKER_CA", str(Authority(quiet_lab.folder, "another").path))
    told = quiet_lab.call("doctor").stdout
    assert "BAD  broker: cannot be reached" in told, told


def test_an_agent_cannot_touch_what_is_not_its_own(each_quiet_lab: TrustedLab) -> None:
    refused = (
        ("GET", "farm:agent.rack-2.holder"),
        ("GET", "farm:ingest.unacked_mutex"),
        ("BRPOP", "farm:agent.rack-2.jobs", "1"),
        ("LPUSH", "farm:agent.rack-2.jobs", "x"),
        ("LPUSH", "farm:agent.rack-10.jobs", "x"),
        ("LPUSH", "other:ingest", "x"),
        ("LPUSH", "farm:ingest.ping", "x"),
        ("LPUSH", "farm:agent.rack-2.ingest", "x"),
        ("LPUSH", "farm:agent.rack-10.ingest", "x"),
        ("RPOP", "farm:agent.rack-1.ingest"),
        ("DEL", "farm:agent.rack-1.ingest"),
        ("LPUSH", "farm:ingest", "x"),
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
    own = ("LPUSH", "farm:agent.rack-1.jobs", "x"), ("LPUSH", "farm:agent.rack-1.ingest", "x")
    url = each_quiet_lab.credentials()["broker_url"]
    for user, other in ((url, own[1]), (for_ingest(url), own[0])):
        with each_quiet_lab.as_user(user) as agent:
            agent.ping()
            for command in (*refused, other):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    agent.execute_command(*command)


def test_a_forged_message_is_dropped_and_the_agent_goes_on(quiet_lab: TrustedLab) -> None:
    lab = quiet_lab
    with lab.as_admin() as admin:
        body = json.dumps({"agent_id": "rack-1", "payload": '{"type":"shutdown"}'})
        from kombu import Connection, Producer

        from agent.link.broker import AgentBroker
        from agent.wire.queue import publish

        assert lab.authority is not None
        broker = AgentBroker("rack-1", lab.environment["FARM_BROKER_URL"], ca_file=lab.authority.path)
        options = broker.transport_options()
        with Connection(broker.url, ssl=broker.tls() or False, transport_options=options) as connection:
            producer = Producer(connection.channel())
            publish(producer, "farm.message", broker.queue, body)
            publish(producer, "farm.ingest", broker.ingest_queue, body)
        lab.until(lambda: "no signed envelope" in lab.link_log(), "the agent refuses")
        lab.until(lambda: "no signed envelope" in lab.serve.tail(), "the farm refuses")
        assert admin.llen("farm:agent.rack-1.ingest") == 0
    lab.measure()


@pytest.mark.slow
def test_where_somebody_else_keeps_the_access_lists_the_printed_commands_are_enough(
    quiet_lab: TrustedLab,
) -> None:
    lab = quiet_lab
    commands = lab.call("lab", "agents", "acl").stdout.splitlines()
    assert [command.split()[2] for command in commands] == ["farm:agent.rack-1", "farm:agent.rack-1.ingest"]
    with lab.as_admin() as admin:
        before = [admin.acl_getuser(command.split()[2]) for command in commands]
        for command in commands:
            admin.acl_deluser(command.split()[2])
            admin.execute_command(*command.split())
        assert [admin.acl_getuser(command.split()[2]) for command in commands] == before
    lab.measure()


@pytest.mark.conformance
def test_a_redis_that_forgot_its_users_gets_them_again(lab: TrustedLab) -> None:
    lab.redis.lose_everything()
    with lab.as_admin() as admin:
        lab.until(lambda: b"farm:agent.rack-1" in map(_bytes, admin.acl_users()), "the users are back")
    lab.measure()


@pytest.mark.slow
def test_a_revoked_agent_is_shut_out_says_so_once_and_keeps_its_result_until_it_is_enrolled_again(
    each_lab: TrustedLab,
) -> None:
    lab = each_lab
    submitting = lab.begin(seconds=4.0)
    assert lab.farm("lab", "agents", "revoke", "rack-1") == {"agent": "rack-1", "state": "revoked", "lost": 1}
    with pytest.raises(redis.exceptions.AuthenticationError), lab.as_agent() as agent:
        agent.ping()
    assert lab.standing() == "removed"
    lab.until(lambda: REFUSED in lab.agent.tail(), "the running link is refused")
    assert "AuthenticationError" in lab.link_log()
    lab.until(lambda: lab.spooled() == 1, "the attempt ends and its result is kept")

    with lab.as_admin() as admin:
        assert not [row for row in admin.client_list() if row["user"].startswith("farm:agent.rack-1")]
        before = admin.info("stats")["total_connections_received"]
        refusals = lab.link_log().count("AuthenticationError")
        time.sleep(COUNTED_S)
        came = admin.info("stats")["total_connections_received"] - before
        again = lab.link_log().count("AuthenticationError") - refusals
    assert (again <= 3, came <= 20) == (True, True), f"{again} links, {came} connections in {COUNTED_S} s"
    assert lab.agent.running
    assert lab.agent.tail(20_000).count(REFUSED) == 1, "said once, however often it is tried"
    assert "farm lab agents enrol rack-1" in lab.agent.tail(20_000)

    lab.farm("lab", "agents", "enrol", "rack-1", "--write", str(lab.state))
    lab.until(lab.is_active, "the agent is back with new secrets")
    assert lab.standing() == "active"
    lab.until(lambda: lab.spooled() == 0, "what it kept is taken")
    submitting.end()
    # By a ping of the link's own, which may come back behind the farm's receipt.
    lab.until(lambda: "lets agent rack-1 in again" in lab.agent.tail(20_000), "the agent says so")
    lab.measure()


@pytest.mark.conformance
def test_a_rotation_under_way_disturbs_nothing(lab: TrustedLab) -> None:
    before = lab.credentials()
    lab.farm("lab", "agents", "rotate", "rack-1", "--overlap", "60", "--write", str(lab.state))
    assert lab.credentials()["token"] != before["token"]
    with lab.as_agent() as new:
        new.ping()
    with lab.as_user(before["broker_url"]) as old:
        old.ping()
    lab.until(lambda: "enrolled again" in lab.link_log(), "the link takes the new secrets")
    lab.measure()


def _bytes(name: str | bytes) -> bytes:
    return name if isinstance(name, bytes) else name.encode()


def renewals(admin: redis.Redis) -> int:
    """Count how many times a link has renewed the claim of its name, as it does after each ping of itself."""
    found = admin.info("commandstats").get("cmdstat_get")
    return 0 if found is None else int(found["calls"])
