"""`farm devices`: list the devices with their states, take one out of work, or put it back."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.verb import OK, Json, open_farm

if TYPE_CHECKING:
    from agent.wire.messages import AgentHello
    from orchestrator.db.read.device_states import DeviceState
    from orchestrator.farm import Farm


class Action(StrEnum):
    """What to do."""

    LIST = "list"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    COOLDOWN = "cooldown"


def devices(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    name: Annotated[str | None, typer.Argument(help="A device: its id, or a glob that matches one.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why it is put in quarantine.")] = "by hand",
    check: Annotated[
        bool, typer.Option("--check", help="Let health checks run there; the first that passes frees it.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="How long it rests after each attempt.")
    ] = None,
    as_json: Json = False,
) -> int:
    """List the devices, take one out of work, or put it back.

    A device taken out by hand stays out until `release`. One that the farm put in quarantine after faults
    gets health checks, and the first that passes frees it.
    """
    from orchestrator.errors import UsageError

    with open_farm() as farm:
        if action is Action.LIST:
            if name is not None:
                raise UsageError("`farm devices list` takes no name")
            return _list(farm, as_json)
        if name is None:
            raise UsageError(f"a device is needed: farm devices {action.value} NAME")
        if action is Action.QUARANTINE:
            device_id = farm.steering.quarantine(name, reason, check=check)
            freed = "a health check frees it, or" if check else "put it back with"
            text = f"{device_id} is in quarantine; {freed}: farm devices release {device_id}"
            return _changed(device_id, action, text, as_json)
        return _change(farm, action, name, seconds, as_json)


def _change(farm: Farm, action: Action, name: str, seconds: float | None, as_json: bool) -> int:
    from orchestrator.errors import UsageError

    if action is Action.COOLDOWN:
        if seconds is None:
            raise UsageError("the seconds are needed: farm devices cooldown NAME --seconds 5")
        device_id = farm.steering.cool_down(name, seconds)
        text = f"{device_id} rests {seconds:g} s after each attempt"
    else:
        device_id = farm.steering.release(name)
        text = f"{device_id} gets cells again"
    return _changed(device_id, action, text, as_json)


def _changed(device_id: str, action: Action, text: str, as_json: bool) -> int:
    from orchestrator.cli import output

    if as_json:
        output.emit_json({"device": device_id, "action": action.value})
    else:
        output.line(text)
    return OK


def _list(farm: Farm, as_json: bool) -> int:
    from orchestrator.cli import output

    hello = farm.devices.hello()
    states = farm.reading.devices()
    if as_json:
        output.emit_json(_json(hello, states))
        return OK
    present = {device.device_id for device in hello.devices}
    shown = [d for d in states if d.device_id in present or d.state in ("quarantined", "unavailable")]
    columns = [
        output.Column(name) for name in ("device", "kind", "state", "name", "delegates", "environment")
    ]
    output.table(
        columns,
        [(d.device_id, d.kind, _state(d), d.name, ", ".join(d.delegates), d.environment_id) for d in shown],
    )
    for missing in hello.missing:
        output.line(f"no {missing.kind}: {missing.reason}")
    return OK


def _state(device: DeviceState) -> str:
    """`busy: resnet on cpu, measure 1/3`."""
    text = ", ".join(part for part in (device.cell, device.note) if part)
    return f"{device.state}: {text}" if text else device.state


def _json(hello: AgentHello, states: list[DeviceState]) -> dict[str, object]:
    state = {device.device_id: device for device in states}
    return {
        "agent": hello.agent_id,
        "host": hello.host,
        "version": hello.version,
        "devices": [
            device.model_dump(mode="json")
            | {"environment_id": device.environment_id}
            | _state_json(state.get(device.device_id))
            for device in hello.devices
        ],
        "missing": [missing.model_dump(mode="json") for missing in hello.missing],
    }


def _state_json(device: DeviceState | None) -> dict[str, object]:
    if device is None:
        return {}
    return {
        "agent": device.agent_id,
        "state": device.state,
        "note": device.note,
        "cell": device.cell_id,
        "cooldown_s": device.cooldown_s,
        "left_s": device.left_s,
    }
