"""Checks the parts that only a lab has: broker, scheduler and agents, each with the fix."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabConfig
from orchestrator.db.campaigns import scheduler_state
from orchestrator.db.engine.sessions import Database
from orchestrator.doctor.check import Check
from orchestrator.errors import FarmError

SCHEDULER_SILENT_S = 30.0
"""Seconds without a heartbeat after which the scheduler is a fault. Chosen: `farm serve` records one every
5 s, so five in a row may be late.
"""

_REDIS_SETTINGS = (
    ("maxmemory-policy", "noeviction", "Redis may drop jobs when memory is short"),
    ("appendonly", "yes", "a restart loses the jobs in it (the farm sends them again, later)"),
)


def lab_checks(lab: LabConfig, database: Database) -> list[Check]:
    """Check the broker, the scheduler and every agent. Raises nothing."""
    from orchestrator.doctor.agents import agent_checks  # noqa: PLC0415  # it needs cryptography, as only labs do
    from orchestrator.doctor.broker_access import access_checks  # noqa: PLC0415  # see above

    broker = [broker_check(lab), *access_checks(lab)]
    return [*broker, scheduler_check(database), *agent_checks(lab, database)]


def broker_check(lab: LabConfig) -> Check:
    """Whether Redis answers, accepts writes and is configured to lose nothing."""
    from redis.exceptions import RedisError, ResponseError  # noqa: PLC0415  # only a lab has a broker

    from orchestrator.dispatch.broker import redis_client  # noqa: PLC0415  # see above

    try:
        with redis_client(lab.broker_url or "", lab.broker_ca) as client:
            client.ping()
            wrong = _wrong_settings(client)
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


def _wrong_settings(client: object) -> list[tuple[str, str, str]]:
    """Return the settings that differ from what the farm needs; none if this user may not read them."""
    from redis.exceptions import NoPermissionError, ResponseError  # noqa: PLC0415  # see broker_check

    try:
        found = {name: client.config_get(name).get(name) for name, _, _ in _REDIS_SETTINGS}  # type: ignore[attr-defined]  # a Redis client
    except (NoPermissionError, ResponseError):
        return []
    return [entry for entry in _REDIS_SETTINGS if found[entry[0]] not in (entry[1], None)]


def scheduler_check(database: Database) -> Check:
    """Whether `farm serve` runs somewhere and sends heartbeats."""
    fix = "start it: farm serve"
    try:
        with database.read() as session:
            found = scheduler_state.read(session)
    except FarmError as error:
        return Check("scheduler", False, str(error), fix)
    if found is None:
        return Check("scheduler", False, "`farm serve` has never run on this database", fix)
    if found.broker == scheduler_state.STOPPED:
        return Check("scheduler", False, f"it was stopped on {found.host}", fix)
    silent = utc_now() - found.beat_at
    where = f"process {found.pid} on {found.host}"
    if silent > timedelta(seconds=SCHEDULER_SILENT_S):
        return Check("scheduler", False, f"{where}: last heartbeat {silent.total_seconds():.0f} s ago", fix)
    if found.broker == scheduler_state.BROKER_DOWN:
        text = f"{where}: broker down: {found.broker_text}"
        return Check(
            "scheduler", False, text, "see the check of the broker; scheduling then resumes by itself"
        )
    return Check("scheduler", True, f"running, {where}")
