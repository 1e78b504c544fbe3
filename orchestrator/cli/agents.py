"""`farm agents`: who is in the lab, and who is to leave it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.verb import OK, Json, open_farm

if TYPE_CHECKING:
    from orchestrator.db.write.agents import AgentState

Name = Annotated[str, typer.Argument(help="An agent's name; see `farm agents list`.")]


def list_agents(as_json: Json = False) -> int:
    """List the agents with their last sign of life."""
    from orchestrator.cli import output

    with open_farm() as farm:
        found, suspect_s = farm.agents(), farm.lab.times.suspect_s
    now = datetime.now(UTC)
    if as_json:
        output.emit_json([agent_json(agent, now, suspect_s) for agent in found])
        return OK
    if not found:
        output.line("no agent has said hello yet; on a lab machine: farm-agent start")
        return OK
    names = ("agent", "host", "state", "heard", "devices", "running", "version")
    output.table(
        [output.Column(name) for name in names],
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
    """Give an agent no more work; what runs there ends as usual.

    Waiting cells that only its devices could run end as `no_device`.
    """
    from orchestrator.cli import output

    with open_farm() as farm:
        stranded = farm.resume_agent(name) if undo else farm.drain_agent(name)
    if as_json:
        output.emit_json({"agent": name, "state": "active" if undo else "draining", "no_device": stranded})
    elif undo:
        output.line(f"{name} gets work again")
    else:
        output.line(f"{name} gets no more work; {_stranded(stranded)}")
    return OK


def remove(name: Name, as_json: Json = False) -> int:
    """Take an agent out of the lab: what runs there is stopped and returned, and the agent ends.

    Waiting cells that only its devices could run end as `no_device`. Its results stay.
    """
    from orchestrator.cli import output

    with open_farm() as farm:
        stranded = farm.remove_agent(name)
    if as_json:
        output.emit_json({"agent": name, "state": "removed", "no_device": stranded})
    else:
        output.line(f"{name} is removed; {_stranded(stranded)}")
    return OK


def standing(agent: AgentState, now: datetime, suspect_s: float) -> str:
    """active | draining | removed | refused | suspect: what keeps it from work, if anything."""
    if agent.refused:
        return "refused"
    if agent.state != "active":
        return agent.state
    silent = agent.heard_at is None or (now - agent.heard_at).total_seconds() > suspect_s
    return "suspect" if silent else "active"


def agent_json(agent: AgentState, now: datetime, suspect_s: float) -> dict[str, object]:
    """An agent as `farm agents list --json` shows it."""
    return {
        "agent": agent.agent_id,
        "host": agent.host,
        "state": standing(agent, now, suspect_s),
        "heard_at": None if agent.heard_at is None else agent.heard_at.isoformat(),
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


def _stranded(count: int) -> str:
    if not count:
        return "no waiting cell needed it"
    return f"{count} waiting cell{'s' if count != 1 else ''} could run nowhere else: no_device"
