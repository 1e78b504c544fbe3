"""One machine for one name, as Redis keeps it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.link.broker import AgentBroker, NameClaim, NameTakenError


def claim(redis_server, state: Path, lifetime_s: float = 30.0) -> NameClaim:
    return NameClaim.of(AgentBroker("rack-3", redis_server.socket_url), state, lifetime_s)


def test_the_same_agent_holds_its_name_again_and_again(redis_server, tmp_path):
    for _ in range(2):
        claim(redis_server, tmp_path).renew()
    with redis_server.client() as client:
        assert client.keys() == [b"farm:agent.rack-3.holder"]
        assert 0 < client.pttl("farm:agent.rack-3.holder") <= 30_000


def test_a_copy_is_refused_with_the_host_that_has_the_name(redis_server, tmp_path):
    first, copy = claim(redis_server, tmp_path / "one"), claim(redis_server, tmp_path / "two")
    first.renew()
    with pytest.raises(NameTakenError, match=rf"rack-3 is served from '{first.owner.split()[1]}'"):
        copy.renew()
    first.renew()


def test_a_name_that_nobody_holds_any_more_is_free(redis_server, tmp_path):
    claim(redis_server, tmp_path / "one", lifetime_s=0.05).renew()
    time.sleep(0.2)
    claim(redis_server, tmp_path / "two").renew()


def test_what_redis_forgot_is_taken_again(redis_server, tmp_path):
    first = claim(redis_server, tmp_path / "one")
    first.renew()
    with redis_server.client() as client:
        client.flushall()
    first.renew()
    with pytest.raises(NameTakenError):
        claim(redis_server, tmp_path / "two").renew()
