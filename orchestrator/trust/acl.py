"""What each agent may do at the broker: Redis' access lists, made from the names of its keys.

An agent may read and write the keys under its own name, and add to the ingest list; it sees neither what
others say nor what is said to them. These are two users with one password: Redis 6 cannot allow one command
on one key of a user, and Redis 7 needs no more than Redis 6 can say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from agent.wire.credentials import INGEST_SUFFIX
from agent.wire.queue import AGENT_KEYS, INGEST_QUEUE, agent_key, agent_queue
from orchestrator.db.read.credentials import Known
from orchestrator.dispatch.broker import redis_client
from orchestrator.errors import UnreachableError, UsageError

COMMANDS: Final = (
    "brpop", "rpop", "rpush", "lpush", "llen", "del",
    "hset", "hget", "hdel", "zadd", "zrem", "zrange", "zrevrangebyscore", "zcard",
    "multi", "exec", "watch", "unwatch", "discard",
    "set", "get", "evalsha", "script|load", "expire", "pexpire",
    "ping", "select", "client|setinfo", "client|setname", "info",
)  # fmt: skip
"""What Kombu's transport uses of a list with acknowledgements, and its health checks."""
INGEST_COMMANDS: Final = ("lpush", "ping", "select", "client|setinfo", "client|setname")
"""Of the user that adds to the ingest list: it has no command that reads."""

_LEAST_REDIS = (6, 2)

log = logging.getLogger(__name__)


def user(agent_id: str, key_prefix: str) -> str:
    """The name that an agent logs in with."""
    return f"{key_prefix}agent.{agent_id}"


def users(known: Iterable[Known], key_prefix: str) -> dict[str, list[str]]:
    """User -> the words of `ACL SETUSER` after its name. Every valid password counts: rotations overlap."""
    hashes: dict[str, list[str]] = {}
    for entry in known:
        hashes.setdefault(entry.agent_id, []).append(f"#{entry.password_sha256}")
    prefix = literal(key_prefix)
    found: dict[str, list[str]] = {}
    for agent_id, passwords in hashes.items():
        name = user(agent_id, key_prefix)
        found[name] = _words(passwords, COMMANDS, [prefix + agent_key(agent_id, key) for key in AGENT_KEYS])
        found[name + INGEST_SUFFIX] = _words(passwords, INGEST_COMMANDS, [prefix + INGEST_QUEUE])
    return found


def _words(passwords: list[str], commands: Iterable[str], keys: Iterable[str]) -> list[str]:
    rights = [*(f"+{command}" for command in commands), *(f"~{key}" for key in keys)]
    return ["reset", "on", *passwords, "resetchannels", "-@all", *rights]


def literal(text: str) -> str:
    """A pattern of keys that means this text alone."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)


def lines(url: str, authority: Path | None, known: Mapping[str, list[str]]) -> list[str]:
    """The same as commands for `redis-cli`, for a broker whose access lists somebody else keeps.

    One that does not tell its version gets those that every version understands.
    """
    try:
        with redis_client(url, authority) as client:
            version = _version(client)
    except (RedisError, OSError):
        version = _LEAST_REDIS
    return [" ".join(["ACL SETUSER", name, *_fitting(words, version)]) for name, words in known.items()]


def apply(url: str, authority: Path | None, key_prefix: str, known: Mapping[str, list[str]]) -> bool:
    """Make the broker's access lists these: those that are no more among them end. False: it lets nobody.
    Who is new there begins with an empty queue: what was said to it before it was shut out is void.

    Raises `UnreachableError`.
    """
    try:
        with redis_client(url, authority) as client:
            version = _version(client)
            if version < _LEAST_REDIS:
                raise UnreachableError("the broker is older than Redis 6.2, it cannot keep agents apart")
            names = {n.decode() if isinstance(n, bytes) else n for n in client.acl_users()}
            gone = [
                name for name in sorted(names) if name.startswith(user("", key_prefix)) and name not in known
            ]
            if gone:
                client.acl_deluser(*gone)
                log.info("the broker lets them in no more: %s", ", ".join(gone))
            for name, words in known.items():
                if name not in names and not name.endswith(INGEST_SUFFIX):
                    client.delete(key_prefix + agent_queue(name.removeprefix(user("", key_prefix))))
                client.execute_command("ACL SETUSER", name, *_fitting(words, version))
    except NoPermissionError:
        return False
    except (RedisError, OSError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreachableError(f"the broker's access lists are not up to date: {said}") from error
    return True


def _version(client: Redis) -> tuple[int, ...]:
    return tuple(int(part) for part in str(client.info("server")["redis_version"]).split(".")[:2])


def _fitting(words: list[str], version: tuple[int, ...]) -> list[str]:
    """Without what this version of Redis does not know."""
    if version < (7, 2):
        words = [word for word in words if word != "+client|setinfo"]
    return words


def authority_text(path: Path | None) -> str | None:
    """The CA of the broker as PEM, for an agent that enrols. Raises `UsageError`."""
    if path is None:
        return None
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"FARM_BROKER_CA: {path} cannot be read: {error.strerror}") from error
