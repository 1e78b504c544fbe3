"""Checks the agents of a lab."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabConfig
from orchestrator.db import tables
from orchestrator.db.devices import agents, credentials
from orchestrator.db.devices.agents import AgentState
from orchestrator.db.devices.devices import lab_hello
from orchestrator.db.engine.sessions import Database
from orchestrator.doctor.check import Check, attached_checks, sandbox_checks
from orchestrator.errors import FarmError

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
