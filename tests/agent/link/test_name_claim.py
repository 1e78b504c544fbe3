"""One machine for one name, as Redis keeps it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.link.broker import Broker
from agent.link.name_claim import Holder, TakenError


def holder(redis_server, state: Path, hold_s: float = 30.0) -> Holder:
    return Holder.of(Broker("rack-3", redis_server.socket_url), state, hold_s)


def test_the_same_agent_holds_its_name_again_and_again(redis_server, tmp_path):
    for _ in range(2):
        holder(redis_server, tmp_path).hold()
    with redis_server.client() as client:
        assert client.keys() == [b"farm:agent.rack-3.holder"]
        assert 0 < client.pttl("farm:agent.rack-3.holder") <= 30_000


def test_a_copy_is_refused_with_the_host_that_has_the_name(redis_server, tmp_path):
    first, copy = holder(redis_server, tmp_path / "one"), holder(redis_server, tmp_path / "two")
    first.hold()
    with pytest.raises(TakenError, match=rf"rack-3 is served from '{first.own.split()[1]}'"):
        copy.hold()
    first.hold()


def test_a_name_that_nobody_holds_any_more_is_free(redis_server, tmp_path):
    holder(redis_server, tmp_path / "one", hold_s=0.05).hold()
    time.sleep(0.2)
    holder(redis_server, tmp_path / "two").hold()


def test_what_redis_forgot_is_taken_again(redis_server, tmp_path):
    first = holder(redis_server, tmp_path / "one")
    first.hold()
    with redis_server.client() as client:
        client.flushall()
    first.hold()
    with pytest.raises(TakenError):
        holder(redis_server, tmp_path / "two").hold()
