"""Checks services and agents of a lab, and from where its broker is reached; imported in a lab alone."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from agent.wire.service_urls import crosses_in_the_clear, without_secrets
from orchestrator.config.address import is_loopback
from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabConfig
from orchestrator.db import tables
from orchestrator.db.campaigns import farm_state
from orchestrator.db.devices import agents, credentials
from orchestrator.db.devices.agents import AgentState
from orchestrator.db.devices.devices import lab_hello
from orchestrator.db.engine.sessions import Database
from orchestrator.dispatch.broker import redis_client
from orchestrator.doctor.check import Check, attached_checks, sandbox_checks
from orchestrator.errors import FarmError

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
    for name, url in lab.broker_urls.items():
        if crosses_in_the_clear(url):
            return Check("broker network", False, f"{name} leaves this machine without TLS", fix)
    port = settings.get("port", "0")
    outside = [] if port == "0" else _outside(settings.get("bind", ""))
    # In protected mode, Redis without a password answers no other machine.
    if outside and not (settings.get("protected-mode") == "yes" and _needs_no_password(lab)):
        found = f"it listens without TLS on {', '.join(outside)}, port {port}"
        return Check("broker network", False, found, f"{fix} (or, for one machine: bind 127.0.0.1)")
    return Check("broker network", True, "unencrypted connections stay on this machine")


def _outside(bind: str) -> list[str]:
    """Addresses of a `bind` setting that other machines reach; an empty setting means every address."""
    # A minus lets Redis start on a machine that lacks the address behind it.
    words = [word.removeprefix("-") for word in bind.split()] or ["*"]
    return [word for word in words if not is_loopback(word)]


def _needs_no_password(lab: LabConfig) -> bool:
    try:
        with redis_client(without_secrets(lab.broker_url or ""), lab.broker_ca) as client:
            return bool(client.ping())
    except (RedisError, OSError):
        return False


def _settings(lab: LabConfig) -> Mapping[str, str] | None:
    """Return the broker's listening settings; empty if they may not be read, None without an answer."""
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


SCHEDULER_SILENT_S = 30.0
"""Seconds without a heartbeat after which the scheduler is a fault. Chosen: `farm lab serve` records one
every 5 s, so five in a row may be late.
"""

_REDIS_SETTINGS = (
    ("maxmemory-policy", "noeviction", "Redis may drop jobs when memory is short"),
    ("appendonly", "yes", "a restart loses the jobs in it (the farm sends them again, later)"),
)


def lab_checks(lab: LabConfig, database: Database) -> list[Check]:
    """Check the broker, the scheduler and every agent. Raises nothing."""
    broker = [broker_check(lab), *access_checks(lab)]
    return [*broker, scheduler_check(database), *agent_checks(lab, database)]


def broker_check(lab: LabConfig) -> Check:
    """Whether Redis answers, accepts writes and is configured to lose nothing."""
    try:
        with redis_client(lab.broker_url or "", lab.broker_ca) as client:
            client.ping()
            wrong = _wrong_settings(client)
            # Redis answers PING also where its memory is full or it is a replica: only a write shows that.
            client.set(f"{lab.key_prefix}doctor", "written", ex=1)
    except ResponseError as error:
        fix = "give Redis memory, disk space or its replicas back; until then jobs wait in the database"
        return Check("broker", False, f"refuses writes: {str(error).splitlines()[0]}", fix)
    except (RedisError, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        fix = "start redis-server on the broker's machine, or correct FARM_BROKER_URL"
        return Check("broker", False, f"cannot be reached: {first}", fix)
    if wrong:
        text = "; ".join(f"{name} is not {wanted}: {why}" for name, wanted, why in wrong)
        fix = "; ".join(f"redis-cli CONFIG SET {name} {wanted}" for name, wanted, _ in wrong)
        return Check("broker", False, text, fix)
    return Check("broker", True, "answers")


def _wrong_settings(client: Redis) -> list[tuple[str, str, str]]:
    """Return the settings that differ from what the farm needs; none if this user may not read them."""
    try:
        found = {name: client.config_get(name).get(name) for name, _, _ in _REDIS_SETTINGS}
    except (NoPermissionError, ResponseError):
        return []
    return [entry for entry in _REDIS_SETTINGS if found[entry[0]] not in (entry[1], None)]


def scheduler_check(database: Database) -> Check:
    """Whether `farm lab serve` runs somewhere and sends heartbeats."""
    fix = "start it: farm lab serve"
    try:
        with database.read() as session:
            found = farm_state.read_scheduler(session)
    except FarmError as error:
        return Check("scheduler", False, str(error), fix)
    if found is None:
        return Check("scheduler", False, "`farm lab serve` has never run on this database", fix)
    if found.broker == farm_state.STOPPED:
        return Check("scheduler", False, f"it was stopped on {found.host}", fix)
    silent = utc_now() - found.beat_at
    where = f"process {found.pid} on {found.host}"
    if silent > timedelta(seconds=SCHEDULER_SILENT_S):
        return Check("scheduler", False, f"{where}: last heartbeat {silent.total_seconds():.0f} s ago", fix)
    if found.broker == farm_state.BROKER_DOWN:
        text = f"{where}: broker down: {found.broker_text}"
        return Check(
            "scheduler", False, text, "see the check of the broker; scheduling then resumes by itself"
        )
    return Check("scheduler", True, f"running, {where}")


UNDELIVERED_S: Final = 300.0
"""Seconds for which results may lack a receipt. Chosen: ten times the default `resend_s`, so that each was
sent about ten times. Larger tells of an undeliverable result later, smaller of results that are just late."""

CLOCK_S: Final = 60.0
"""Seconds by which an agent's clock may differ from the server's: as much as the playbook of a lab allows
(`common_clock_seconds`). Larger lets logs of two machines disagree unnoticed, smaller than the time that a
message takes on a slow network calls a right clock wrong."""

DROPPED_WITHIN: Final = timedelta(days=1)
"""How long a result that was not stored is a fault. Nothing mends it: more time only repeats it longer."""


def agent_checks(lab: LabConfig, database: Database) -> list[Check]:
    """Give one line to each fault of an agent, and one to all agents that work or were told not to."""
    now = utc_now()
    try:
        with database.read() as session:
            found = agents.states(session)
            enrolled = {known.agent_id for known in credentials.valid(session, now)}
            hello = lab_hello(session)
    except FarmError as error:
        return [Check("agents", False, str(error), "see the check of the database")]
    if not found:
        return [Check("agents", False, "no agent has connected yet", "on a lab machine: farm-agent start")]
    bad = [check for agent in found for check in faults(agent, lab.times.suspect_s, now)]
    summary = _summary(found, {check.name for check in bad}, enrolled)
    return [*bad, *summary, *sandbox_checks(hello.devices), *attached_checks(hello)]


def faults(agent: AgentState, suspect_s: float, now: datetime) -> list[Check]:
    """Return the faults of an agent; none for a removed one, whose results no longer matter."""
    if agent.state == tables.AGENT_REMOVED:
        return []
    # The last heartbeat of a silent agent may have waited in the broker: it says nothing of a clock.
    standing = _standing(agent, suspect_s, now) or _clock(agent)
    checks = [standing, _undelivered(agent, now), _dropped(agent, now)]
    return [check for check in checks if check is not None]


def _standing(agent: AgentState, suspect_s: float, now: datetime) -> Check | None:
    if agent.refused:
        return _bad(agent, f"refused: {agent.refused}", "upgrade it with that command")
    if agent.heard_at is None or agent.heard_at < now - timedelta(seconds=suspect_s):
        last = "never" if agent.heard_at is None else f"{agent.heard_at:%Y-%m-%d %H:%M:%S} UTC"
        fix = f"make sure that {agent.host} is up and reaches the broker, then run there: farm-agent start"
        return _bad(agent, f"silent; last heartbeat: {last}", fix)
    if agent.devices == 0:
        return _bad(agent, "it has no devices", f"on {agent.host}: farm-agent probe")
    return None


def _clock(agent: AgentState) -> Check | None:
    ahead_s = agent.clock_ahead_s
    if ahead_s is None or abs(ahead_s) <= CLOCK_S:
        return None
    minutes = round(abs(ahead_s) / 60)
    span = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    found = (
        f"its clock is {span} {'ahead of' if ahead_s > 0 else 'behind'} the server's; leases and the times "
        "of results are the server's, but certificates may look expired or not yet valid there"
    )
    return _bad(agent, found, f"on {agent.host}: timedatectl set-ntp true, or set the clock")


def _undelivered(agent: AgentState, now: datetime) -> Check | None:
    since = agent.undelivered_since
    if since is None or now - since < timedelta(seconds=UNDELIVERED_S):
        return None
    found = f"it has had results without a receipt since {since:%Y-%m-%d %H:%M:%S} UTC, and sends them again"
    fix = (
        f"read why: on {agent.host} in link/log of the agent's state folder (samples that the endpoint does "
        "not take), on the server in the log of farm lab serve (results that the database refuses)"
    )
    return _bad(agent, found, fix)


def _dropped(agent: AgentState, now: datetime) -> Check | None:
    if agent.dropped_at is None or now - agent.dropped_at > DROPPED_WITHIN:
        return None
    found = (
        f"results that were not stored: {agent.dropped}, the last at {agent.dropped_at:%Y-%m-%d %H:%M:%S} UTC"
    )
    fix = (
        "their attempts are unknown here (an older copy of the database?) or have another result; the log of "
        "farm lab serve names each; measure again: farm submit ... --force"
    )
    return _bad(agent, found, fix)


def _bad(agent: AgentState, found: str, fix: str) -> Check:
    return Check(_name(agent), False, found, fix)


def _name(agent: AgentState) -> str:
    return f"agent {agent.agent_id}"


def _summary(found: Sequence[AgentState], bad: Collection[str], enrolled: Collection[str]) -> list[Check]:
    """Name the agents without a fault by what they do; a fault where there are some and none works."""
    named: dict[str, list[str]] = {"working": [], "draining": [], "removed": [], "revoked": []}
    for agent in found:
        if _name(agent) not in bad:
            named[_standing_word(agent, enrolled)].append(agent.agent_id)
    text = "; ".join(f"{word}: {', '.join(names)}" for word, names in named.items() if names)
    if not text:
        return []
    if named["working"] or named["draining"] or bad:
        return [Check("agents", True, text)]
    fix = "enrol a machine: farm lab agents enrol NAME; then run there: farm-agent start"
    return [Check("agents", False, f"none is left; {text}", fix)]


def _standing_word(agent: AgentState, enrolled: Collection[str]) -> str:
    if agent.state == tables.AGENT_REMOVED:
        return "removed" if agent.agent_id in enrolled else "revoked"
    return "working" if agent.state == tables.AGENT_ACTIVE else "draining"
