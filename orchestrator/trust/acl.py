"""Builds Redis' access lists, which state what each agent may do at the broker, from its keys' names.

An agent may read and write the keys under its own name, and add to its own ingest list; it can read
neither the messages of other agents nor those to them. These are two users with one password, since Redis 6
cannot allow a user one command on one key alone; the same rules work on Redis 7.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from agent.wire.queue import AGENT_KEYS, agent_key, ingest_queue
from agent.wire.service_urls import INGEST_SUFFIX
from orchestrator.db.devices.credentials import Known
from orchestrator.dispatch.broker import redis_client
from orchestrator.errors import UnreachableError, UsageError

COMMANDS: Final = (
    "brpop", "lpush", "llen", "multi", "exec", "discard", "set", "get",
    "ping", "select", "client|setinfo", "client|setname",
)  # fmt: skip
"""Commands that the link needs for its queue (Kombu counts a list's messages within MULTI) and for the claim
of its name. No script: Redis runs one script at a time, and an endless one would stop the broker for
everybody. No DEL and no read of a whole collection: on a large key each would occupy Redis for seconds."""
INGEST_COMMANDS: Final = ("lpush", "ping", "select", "client|setinfo", "client|setname")
"""Commands of the user that adds to an ingest list: none of them reads."""

_LEAST_REDIS: Final = (6, 2)
"""Oldest version of Redis whose access lists can separate agents: `resetchannels` came with 6.2."""
_SETINFO_REDIS: Final = (7, 2)
"""First version of Redis that knows CLIENT SETINFO; an older one refuses an access list that names it."""

log = logging.getLogger(__name__)


def user(agent_id: str, key_prefix: str) -> str:
    """Return the user name that an agent logs in with."""
    return f"{key_prefix}agent.{agent_id}"


def users(known: Iterable[Known], key_prefix: str) -> dict[str, list[str]]:
    """Return, by user, the words of `ACL SETUSER` after its name.

    Every valid password is among them: in a rotation the old one stays valid for a while.
    """
    hashes: dict[str, list[str]] = {}
    for entry in known:
        hashes.setdefault(entry.agent_id, []).append(f"#{entry.password_sha256}")
    prefix = literal(key_prefix)
    found: dict[str, list[str]] = {}
    for agent_id, passwords in hashes.items():
        name = user(agent_id, key_prefix)
        found[name] = _words(passwords, COMMANDS, [prefix + agent_key(agent_id, key) for key in AGENT_KEYS])
        found[name + INGEST_SUFFIX] = _words(passwords, INGEST_COMMANDS, [prefix + ingest_queue(agent_id)])
    return found


def _words(passwords: list[str], commands: Iterable[str], keys: Iterable[str]) -> list[str]:
    rights = [*(f"+{command}" for command in commands), *(f"~{key}" for key in keys)]
    # `reset` alone allows every channel where `acl-pubsub-default` does, as in Redis 6.
    return ["reset", "on", *passwords, "resetchannels", "-@all", *rights]


def literal(text: str) -> str:
    """Return a pattern of keys that matches this text alone."""
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)


def lines(url: str, authority: Path | None, known: Mapping[str, list[str]]) -> list[str]:
    """Return the access lists as commands for `redis-cli`, for a broker that another administrator manages.

    A broker that does not report its version gets commands that every version understands.
    """
    try:
        with redis_client(url, authority) as client:
            version = _version(client)
    except (RedisError, OSError):
        version = _LEAST_REDIS
    return [" ".join(["ACL SETUSER", name, *_fitting(words, version)]) for name, words in known.items()]


def apply(url: str, authority: Path | None, key_prefix: str, known: Mapping[str, list[str]]) -> bool:
    """Set the broker's access lists of agents to these, and delete all others together with their keys. A new
    agent's keys are deleted first: messages from before it was shut out are void.

    Returns False where the farm's user may not manage users. Raises `UnreachableError`.
    """
    try:
        with redis_client(url, authority) as client:
            version = _version(client)
            if version < _LEAST_REDIS:
                raise UnreachableError("the broker is older than Redis 6.2 and cannot separate agents")
            names = {n.decode() if isinstance(n, bytes) else n for n in client.acl_users()}
            gone = [
                name for name in sorted(names) if name.startswith(user("", key_prefix)) and name not in known
            ]
            if gone:
                client.acl_deluser(*gone)  # Redis also closes their connections
                # Only then, so that nobody writes them again; UNLINK frees large ones in the background.
                client.unlink(*_keys_of(gone, key_prefix), *_ingest_of(gone, key_prefix))
                log.info("users deleted at the broker: %s", ", ".join(gone))
            for name, words in known.items():
                # An agent has two users and one set of keys: once is enough.
                if name not in names and not name.endswith(INGEST_SUFFIX):
                    client.unlink(*_keys_of([name], key_prefix))
                client.execute_command("ACL SETUSER", name, *_fitting(words, version))
    except NoPermissionError:
        return False
    except (RedisError, OSError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreachableError(f"the broker's access lists are not up to date: {why}") from error
    return True


def _keys_of(users: Iterable[str], key_prefix: str) -> list[str]:
    """Return the keys that only the agents with these user names may use."""
    return [key_prefix + agent_key(agent, key) for agent in _agents(users, key_prefix) for key in AGENT_KEYS]


def _ingest_of(users: Iterable[str], key_prefix: str) -> list[str]:
    """Return the lists of what the agents with these user names have told the farm."""
    return [key_prefix + ingest_queue(agent) for agent in _agents(users, key_prefix)]


def _agents(users: Iterable[str], key_prefix: str) -> list[str]:
    return sorted({name.removeprefix(user("", key_prefix)).removesuffix(INGEST_SUFFIX) for name in users})


def _version(client: Redis) -> tuple[int, ...]:
    return tuple(int(part) for part in str(client.info("server")["redis_version"]).split(".")[:2])


def _fitting(words: list[str], version: tuple[int, ...]) -> list[str]:
    """Return the words that this version of Redis knows."""
    if version < _SETINFO_REDIS:
        words = [word for word in words if word != "+client|setinfo"]
    return words


def authority_text(path: Path | None) -> str | None:
    """Return the CA of the broker as PEM, for an agent that enrols. Raises `UsageError`."""
    if path is None:
        return None
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"FARM_BROKER_CA: {path} cannot be read: {error.strerror}") from error
