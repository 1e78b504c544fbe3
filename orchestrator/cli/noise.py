"""`farm devices noise`: measures how much equal things differ on a device."""

from __future__ import annotations

import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.cli import output
from orchestrator.cli.progress import run_shown
from orchestrator.cli.stopping import StoppedError
from orchestrator.cli.verb import SOME_FAILED
from orchestrator.config.clock import utc_now
from orchestrator.errors import UsageError
from orchestrator.farm import Farm
from orchestrator.farm.conducting import submit_campaign
from orchestrator.farm.remote.farm import AnyFarm, RemoteFarm
from orchestrator.manifest.noise_series import FIRST, noise_series
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.noise import FEWEST_SESSIONS, noise_of
from orchestrator.sources import health_model

DEFAULT_SESSIONS = 5
"""Sessions of a series. Chosen: they give the floor within a factor of two, in about five minutes on a device
whose calls take milliseconds."""

MOST_SESSIONS = 50
"""The most sessions of a series, which hold the device for most of an hour."""


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
