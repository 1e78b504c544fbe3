"""Attacks on the broker by whoever has read an enrolled agent's credentials."""

from __future__ import annotations

import base64
import re
import secrets
import zlib

import pytest
import redis

from agent.wire.service_urls import for_ingest
from tests.attack.attacker import all_is_handled, introduce, queued, sender, witness_is_heard, wrapped
from tests.attack.lab import PATIENCE_S, ROGUE, VICTIM

ENDLESS = "while true do end"
COMMANDS = {
    "administration": [
        ("ACL", "LIST"),
        ("ACL", "SETUSER", "farm:agent.rogue", "allcommands", "allkeys"),
        ("ACL", "WHOAMI"),
        ("CONFIG", "GET", "*"),
        ("CONFIG", "SET", "dir", "/tmp"),
        ("CONFIG", "REWRITE"),
        ("SHUTDOWN", "NOSAVE"),
        ("DEBUG", "SLEEP", "60"),
        ("DEBUG", "SEGFAULT"),
        ("SAVE",),
        ("BGREWRITEAOF",),
        ("REPLICAOF", "127.0.0.1", "1"),
        ("FAILOVER",),
        ("MODULE", "LOAD", "/tmp/evil.so"),
        ("MONITOR",),
        ("LATENCY", "RESET"),
        ("SLOWLOG", "GET"),
        ("MEMORY", "DOCTOR"),
        ("COMMAND", "COUNT"),
        ("OBJECT", "FREQ", "farm:ingest"),
    ],
    "other clients": [
        ("CLIENT", "LIST"),
        ("CLIENT", "KILL", "TYPE", "normal"),
        ("CLIENT", "PAUSE", "60000"),
        ("CLIENT", "NO-EVICT", "on"),
        ("CLIENT", "TRACKING", "on"),
    ],
    "whole databases": [
        ("FLUSHALL",),
        ("FLUSHDB",),
        ("SWAPDB", "0", "1"),
        ("KEYS", "*"),
        ("SCAN", "0"),
        ("RANDOMKEY",),
        ("DBSIZE",),
        ("SUBSCRIBE", "x"),
        ("PSUBSCRIBE", "*"),
        ("PUBLISH", "x", "y"),
        ("PUBSUB", "CHANNELS"),
    ],
    "scripts": [
        ("EVAL", ENDLESS, "0"),
        ("EVAL_RO", ENDLESS, "0"),
        ("SCRIPT", "LOAD", ENDLESS),
        ("SCRIPT", "FLUSH"),
        ("SCRIPT", "KILL"),
        ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('f', function() while true do end end)"),
        ("FUNCTION", "FLUSH"),
        ("FCALL", "f", "0"),
    ],
    "keys of the farm": [
        ("LPUSH", "farm:ingest", "x"),
        ("RPOP", "farm:ingest"),
        ("BRPOP", "farm:ingest", "1"),
        ("LRANGE", "farm:ingest", "0", "-1"),
        ("LLEN", "farm:ingest"),
        ("LTRIM", "farm:ingest", "1", "0"),
        ("DEL", "farm:ingest"),
        ("UNLINK", "farm:ingest"),
        ("RENAME", "farm:ingest", "farm:agent.rogue.jobs"),
        ("EXPIRE", "farm:ingest", "1"),
        ("HGETALL", "farm:ingest.unacked"),
        ("HGET", "farm:ingest.unacked", "x"),
        ("DEL", "farm:ingest.unacked"),
        ("ZREM", "farm:ingest.unacked_index", "x"),
        ("LPUSH", "ingest", "x"),
        ("LPUSH", "other:ingest", "x"),
    ],
    "keys of another agent": [
        ("LPUSH", "farm:agent.rack-1.jobs", "x"),
        ("LPUSH", "farm:agent.rack-1.ingest", "x"),
        ("RPOP", "farm:agent.rack-1.ingest"),
        ("DEL", "farm:agent.rack-1.ingest"),
        ("LPUSH", "farm:ingest.ping", "x"),
        ("RPOP", "farm:agent.rack-1.jobs"),
        ("BRPOP", "farm:agent.rack-1.jobs", "1"),
        ("DEL", "farm:agent.rack-1.jobs"),
        ("HGET", "farm:agent.rack-1.unacked", "x"),
        ("SET", "farm:agent.rack-1.unacked_mutex", "x"),
        ("GET", "farm:agent.rack-1.holder"),
        ("SET", "farm:agent.rack-1.holder", "rogue"),
        ("COPY", "farm:agent.rack-1.jobs", "farm:agent.rogue.jobs"),
        ("LMOVE", "farm:agent.rack-1.jobs", "farm:agent.rogue.jobs", "LEFT", "LEFT"),
        ("MIGRATE", "127.0.0.1", "1", "farm:agent.rack-1.jobs", "0", "1"),
        ("LPUSH", "farm:agent.rogue*", "x"),
    ],
}
"""Command family -> what an agent may not do at the broker, with either of its users."""
MALFORMED = {
    "no JSON": b"\xff\xfe\x00 no JSON",
    "nothing": b"",
    "a tag alone": b'{"body": "", "headers": {}, "properties": {"delivery_tag": "x"}}',
    "a number": b"17",
    "null": b"null",
    "a list": b"[]",
    "empty fields": b'{"body": "", "headers": {}, "properties": {}}',
    "no properties": b'{"body": "e30=", "headers": {}}',
    "deep": b"[" * 200_000,
    "deep objects": b'{"body":' * 100_000,
    "no base64": b'{"body": "%%%%", "headers": {}, "properties": {"body_encoding": "base64"}}',
    "another task": queued("x", task="os.system"),
    "no call": wrapped(b'{"x": 1}'),
    "deep body": wrapped(b"[" * 200_000),
    "no text": queued({"x": [1, 2]}),
    "no envelope": queued("1.2.3.4"),
    "NUL": queued("1.\0.\0.\0"),
    "another delivery tag": queued("x", delivery_tag=["x"]),
    "unhashable": queued("x", delivery_tag={"a": 1}),
    "no delivery info": queued("x", delivery_info=None),
    "another exchange": queued("x", delivery_info={"exchange": "e", "routing_key": "../../x"}),
    "text for a number": queued("x", priority="very", delivery_mode="x"),
    "pickle": queued("x").replace(b"application/json", b"application/x-python-serialize"),
    "yaml": queued("x").replace(b"application/json", b"application/x-yaml"),
    "compressed": queued("x").replace(b'"headers": {', b'"headers": {"compression": "application/x-gzip", '),
    "unknown compression": queued("x").replace(b'"headers": {', b'"headers": {"compression": "x", '),
    "another charset": queued("x").replace(b'"utf-8"', b'"rot13"'),
    "bad padding": b'{"body": "abc", "headers": {}, "properties": {"body_encoding": "base64"}}',
    "headers of text": queued("x").replace(b'"headers": {', b'"headers": "x", "h": {'),
}


@pytest.fixture(scope="module")
def users(lab):
    """Return clients of the attacker's two users at the broker."""
    found = lab.credentials_of(ROGUE).broker_url
    clients = [lab.as_user(found), lab.as_user(for_ingest(found))]
    yield clients
    for client in clients:
        client.close()


@pytest.mark.parametrize("family", COMMANDS)
def test_commands_that_an_agent_does_not_need(lab, users, family):
    """Redis refuses each of them to both users of an agent."""
    taken = [command for user in users for command in COMMANDS[family] if not is_refused(user, command)]
    assert taken == []


def is_refused(client: redis.Redis, command: tuple[str, ...]) -> bool:
    try:
        client.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        return True
    except redis.ResponseError as error:
        # Refused to everybody: a command that this Redis has not got, or that its configuration forbids.
        return any(words in str(error) for words in ("unknown command", "unknown subcommand", "not allowed"))
    return False


def test_an_endless_script_of_the_agents_own(lab, users):
    """An agent can load no script, so it can run none but the farm's, and Redis goes on answering."""
    for user in users:
        for load in (("SCRIPT", "LOAD", ENDLESS), ("EVAL", ENDLESS, "0")):
            assert is_refused(user, load)
    with lab.as_admin() as admin:
        assert admin.ping()


def test_another_password_or_user(lab):
    """A guess is refused, and neither user nor password of another agent is a hint to one's own."""
    found = lab.credentials_of(ROGUE).broker_url
    wrong = [found.replace("rogue", "rack-1", 1), found.replace("rogue", "nobody", 1)]
    wrong.append(found.replace("farm%3Aagent.rogue", "default", 1))
    wrong.append(found.replace("farm%3Aagent.rogue:", "farm%3Aagent.rogue:x", 1))
    for url in wrong:
        assert url != found
        with pytest.raises(redis.AuthenticationError), lab.as_user(url) as client:
            client.ping()


def sent_and_handled(lab, *messages: bytes) -> None:
    """Send messages of no form in the attacker's list; good ones behind them tell when they are handled."""
    with sender(lab, ROGUE) as rogue:
        rogue.put(*messages)
        introduce(lab, rogue)
        all_is_handled(lab, rogue)


def test_messages_of_no_form(lab):
    """Each is dropped; good messages behind them in the list, and those of others, are applied."""
    sent_and_handled(lab, *MALFORMED.values())
    witness_is_heard(lab)
    with lab.as_admin() as admin:
        assert not admin.llen(f"farm:agent.{ROGUE}.ingest"), "all are read"
        lab.within(PATIENCE_S, lambda: not admin.hlen("farm:ingest.unacked"), "nothing stays unacknowledged")
    assert lab.serve.running


@pytest.mark.attack
@pytest.mark.parametrize("form", MALFORMED)
def test_one_message_of_no_form(lab, form):
    """It alone is dropped: the messages behind it are applied."""
    sent_and_handled(lab, MALFORMED[form])


@pytest.mark.attack
def test_twenty_thousand_messages_of_garbage(lab):
    """A good message behind them is applied in time, and the log grows by less than 100 KB."""
    before, garbage = lab.serve.log.stat().st_size, [queued(secrets.token_hex(32)) for _ in range(20_000)]
    with sender(lab, ROGUE) as rogue:
        rogue.put(*garbage)
        witness_is_heard(lab)
        introduce(lab, rogue)
        all_is_handled(lab, rogue)
    assert lab.serve.log.stat().st_size - before < 100_000, lab.serve.tail()
    lab.measure(f"{VICTIM}.host-cpu")


def bomb(size: int) -> bytes:
    """Build a message whose body claims to be compressed, and becomes a thousand times as large."""
    body = base64.b64encode(zlib.compress(bytes(size), 9))
    plain = queued("x").replace(b'"headers": {', b'"headers": {"compression": "application/x-gzip", ')
    return re.sub(rb'"body": "[^"]*"', b'"body": "%s"' % body, plain)


@pytest.mark.slow
def test_a_decompression_bomb(lab):
    """A compressed message is refused unread: the scheduler's peak does not grow by its content."""
    before = lab.peak_bytes(lab.serve)
    sent_and_handled(lab, bomb(400_000_000))
    assert lab.peak_bytes(lab.serve) - before < 100_000_000


@pytest.mark.attack
@pytest.mark.parametrize("form", ["raw", "queued", "of one word"])
def test_one_message_of_100_megabytes(lab, form):
    """It is dropped before it is decoded: the scheduler grows by less than three times its size."""
    size = 100_000_000
    made = {
        "raw": b"x" * size,
        "queued": queued("x" * (size * 3 // 4)),
        "of one word": b'{"body": "' + b"e" * size,
    }
    before = lab.peak_bytes(lab.serve)
    sent_and_handled(lab, made[form])
    assert lab.peak_bytes(lab.serve) - before < 3 * size
