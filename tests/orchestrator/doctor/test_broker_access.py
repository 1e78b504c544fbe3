"""`farm doctor` on the admission to a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.config.lab import LabConfig
from orchestrator.doctor.lab import access_checks
from tests.services.ports import free_port
from tests.services.redis import RedisServer

PASSWORD = "p" * 30


@pytest.fixture
def broker(short_folder: Path, tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    started: list[RedisServer] = []

    def start(*settings: str, address: str | None = "127.0.0.1") -> RedisServer:
        port = free_port()
        folder = short_folder / f"access-{tmp_path.name[-12:]}"
        server = RedisServer(folder, address=address, port=port, settings=settings).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()


def look(url: str, **given: str) -> dict[str, tuple[bool, str, str]]:
    found = access_checks(LabConfig(broker_url=url, **given))
    return {check.name: (check.ok, check.found, check.fix) for check in found}


def with_password(server: RedisServer) -> str:
    return server.url.replace("://", f"://:{PASSWORD}@")


def test_a_default_user_without_a_password_is_named_with_the_way_to_give_it_one(broker) -> None:
    server = broker()
    ok, found, fix = look(server.url)["broker login"]
    assert (ok, found) == (False, "its default user has no password: every client that reaches it is let in")
    assert "CONFIG SET requirepass PASSWORD" in fix
    with server.client() as client:
        client.config_set("requirepass", PASSWORD)
    checks = look(with_password(server))
    assert [check[0] for check in checks.values()] == [True, True], checks


def test_whoever_reaches_a_private_socket_needs_no_password_there(broker) -> None:
    server = broker(address=None)
    assert [check[0] for check in look(server.socket_url).values()] == [True, True]


def test_an_open_port_beside_the_farms_own_socket_is_found(broker) -> None:
    server = broker()
    assert look(server.socket_url)["broker login"][0] is False


def test_a_port_without_tls_that_other_machines_reach_is_named(broker) -> None:
    server = broker(f"requirepass {PASSWORD}", address="0.0.0.0")
    ok, found, fix = look(with_password(server).replace("0.0.0.0", "127.0.0.1"))["broker network"]
    assert (ok, found) == (False, f"it listens without TLS on 0.0.0.0, port {server.port}")
    assert "tls-port" in fix


def test_an_agents_url_that_leaves_this_machine_without_tls_is_named(broker) -> None:
    server = broker(f"requirepass {PASSWORD}")
    found = look(with_password(server), agent_broker_url="redis://lab.example:6379/0")["broker network"]
    assert found[:2] == (False, "FARM_AGENT_BROKER_URL leaves this machine without TLS")


def test_nothing_is_said_of_a_broker_that_does_not_answer() -> None:
    assert look(f"redis://127.0.0.1:{free_port()}/0") == {}


def test_a_user_that_may_not_ask_for_settings_still_learns_who_gets_in(broker) -> None:
    server = broker()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "farm", "on", f">{PASSWORD}", "~*", "+@all", "-config")
    checks = look(server.url.replace("://", f"://farm:{PASSWORD}@"))
    assert [checks[name][0] for name in ("broker login", "broker network")] == [False, True]
