"""The services that other tests stand on do what those tests believe of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import redis

from tests import needs
from tests.needs import REPOSITORY
from tests.services.postgres import PostgresCluster
from tests.services.processes import Server
from tests.services.redis import RedisServer


def test_the_machines_redis_is_found_whatever_environments_of_python_come_first_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "environment" / "bin"
    own.mkdir(parents=True)
    (own.parent / "pyvenv.cfg").touch()
    (own / "redis-server").write_text("#!/bin/sh\n")
    (own / "redis-server").chmod(0o755)
    (tmp_path / "link").symlink_to(own)
    before = needs.redis_server()
    monkeypatch.chdir(own.parent)
    for first in (own, tmp_path / "link", "bin"):
        monkeypatch.setenv("PATH", f"{first}:{os.environ['PATH']}")
        assert needs.redis_server() == before


def test_redis_keeps_its_data_through_a_crash_and_loses_it_with_its_files(redis_server):
    with redis_server.client() as client:
        client.config_set("appendfsync", "always")
        client.set("kept", 1)
    redis_server.restart()
    with redis_server.client() as client:
        assert client.get("kept") == b"1"
    redis_server.lose_everything()
    with redis_server.client() as client:
        assert client.get("kept") is None


def test_a_paused_redis_does_not_answer_and_comes_back(redis_server):
    redis_server.pause()
    with redis_server.client(timeout_s=0.2) as client:
        with pytest.raises(redis.exceptions.TimeoutError):
            client.ping()
        redis_server.resume()
    with redis_server.client() as client:
        assert client.ping()


def test_redis_refuses_whom_its_acl_does_not_know(short_folder):
    needs.redis_server()
    rules = ("user default off", "user farm on >secret ~farm.* +@all")
    server = RedisServer(short_folder / "acl", acl=rules).start()
    try:
        with server.client() as client, pytest.raises(redis.AuthenticationError):
            client.get("farm.x")
        with server.client("farm", "secret") as client:
            assert client.get("farm.x") is None
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.get("other")
            assert client.acl_log()[0]["reason"] == "key"
    finally:
        server.kill()


def test_postgresql_keeps_what_was_committed_through_a_crash(postgres: PostgresCluster):
    name = postgres.new_database()
    with postgres.connect(name) as connection:
        connection.execute("CREATE TABLE kept (x int)")
        connection.execute("INSERT INTO kept VALUES (7)")
        postgres.restart("immediate")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with postgres.connect(name) as connection:
        assert connection.execute("SELECT x FROM kept").fetchall() == [(7,)]
    postgres.drop_database(name)


def _reaches(one, other) -> bool:
    """Whether one answer comes. Of a knock on a busy machine it may come too late."""
    ping = one.command(["ip", "neighbour", "flush", "all"])
    subprocess.run(ping, check=True, capture_output=True)
    knock = f"exec 3<>/dev/tcp/{other.address}/9"
    done = subprocess.run(
        one.command(["timeout", "0.7", "bash", "-c", knock]), capture_output=True, text=True, check=False
    )
    return "refused" in done.stderr


def _reaches_port(one, other, port: int) -> bool:
    knock = f"exec 3<>/dev/tcp/{other.address}/{port}"
    return (
        subprocess.run(one.command(["bash", "-c", knock]), capture_output=True, check=False).returncode == 0
    )


def test_machines_reach_each_other_until_a_cable_is_pulled(network):
    one, other = network.add("one"), network.add("other")
    assert any(_reaches(one, other) for _ in range(20))
    other.pull_cable()
    assert not _reaches(one, other)
    other.plug_cable()
    one.drop_incoming()
    assert not _reaches(one, other)
    network.heal()
    assert any(_reaches(one, other) for _ in range(20))


def test_half_of_the_packets_get_lost_where_that_is_asked(network):
    one, other = network.add("one"), network.add("other")
    one.drop_outgoing(percent=50, target=other.address)
    assert "numgen random mod 100 < 50" in one.run("nft", "list", "ruleset")
    one.drop_nothing()
    assert one.run("nft", "list", "ruleset") == ""


def test_a_connection_is_diverted_over_a_proxy_that_turns_a_bit_over(network, tmp_path):
    one, server, middle = (network.add(name) for name in ("one", "server", "middle"))
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(b"a" * 1000)
    web = [sys.executable, "-m", "http.server", "80", "--directory", str(tmp_path / "served")]
    proxy = [sys.executable, str(REPOSITORY / "tests/services/proxy.py"), "--listen", f"{middle.address}:80"]
    far = Server(server.command(web), tmp_path / "web.log")
    bad = Server(
        middle.command([*proxy, "--target", f"{server.address}:80", "--flip-at", "600"]), tmp_path / "bad"
    )
    far.until(lambda: _reaches_port(one, server, 80), "the web server")
    bad.until(lambda: _reaches_port(one, middle, 80), "the proxy")
    one.divert(server.address, 80, middle.address)
    fetch = f"import urllib.request as u; print(u.urlopen('http://{server.address}/file').read().decode())"
    first, second = (one.run(sys.executable, "-c", fetch).strip() for _ in range(2))
    assert (first.count("a"), first.count("q")) == (999, 1), "one letter of the first answer is another"
    assert second == "a" * 1000
    far.kill()
    bad.kill()


def test_nothing_is_left_of_a_network_that_was_closed(network):
    node = network.add("one")
    network.close()
    assert not node.holder.running
    assert not network.hub.running


def test_a_server_that_ends_early_shows_what_it_said(tmp_path):
    server = Server(["sh", "-c", "echo no such luck; exit 3"], tmp_path / "log")
    with pytest.raises(AssertionError, match="no such luck"):
        server.until(lambda: False, "a server")
