"""Checks whom the broker lets in and what crosses the network unencrypted, with the fix."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from agent.wire.credentials import crosses_in_the_clear, without_secrets
from orchestrator.config.lab import LabConfig
from orchestrator.doctor.check import Check

_SETTINGS = ("port", "tls-port", "bind", "protected-mode")


def access_checks(lab: LabConfig) -> list[Check]:
    """Check login and network; empty where the broker does not answer. Raises nothing.

    Where this user may not read the broker's settings, only the URLs are judged.
    """
    settings = _settings(lab)
    return [] if settings is None else [login_check(lab, settings), network_check(lab, settings)]


def login_check(lab: LabConfig, settings: Mapping[str, str]) -> Check:
    """Whether a client without a password is let in: it could drop every job."""
    by_network = any(settings.get(name, "0") != "0" for name in ("port", "tls-port"))
    by_url = not (lab.broker_url or "").startswith("redis+socket:")
    if not _needs_no_password(lab):
        return Check("broker login", True, "a password is required")
    if not (by_network or by_url):
        return Check("broker login", True, "no password, but only a socket on this machine leads to it")
    fix = (
        "in redis.conf: requirepass PASSWORD (now: redis-cli CONFIG SET requirepass PASSWORD), "
        "then FARM_BROKER_URL=rediss://:PASSWORD@HOST:PORT/0"
    )
    return Check(
        "broker login", False, "its default user has no password: every client that reaches it is let in", fix
    )


def network_check(lab: LabConfig, settings: Mapping[str, str]) -> Check:
    """Whether passwords and results can leave this machine unencrypted."""
    fix = "in redis.conf: port 0, tls-port 6380 and a certificate; then FARM_BROKER_URL=rediss://..."
    for name, url in (("FARM_BROKER_URL", lab.broker_url), ("FARM_AGENT_BROKER_URL", lab.agent_broker_url)):
        if url and crosses_in_the_clear(url):
            return Check("broker network", False, f"{name} leaves this machine without TLS", fix)
    port = settings.get("port", "0")
    outside = [] if port == "0" else _outside(settings.get("bind", ""))
    if outside and not (settings.get("protected-mode") == "yes" and _needs_no_password(lab)):
        found = f"it listens without TLS on {', '.join(outside)}, port {port}"
        return Check("broker network", False, found, f"{fix} (or, for one machine: bind 127.0.0.1)")
    return Check("broker network", True, "unencrypted connections stay on this machine")


def _outside(bind: str) -> list[str]:
    """Addresses of a `bind` setting that other machines reach; an empty setting means every address."""
    words = [word.removeprefix("-") for word in bind.split()] or ["*"]
    return [word for word in words if not _is_loopback(word)]


def _is_loopback(word: str) -> bool:
    try:
        return ipaddress.ip_address(word).is_loopback
    except ValueError:
        return word == "localhost"


def _needs_no_password(lab: LabConfig) -> bool:
    from redis.exceptions import RedisError  # noqa: PLC0415  # only a lab has a broker

    from orchestrator.dispatch.broker import redis_client  # noqa: PLC0415  # see above

    try:
        with redis_client(without_secrets(lab.broker_url or ""), lab.broker_ca) as client:
            return bool(client.ping())
    except (RedisError, OSError):
        return False


def _settings(lab: LabConfig) -> Mapping[str, str] | None:
    """Return the broker's listening settings; empty if this user may not read them, None if it does not
    answer.
    """
    from redis.exceptions import RedisError, ResponseError  # noqa: PLC0415  # see above

    from orchestrator.dispatch.broker import redis_client  # noqa: PLC0415  # see above

    found: dict[str, str] = {}
    try:
        with redis_client(lab.broker_url or "", lab.broker_ca) as client:
            for name in _SETTINGS:
                found |= {key: str(value) for key, value in client.config_get(name).items()}
    except ResponseError:
        # CONFIG is often closed to users, and unknown to hosted services: then the URLs must do.
        return {}
    except (RedisError, OSError):
        return None
    return found
