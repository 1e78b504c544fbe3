"""`farm lab agents`: the machines of a lab, their credentials, and how one leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import OK, Json, open_farm
from orchestrator.config.clock import utc_now
from orchestrator.db.devices.agents import AgentState

if TYPE_CHECKING:
    from orchestrator.trust.credentials_service import CredentialsService

_LONGEST_MINUTES = 7 * 24 * 60
"""The most minutes of a token or an overlap: a week. Chosen: for longer, another token can be made."""

Name = Annotated[str, typer.Argument(help="An agent's name; see `farm lab agents list`.")]
NewName = Annotated[str, typer.Argument(help="The agent's name: letters, digits, - and _.")]
Valid = Annotated[
    int, typer.Option(help="Minutes for which the one-time token is valid.", min=1, max=_LONGEST_MINUTES)
]
Overlap = Annotated[
    int, typer.Option(help="Minutes for which the present secrets stay valid.", min=0, max=_LONGEST_MINUTES)
]
Write = Annotated[
    Path | None,
    typer.Option("--write", help="State folder of an agent on this machine: enrol it there at once."),
]


def list_agents(as_json: Json = False) -> int:
    """List the agents with their last heartbeats.

    Examples:
      farm lab agents list
      farm lab agents list --json
    """
    with open_farm() as farm:
        found, suspect_s = farm.reading.agents(), farm.lab.times.suspect_s
    now = utc_now()
    if as_json:
        output.emit_json([agent_json(agent, now, suspect_s) for agent in found])
        return OK
    if not found:
        output.line("no agent has connected yet; on a lab machine: farm-agent start")
        return OK
    output.table(
        ("agent", "host", "state", "last heartbeat", "devices", "running", "version"),
        [
            (
                agent.agent_id, agent.host, standing(agent, now, suspect_s), _ago(agent, now),
                str(agent.devices), str(agent.live), agent.version,
            )
            for agent in found
        ],
    )  # fmt: skip
    for agent in found:
        if agent.refused:
            output.line(f"{agent.agent_id} is refused: {agent.refused}")
    return OK


def drain(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Give it work again.")] = False,
    as_json: Json = False,
) -> int:
    """Give an agent no more work; running attempts finish.

    Waiting cells that only its devices could run end as `no_device`.

    Examples:
      farm lab agents drain rack-3
      farm lab agents drain rack-3 --undo
    """
    with open_farm() as farm:
        unplaceable = farm.steering.resume_agent(name) if undo else farm.steering.drain_agent(name)
    text = "gets work again" if undo else f"gets no more work; {_unplaceable(unplaceable)}"
    found = {"agent": name, "state": "active" if undo else "draining", "no_device": unplaceable}
    return output.answer(found, f"{name} {text}", as_json)


def remove(name: Name, as_json: Json = False) -> int:
    """Remove an agent from the lab: its attempts are stopped, their cells queued again, and it exits.

    Waiting cells that only its devices could run end as `no_device`. Its results stay.

    Examples:
      farm lab agents remove rack-3
    """
    with open_farm() as farm:
        unplaceable = farm.steering.remove_agent(name)
    found = {"agent": name, "state": "removed", "no_device": unplaceable}
    return output.answer(found, f"{name} is removed; {_unplaceable(unplaceable)}", as_json)


def enrol(name: NewName, valid: Valid = 60, write: Write = None, as_json: Json = False) -> int:
    """Let a machine become an agent: print a one-time token for `farm-agent enrol` on that machine.

    The agent generates its own keys; the farm keeps a public key and hashes. An agent that was removed or
    revoked may enrol again.

    Examples:
      farm lab agents enrol rack-3
      farm lab agents enrol rack-3 --write DIR
    """
    with _credentials() as credentials:
        if write is not None:
            credentials.enrol_here(name, write.absolute())
            return _written(name, write, as_json)
        token = credentials.invite(name, timedelta(minutes=valid))
        return _say_token(credentials, name, token, valid, as_json)


def rotate(
    name: Name, valid: Valid = 60, overlap: Overlap = 60, write: Write = None, as_json: Json = False
) -> int:
    """Give an agent new secrets: print a one-time token for `farm-agent enrol` on its machine.

    Once the token is used, old and new secrets are both valid for `--overlap` minutes, then only the new.

    Examples:
      farm lab agents rotate rack-3
    """
    with _credentials() as credentials:
        if write is not None:
            credentials.enrol_here(name, write.absolute(), timedelta(minutes=overlap))
            return _written(name, write, as_json)
        token = credentials.invite(name, timedelta(minutes=valid), timedelta(minutes=overlap))
        return _say_token(credentials, name, token, valid, as_json)


def revoke(name: Name, as_json: Json = False) -> int:
    """Lock an agent out now: its key, its token and its user at the broker are refused.

    Its running attempts are lost and tried elsewhere; everything it sends is ignored. Its results stay.

    Examples:
      farm lab agents revoke rack-3
    """
    with _credentials() as credentials:
        lost = credentials.revoke(name)
    text = f"{name} is revoked; running attempts that are lost: {lost}"
    return output.answer({"agent": name, "state": "revoked", "lost": lost}, text, as_json)


def acl(as_json: Json = False) -> int:
    """Print the agents' users as Redis commands, for a broker whose users the farm may not manage.

    They contain hashes of passwords, but no password.

    Examples:
      farm lab agents acl
    """
    with _credentials() as credentials:
        lines = credentials.acl_commands()
    return output.answer(lines, lines, as_json)


@contextmanager
def _credentials() -> Iterator[CredentialsService]:
    # Celery and Redis, which lists and help do without.
    from orchestrator.trust.credentials_service import CredentialsService  # noqa: PLC0415

    with open_farm() as farm:
        yield CredentialsService.open(farm.home, farm.lab, farm.database)


def _say_token(credentials: CredentialsService, name: str, token: str, valid: int, as_json: bool) -> int:
    address = credentials.lab.address
    server = None if address is None else address.url
    if as_json:
        output.emit_json({"agent": name, "token": token, "server": server, "valid_minutes": valid})
        return OK
    # The token alone is the result, so that a script reads it with $(...).
    output.note(f"one-time token for {name}, valid for {valid} minutes; on its machine:")
    output.note(f"  FARM_ENROL_TOKEN=TOKEN farm-agent enrol --server {server or 'URL'}")
    output.line(token)
    if address is None:
        output.note(
            "no endpoint is set: set FARM_ENDPOINT for `farm lab serve`, or use --write on one machine"
        )
    return OK


def _written(name: str, folder: Path, as_json: bool) -> int:
    text = f"{name} is enrolled; now run: farm-agent start --state {folder}"
    return output.answer({"agent": name, "state_folder": str(folder)}, text, as_json)


def standing(agent: AgentState, now: datetime, suspect_s: float) -> str:
    """Return an obstacle to an agent's work: draining, removed, refused, suspect; else `active`."""
    if agent.refused:
        return "refused"
    if agent.state != "active":
        return agent.state
    silent = agent.heard_at is None or (now - agent.heard_at).total_seconds() > suspect_s
    return "suspect" if silent else "active"


def agent_json(agent: AgentState, now: datetime, suspect_s: float) -> dict[str, object]:
    """Return an agent as `farm lab agents list --json` shows it."""
    return {
        "agent": agent.agent_id,
        "host": agent.host,
        "state": standing(agent, now, suspect_s),
        "heard_at": agent.heard_at,
        "devices": agent.devices,
        "running": agent.live,
        "version": agent.version,
        "protocol": agent.protocol,
        "refused": agent.refused,
    }


def _ago(agent: AgentState, now: datetime) -> str:
    if agent.heard_at is None:
        return "never"
    return f"{max(0.0, (now - agent.heard_at).total_seconds()):.0f} s ago"


def _unplaceable(count: int) -> str:
    if not count:
        return "no waiting cell needed it"
    return f"{count} waiting cell{'s' if count != 1 else ''} could run nowhere else: no_device"


VERBS = {
    "list": list_agents,
    "drain": drain,
    "remove": remove,
    "enrol": enrol,
    "rotate": rotate,
    "revoke": revoke,
    "acl": acl,
}
