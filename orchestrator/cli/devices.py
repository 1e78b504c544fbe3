"""`farm devices`: list the devices with their states, reserve one, take one out of work, or put it back."""

import tempfile
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from agent.wire.messages import AgentHello, Device
from orchestrator.cli import output
from orchestrator.cli.progress import run_shown
from orchestrator.cli.stopping import StoppedError
from orchestrator.cli.verb import OK, SOME_FAILED, Json, open_farm, read_length
from orchestrator.config.clock import utc_now
from orchestrator.db.devices.states import DeviceState
from orchestrator.errors import UsageError
from orchestrator.farm import Farm
from orchestrator.farm.conducting import submit_campaign
from orchestrator.farm.remote.farm import AnyFarm, RemoteFarm
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.format import NOTHING
from orchestrator.results.noise import FEWEST_SESSIONS, FIRST, noise_of, noise_series
from orchestrator.sources import health_model

DEFAULT_SESSIONS = 5
"""Sessions of a series. Chosen: they give the floor within a factor of two, in about five minutes on a device
whose calls take milliseconds."""

MOST_SESSIONS = 50
"""The most sessions of a series, which hold the device for most of an hour."""

_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


class Action(StrEnum):
    """The action on a device."""

    LIST = "list"
    RESERVE = "reserve"
    QUARANTINE = "quarantine"
    RELEASE = "release"
    COOLDOWN = "cooldown"
    NOISE = "noise"
    HISTORY = "history"


def devices(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    name: Annotated[str | None, typer.Argument(help="A device: its id, or a glob that matches one.")] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="With reserve: how long: 30m, 2h, 1d.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why it is reserved, or put in quarantine.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Let health checks run there; the first that passes frees it.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="How long it rests after each attempt.")
    ] = None,
    sessions: Annotated[
        int, typer.Option("--sessions", help="With noise: how often the device is measured against itself.")
    ] = DEFAULT_SESSIONS,
    as_json: Json = False,
) -> int:
    """List the devices, reserve or steer one, or measure its noise.

    A reserved device takes new jobs of your own campaigns alone, and so does what it shares silicon with.
    That ends by itself, or with `release`; only an administrator ends another's. Running jobs end as usual.

    A device taken out by hand stays out until `release`. One that the farm put in quarantine after faults
    gets health checks, and the first that passes frees it. `noise` measures a device against itself and
    stores by how much equal things differ there: no smaller difference is called one from then on. `history`
    shows when the operator's command for lost devices ran there, and what became of it.

    Examples:
      farm devices
      farm devices reserve gpu-0 --for 2h --reason 'new driver'
      farm devices quarantine gpu-0 --reason 'fan is loud'
      farm devices release gpu-0
      farm devices cooldown gpu-0 --seconds 5
      farm devices noise gpu-0
      farm devices history gpu-0
    """
    with open_farm() as farm:
        if action is Action.LIST:
            if name is not None:
                raise UsageError("`farm devices list` takes no name")
            return _list(farm, as_json)
        if name is None:
            raise UsageError(f"a device is needed: farm devices {action.value} NAME")
        if action is Action.HISTORY:
            return _history(farm, name, as_json)
        if action is Action.NOISE:
            return measure_noise(farm, name, sessions, as_json)
        if action is Action.QUARANTINE:
            device_id = farm.steering.quarantine(name, reason or "by hand", check=check)
            freed = "a health check frees it, or" if check else "put it back with"
            text = f"{device_id} is in quarantine; {freed}: farm devices release {device_id}"
            return _changed(device_id, action, text, as_json)
        if action is Action.RESERVE:
            return _reserve(farm, name, length, reason, as_json)
        return _change(farm, action, name, seconds, as_json)


def _reserve(farm: AnyFarm, name: str, length: str | None, reason: str, as_json: bool) -> int:
    if length is None:
        raise UsageError("the time is needed: farm devices reserve NAME --for 2h")
    made = farm.steering.reserve(name, read_length(length, "--for").total_seconds(), reason)
    rest = "" if not made.running else f"; attempts that end first: {made.running}"
    return output.answer(
        {
            "device": made.device_id,
            "action": Action.RESERVE.value,
            "by": made.by,
            "until": f"{made.until:{_MOMENT}}",
            "running": made.running,
        },
        f"{made.device_id} is reserved by {made.by} until {made.until:%Y-%m-%d %H:%M} UTC{rest}; "
        f"to end it earlier: farm devices release {made.device_id}",
        as_json,
    )


def _change(farm: AnyFarm, action: Action, name: str, seconds: float | None, as_json: bool) -> int:
    if action is Action.COOLDOWN:
        if seconds is None:
            raise UsageError("the seconds are needed: farm devices cooldown NAME --seconds 5")
        device_id = farm.steering.cool_down(name, seconds)
        text = f"{device_id} rests {seconds:g} s after each attempt"
    else:
        released = farm.steering.release(name)
        device_id = released.device_id
        text = f"{device_id} is {released.still}" if released.still else f"{device_id} gets cells again"
    return _changed(device_id, action, text, as_json)


def _changed(device_id: str, action: Action, text: str, as_json: bool) -> int:
    return output.answer({"device": device_id, "action": action.value}, text, as_json)


def _list(farm: AnyFarm, as_json: bool) -> int:
    # The hello comes first: it records the devices whose states are then read.
    hello = farm.devices.hello()
    states = farm.reading.devices()
    if as_json:
        output.emit_json(_json(hello, states))
        return OK
    present = {device.device_id: ", ".join(_interfaces(device)) or NOTHING for device in hello.devices}
    shown = [d for d in states if d.device_id in present or d.state in ("quarantined", "unavailable")]
    output.table(
        ("device", "kind", "state", "name", "interfaces", "delegates", "noise", "environment"),
        [
            (
                d.device_id, d.kind, _state(d), d.name, present.get(d.device_id, NOTHING),
                ", ".join(d.delegates),
                NOTHING if d.noise is None else d.noise.text, d.environment_id,
            )
            for d in shown
        ],
    )  # fmt: skip
    for missing in hello.missing:
        output.line(f"no {missing.kind}: {missing.reason}")
    return OK


def _interfaces(device: Device) -> list[str]:
    return list(dict.fromkeys(one for kind in device.delegates for one in device.interfaces_of(kind)))


def _history(farm: AnyFarm, name: str, as_json: bool) -> int:
    states = [d for d in farm.reading.devices() if name == d.device_id or fnmatchcase(d.device_id, name)]
    if not states:
        raise UsageError(f"no device {name!r}; see: farm devices")
    if as_json:
        output.emit_json([{"device": d.device_id, "recoveries": list(d.recoveries)} for d in states])
        return OK
    rows = [
        (
            device.device_id,
            # Of ISO 8601, without fractions of a second and the zone, which is UTC.
            str(one["began_at"])[:19],
            str(one["loss"]).replace("_", " "),
            str(one["outcome"] or "unknown").replace("_", " "),
            one["text"] or "",
        )
        for device in states
        for one in device.recoveries
    ]
    if rows:
        output.table(("device", "began", "lost by", "outcome", "text"), rows)
    else:
        output.line("the operator's command never ran for it; see [recovery] in docs/lab.md")
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
            | {"environment_id": device.environment_id, "interfaces": _interfaces(device)}
            | _state_json(state.get(device.device_id))
            for device in hello.devices
        ],
        "missing": hello.missing,
    }


def _state_json(device: DeviceState | None) -> dict[str, object]:
    if device is None:
        return {}
    held = device.reservation
    return {
        "agent": device.agent_id,
        "state": device.state,
        "note": device.note,
        "cell": device.cell_id,
        "cooldown_s": device.cooldown_s,
        "left_s": device.left_s,
        "noise": device.noise,
        "reserved": held and {"by": held.by, "until": f"{held.until:{_MOMENT}}", "reason": held.reason},
    }


def measure_noise(farm: AnyFarm, name: str, sessions: int, as_json: bool) -> int:
    """Measure a device against itself, store its noise, and print it."""
    if isinstance(farm, RemoteFarm):
        raise UsageError("the noise of a device is measured on the server: farm devices noise there")
    if not FEWEST_SESSIONS <= sessions <= MOST_SESSIONS:
        raise UsageError(f"--sessions is between {FEWEST_SESSIONS} and {MOST_SESSIONS}, not {sessions}")
    device_id, found = _measured(farm, name, sessions)
    if isinstance(found, str):
        output.note(f"{device_id}: no noise floor: {found}")
        return SOME_FAILED
    return output.answer(
        {"device": device_id, "noise": found},
        f"{device_id}: equal things differ by {100 * found.floor:.2g} %, over {found.sessions} sessions of "
        f"{found.delegate} against itself; medians by {100 * found.session_sd:.2g} % from session to session",
        as_json,
    )


def _measured(farm: Farm, name: str, sessions: int) -> tuple[str, DeviceNoise | str]:
    device_id, kind = _device(farm, name)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / f"{health_model.MODEL_ID}.tflite"
        model.write_bytes(health_model.model())
        campaign = noise_series(device_id, kind, model, sessions)
        # From here on the store has the model, and its folder may go.
        submitted = submit_campaign(farm, campaign, output.note, force=True)
    where = f"{kind} against itself on {device_id}"
    output.note(f"campaign {submitted.campaign_id}: {sessions} sessions of {where}")
    try:
        run_shown(farm, submitted)
    except StoppedError:
        output.note(f"stopped; no noise is stored. End the series: farm cancel {submitted.campaign_id}")
        raise
    cells = farm.reading.cells(submitted.campaign_id)
    found = noise_of(cells, FIRST, utc_now().isoformat(timespec="seconds"))
    if not isinstance(found, str):
        farm.steering.record_noise(device_id, found)
    return device_id, found


def _device(farm: Farm, name: str) -> tuple[str, str]:
    """Return the id of a present device, and the delegate kind to measure there. Raises `UsageError`."""
    devices = farm.devices.hello().devices
    fits = [d for d in devices if d.device_id == name] or [
        d for d in devices if fnmatchcase(d.device_id, name)
    ]
    if len(fits) != 1:
        known = ", ".join(d.device_id for d in fits or devices)
        raise UsageError(f"{name!r} fits {len(fits)} devices; {'fitting' if fits else 'present'}: {known}")
    if not fits[0].delegates:
        raise UsageError(f"{fits[0].device_id} hosts no delegate that could be measured")
    return fits[0].device_id, fits[0].delegates[0]
