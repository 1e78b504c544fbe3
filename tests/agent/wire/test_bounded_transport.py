"""A connection that is lost leaves nothing behind, also where closing it fails half-way."""

from __future__ import annotations

import gc

import pytest
from kombu.transport import redis as kombu_redis
from redis.exceptions import ResponseError

from orchestrator.dispatch.broker import FarmBroker

TRIES = 3


def connections(server) -> int:
    with server.client() as client:
        return len(client.client_list())


def refused(*_arguments, **_options):
    raise ResponseError("NOREPLICAS Not enough good replicas to write.")


def test_a_broker_that_refuses_writes_costs_no_connection_a_try(redis_server, monkeypatch):
    before = connections(redis_server)
    for _ in range(TRIES):
        broker = FarmBroker(redis_server.socket_url, "p", lambda _message: None)
        assert not broker.drain(0), "the question for messages is sent, and has no answer yet"
        with monkeypatch.context() as patch:
            patch.setattr(kombu_redis.Channel, "_brpop_read", refused)
            with pytest.raises(ResponseError):
                broker.close()
        del broker
    gc.collect()
    assert connections(redis_server) <= before
