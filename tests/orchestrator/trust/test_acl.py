"""The credentials of an enrolled agent at a real broker, in anybody's hands."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from agent.wire.service_urls import INGEST_SUFFIX
from orchestrator.db.devices.credentials import Known
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.trust import acl
from tests import needs
from tests.services.redis import RedisServer

PASSWORD = "password-of-an-enrolled-agent"
ENDLESS = "while true do end"
WITHOUT_RIGHTS = {"auth", "hello", "quit", "reset"}
"""Commands that Redis lets every connection use: they open and end it."""
OWN = {"brpop", "client", "discard", "exec", "get", "llen", "lpush", "multi", "ping", "select", "set"}
INGEST = {"client", "lpush", "ping", "select"}
SUBCOMMANDS = (
    "SCRIPT LOAD x", "SCRIPT FLUSH", "SCRIPT KILL", "SCRIPT EXISTS x", "CONFIG GET *", "CONFIG REWRITE",
    "CONFIG SET maxmemory 1", "CONFIG RESETSTAT", "CLIENT LIST", "CLIENT KILL TYPE normal",
    "CLIENT PAUSE 60000", "CLIENT REPLY OFF", "CLIENT NO-EVICT on", "CLIENT TRACKING on", "CLIENT UNBLOCK 1",
    "ACL LIST", "ACL WHOAMI", "ACL SETUSER x on", "DEBUG SLEEP 30", "MODULE LOAD x", "MEMORY PURGE",
    "OBJECT FREQ x", "PUBSUB CHANNELS", "LATENCY RESET", "SLOWLOG RESET", "CLUSTER RESET",
    "XGROUP CREATE x y z",
)  # fmt: skip
REFUSALS = ("no permissions", "command not allowed", "unknown subcommand")
"""How Redis refuses: by the access list, by its own protection of DEBUG and MODULE, and, before both, a word
that is no subcommand of a command that has some; `SUBCOMMANDS` tries those that are."""


KNOWN = ("rack-1", "rack-2")


@pytest.fixture(scope="module", params=["installed", "6.2"])
def broker(short_folder: Path, request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    binary = needs.redis_server() if request.param == "installed" else needs.oldest_redis_server()
    server = RedisServer(short_folder / f"acl-{request.param}", binary=binary).start()
    allow(server, *KNOWN)
    yield server
    server.kill()


def allow(server: RedisServer, *agents: str, prefix: str = "farm:") -> None:
    password = hashlib.sha256(PASSWORD.encode()).hexdigest()
    known = [Known(f"key of {agent}", agent, "", password, 0.0) for agent in agents]
    assert acl.apply(server.socket_url, None, prefix, acl.users(known, prefix))


def as_agent(server: RedisServer, suffix: str = "", timeout_s: float = 10.0) -> redis.Redis:
    return server.client("farm:agent.rack-1" + suffix, PASSWORD, timeout_s)


def connections(admin: redis.Redis) -> list[str]:
    """Ids of the agents' open connections."""
    return [found["id"] for found in admin.client_list() if found["user"].startswith("farm:agent.")]


def is_allowed(client: redis.Redis, *command: str) -> bool:
    """Whether the access lists let a command through; what it then answers does not matter."""
    try:
        client.execute_command(*command)
    except redis.RedisError as error:
        return not any(words in str(error).lower() for words in REFUSALS)
    return True


@pytest.mark.parametrize(
    ("suffix", "key", "expected"),
    [("", "farm:agent.rack-1.jobs", OWN), (INGEST_SUFFIX, "farm:agent.rack-1.ingest", INGEST)],
    ids=["own", "ingest"],
)
def test_of_all_commands_of_redis_an_agent_has_these(
    broker: RedisServer, suffix: str, key: str, expected: set[str]
) -> None:
    with broker.client() as admin:
        arguments = {name: abs(entry["arity"]) - 1 for name, entry in admin.command().items()}
    assert len(arguments) > 200
    given = set()
    for name in arguments.keys() - WITHOUT_RIGHTS:
        words = ["setname", "x"] if name == "client" else [key] * arguments[name]
        with as_agent(broker, suffix) as client:
            given |= {name} if is_allowed(client, name, *words) else set()
    assert given == expected


@pytest.mark.parametrize("suffix", ["", INGEST_SUFFIX])
def test_no_subcommand_that_administers_is_an_agents(broker: RedisServer, suffix: str) -> None:
    with as_agent(broker, suffix) as client:
        assert [text for text in SUBCOMMANDS if is_allowed(client, *text.split())] == []


def test_an_agent_runs_no_script_and_the_broker_answers_the_others(broker: RedisServer) -> None:
    with broker.client() as admin:
        sha = admin.script_load(ENDLESS)
    refused = 0
    with as_agent(broker, timeout_s=10.0) as client:
        for command in (("SCRIPT", "LOAD", ENDLESS), ("EVALSHA", sha, "0"), ("EVAL", ENDLESS, "0")):
            try:
                client.execute_command(*command)
            except redis.exceptions.NoPermissionError:
                refused += 1
            except redis.RedisError:
                break
    try:
        with broker.client("farm:agent.rack-2" + INGEST_SUFFIX, PASSWORD) as other:
            assert other.lpush("farm:agent.rack-2.ingest", "x")
    finally:
        with broker.client() as admin, contextlib.suppress(redis.RedisError):
            admin.script_kill()
    assert refused == 3


def test_a_revoked_agent_leaves_no_key_that_holds_memory(broker: RedisServer) -> None:
    with broker.client() as admin, as_agent(broker) as client:
        admin.flushall()
        client.lpush("farm:agent.rack-1.jobs", "x" * 1000)
        client.set("farm:agent.rack-1.holder", "x" * 1000)
    allow(broker, "rack-2")
    with broker.client() as admin:
        assert admin.keys("farm:agent.rack-1.*") == []
    with as_agent(broker) as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    allow(broker, *KNOWN)


def test_two_users_of_an_agent_have_all_its_passwords_and_keys_that_are_no_patterns() -> None:
    passwords = [Known(key, "rack-1", "", sha256, 0.0) for key, sha256 in (("k1", "aa"), ("k2", "bb"))]
    found = acl.users([*passwords, Known("k3", "rack-2", "", "cc", 0.0)], "f[*?]:")
    rights = {name: [word for word in words if word[0] in "#~"] for name, words in found.items()}
    prefix = r"~f\[\*\?\]:agent."
    assert rights == {
        "f[*?]:agent.rack-1": ["#aa", "#bb", f"{prefix}rack-1.jobs", f"{prefix}rack-1.holder"],
        "f[*?]:agent.rack-1.ingest": ["#aa", "#bb", f"{prefix}rack-1.ingest"],
        "f[*?]:agent.rack-2": ["#cc", f"{prefix}rack-2.jobs", f"{prefix}rack-2.holder"],
        "f[*?]:agent.rack-2.ingest": ["#cc", f"{prefix}rack-2.ingest"],
    }


def test_an_update_of_the_lists_disturbs_neither_known_agents_nor_users_that_are_none(
    broker: RedisServer,
) -> None:
    with broker.client() as admin, as_agent(broker) as client:
        admin.flushall()
        admin.acl_setuser("nightly", enabled=True)
        client.lpush("farm:agent.rack-1.jobs", "x")
        connected = connections(admin)
        allow(broker, *KNOWN)
        assert connections(admin) == connected != []
        admin.acl_deluser("farm:agent.rack-1" + INGEST_SUFFIX)
        allow(broker, *KNOWN)
        assert admin.llen("farm:agent.rack-1.jobs") == 1
        assert admin.acl_deluser("nightly") == 1


def test_what_waited_for_an_agent_that_was_shut_out_is_void_once_it_is_known_again(
    broker: RedisServer,
) -> None:
    allow(broker, "rack-2")
    with broker.client() as admin:
        admin.lpush("farm:agent.rack-1.jobs", "x")
        allow(broker, *KNOWN)
        assert admin.keys("farm:agent.rack-1.*") == []


def test_a_farm_that_may_not_manage_users_is_told_so_and_changes_none(broker: RedisServer) -> None:
    with broker.client() as admin:
        admin.execute_command("ACL SETUSER", "farm", "on", ">secret", "~*", "+@all", "-acl")
        url = f"redis+socket://farm:secret@{broker.socket}"
        assert not acl.apply(url, None, "farm:", acl.users([], "farm:"))
        assert admin.acl_getuser("farm:agent.rack-1")
        admin.acl_deluser("farm")


def test_a_broker_that_does_not_answer_or_is_too_old_is_named(
    broker: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnreachableError, match=r"not up to date: .*No such file"):
        acl.apply("redis+socket:///nowhere/redis.sock", None, "farm:", {})
    # No server that is too old can be had; what is asked for is raised instead.
    monkeypatch.setattr(acl, "_LEAST_REDIS", (99, 0))
    with pytest.raises(UnreachableError, match="older than Redis"):
        acl.apply(broker.socket_url, None, "farm:", {})


@pytest.mark.parametrize(("version", "fits"), [((7, 1), False), ((7, 2), True), ((8, 0), True)])
def test_a_subcommand_is_allowed_where_redis_knows_it(version: tuple[int, int], fits: bool) -> None:
    assert acl._fitting(["+ping", "+client|setinfo"], version) == ["+ping"] + ["+client|setinfo"] * fits


def test_the_authority_of_the_broker_is_given_as_text(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("certificate")
    assert (acl.authority_text(tmp_path / "ca.pem"), acl.authority_text(None)) == ("certificate", None)
    with pytest.raises(UsageError, match=r"FARM_BROKER_CA: .*nothing\.pem cannot be read: No such file"):
        acl.authority_text(tmp_path / "nothing.pem")


def test_what_an_agents_user_had_before_ends_when_its_rights_are_set(broker: RedisServer) -> None:
    with broker.client() as admin:
        admin.execute_command("ACL SETUSER", "farm:agent.rack-1", ">former", "~*", "+del")
    allow(broker, *KNOWN)
    with as_agent(broker) as client:
        assert not is_allowed(client, "DEL", "farm:agent.rack-1.jobs")
        assert not is_allowed(client, "GET", "farm:agent.rack-2.holder")
    with (
        broker.client("farm:agent.rack-1", "former") as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()


def test_a_prefix_of_keys_that_looks_like_a_pattern_is_taken_literally(broker: RedisServer) -> None:
    prefix = "f*r?[m]\\:"
    allow(broker, "rack-1", prefix=prefix)
    with broker.client(f"{prefix}agent.rack-1", PASSWORD) as client:
        assert is_allowed(client, "GET", f"{prefix}agent.rack-1.holder")
        for other in ("f-r?[m]\\:", "f*r-[m]\\:", "f*r?m\\:", "f*r?m:", "f*r?[m]:", "fr-m:"):
            assert not is_allowed(client, "GET", f"{other}agent.rack-1.holder"), other
    assert acl.apply(broker.socket_url, None, prefix, {})


def test_an_agent_uses_no_channel_even_where_it_is_given_the_command(broker: RedisServer) -> None:
    with broker.client() as admin:
        admin.execute_command("ACL SETUSER", "farm:agent.rack-1", "+publish")
    with as_agent(broker) as client:
        assert not is_allowed(client, "PUBLISH", "channel", "message")
    allow(broker, *KNOWN)
