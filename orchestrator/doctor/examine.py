"""Checks every part of this machine's farm, each with the fix where it has a fault."""

import http.client
import json
import os
import shutil
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from agent.wire import messages
from agent.wire.private_folder import exposure_of
from orchestrator.config.address import Address
from orchestrator.config.clock import utc_now
from orchestrator.config.home import NETWORK_FILESYSTEMS, FarmHome, filesystem_of
from orchestrator.config.lab import LabConfig
from orchestrator.config.limits import StoreLimits, require_budget, size_text, used_bytes
from orchestrator.db.devices import states
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import revision
from orchestrator.doctor.check import Check, attached_checks, sandbox_checks
from orchestrator.endpoint.client import host_of_files, open_connection
from orchestrator.errors import FarmError
from orchestrator.scheduling.lock import lock_holder
from orchestrator.sources.store import Store

ANSWER_LIMIT_S: Final = 5.0
"""Seconds that the endpoint has to answer. Chosen: `/health` does no work, so a slower answer is a fault."""

SOON: Final = timedelta(days=14)
"""A certificate that expires within this time is a fault. Chosen: enough time to renew it by hand."""


def store_check(root: Path, limits: StoreLimits) -> Check:
    """Whether the store takes new models. Raises nothing."""
    try:
        require_budget(root, limits)
    except FarmError as error:
        # The error's last part is what to do about it.
        why, _, fix = str(error).rpartition("; ")
        return Check("store", False, why, fix)
    except OSError as error:
        return Check("store", False, f"{root} cannot be read: {error.strerror}", "see the check of the home")
    budget = "no budget" if limits.store_bytes is None else f"budget {size_text(limits.store_bytes)}"
    return Check("store", True, f"{size_text(used_bytes(root))}, {budget}")


def upload_check(root: Path, lab: LabConfig, database: Database) -> Check | None:
    """Return whether models submitted here reach the farm's store; None: it is here. Raises `FarmError`."""
    host = host_of_files(Store(root), database)
    if host is None:
        return None
    found = f"the farm's files are on {host}; this machine"
    if lab.address is None or lab.address.submit_token is None:
        fix = "set FARM_ENDPOINT and FARM_SUBMIT_TOKEN as the server has them, or submit there"
        return Check("upload", False, f"{found} has no way to send models there", fix)
    return Check("upload", True, f"{found} sends models to {lab.address.url}")


def endpoint_check(address: Address) -> Check:
    """Check that the endpoint answers as for an agent, and that its certificate stays valid."""
    try:
        answer, ends_at = _ask(address)
    except ssl.SSLError as error:
        fix = "correct FARM_TLS_CERT, FARM_TLS_KEY and FARM_TLS_CA"
        return Check("endpoint", False, f"{address.url}: TLS fails: {error}", fix)
    except (OSError, http.client.HTTPException, FarmError) as error:
        fix = "start it: farm lab serve; it listens where FARM_ENDPOINT leads"
        return Check("endpoint", False, f"{address.url} does not answer: {error}", fix)
    if answer.get("farm") != "well":
        return Check("endpoint", False, f"{address.url} is not a farm endpoint", "correct FARM_ENDPOINT")
    if ends_at is not None and ends_at < utc_now() + SOON:
        found = f"the certificate of {address.url} ends {ends_at:%Y-%m-%d}"
        return Check("endpoint", False, found, "renew it, and restart farm lab serve")
    if address.is_open:
        found = f"{address.url}: tokens cross the network in the clear"
        return Check(
            "endpoint",
            False,
            found,
            "set FARM_TLS_CERT and FARM_TLS_KEY, and let FARM_ENDPOINT begin with https",
        )
    return Check("endpoint", True, f"answers at {address.url}; for Prometheus: {address.url}/metrics")


def _ask(address: Address) -> tuple[dict[str, Any], datetime | None]:
    ends_at = None
    connection = open_connection(address, ANSWER_LIMIT_S)
    try:
        # Explicitly, to read the certificate: the answer to a request without a token closes the connection.
        connection.connect()
        if isinstance(connection.sock, ssl.SSLSocket):
            ends_at = _end_of(connection.sock)
        connection.request("GET", "/health")
        body = connection.getresponse().read(10_000)
    finally:
        connection.close()
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}, ends_at


def _end_of(connection: ssl.SSLSocket) -> datetime | None:
    certificate = connection.getpeercert() or {}
    text = certificate.get("notAfter")
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC) if isinstance(text, str) else None


MIN_FREE_BYTES = 1024**3
"""Free space below which the disk is a fault: 1 GiB, the floor that `config.limits` keeps on a large disk."""


def examine(
    home: FarmHome, database: Database, hello: Callable[[], messages.AgentHello], lab: LabConfig | None = None
) -> list[Check]:
    """Check every part. Raises nothing: a failure is a check that is not ok."""
    # The parts on which all others depend come first: the first fault is the one to fix first.
    lab = lab or LabConfig()
    local = [_home(home), _filesystem(home), _disk(home), _database(database)]
    local.append(store_check(home.store, lab.limits))
    if lab.is_lab and lab.address is not None:
        local.append(endpoint_check(lab.address))
    local += _reservations(database)
    if not lab.is_lab:
        return [*local, _scheduler(home), *_agent(hello)]
    from orchestrator.doctor.lab import lab_checks  # noqa: PLC0415  # Redis and cryptography, as only labs have

    return [*local, *_upload(home, database, lab), *lab_checks(lab, database)]


def _reservations(database: Database) -> list[Check]:
    """List the reserved devices: no fault, but the reason why others' cells wait."""
    try:
        with database.read() as session:
            held = states.all_of_them(session, utc_now())
    except FarmError:
        return []  # the check of the database says why
    return [Check("reserved", True, "; ".join(f"{one.device_id} {one}" for one in held))] if held else []


def _upload(home: FarmHome, database: Database, lab: LabConfig) -> list[Check]:
    try:
        check = upload_check(home.store, lab, database)
    except FarmError as error:
        return [Check("upload", False, str(error), "see the checks before")]
    return [] if check is None else [check]


def examine_without_database(home: FarmHome, lab: LabConfig, error: FarmError) -> list[Check]:
    """Check the parts that need no database; `error` tells why it cannot be used."""
    why, _, fix = str(error).partition("; ")
    usable = home.root.is_dir()
    checks = [_home(home), _disk(home)] if usable else []
    # A home that is refused was not searched for a database: then the home is the fault.
    if not usable or checks[0].ok:
        checks.append(Check("database" if usable else "home", False, why, fix or "see FARM_DATABASE_URL"))
    if not lab.is_lab:
        return checks
    from orchestrator.doctor.lab import broker_check  # noqa: PLC0415  # see `examine`

    return [*checks, broker_check(lab)]


def _home(home: FarmHome) -> Check:
    exposure = exposure_of(home.root)
    if exposure is not None:
        return Check("home", False, exposure.found, exposure.fix)
    if os.access(home.root, os.W_OK | os.X_OK):
        return Check("home", True, str(home.root))
    fix = f"make {home.root} writable for this user, or set FARM_HOME to another folder"
    return Check("home", False, f"{home.root} is not writable", fix)


def _filesystem(home: FarmHome) -> Check:
    kind = filesystem_of(home.root)
    if kind in NETWORK_FILESYSTEMS:
        return Check(
            "filesystem", False, f"{kind}: SQLite needs a local disk", "set FARM_HOME to a local folder"
        )
    return Check("filesystem", True, kind)


def _disk(home: FarmHome) -> Check:
    free = shutil.disk_usage(home.root).free
    found = f"{free / 1024**3:.1f} GiB free"
    if free < MIN_FREE_BYTES:
        return Check(
            "disk", False, found, f"free at least {MIN_FREE_BYTES / 1024**3:.0f} GiB, or set FARM_HOME"
        )
    return Check("disk", True, found)


def _database(database: Database) -> Check:
    try:
        state = database.integrity()
        found = f"{database.name} revision {revision(database)}, integrity {state}"
    except FarmError as error:
        return Check("database", False, str(error), "restore a backup (farm.db.backup-*), or set FARM_HOME")
    if state != "ok":
        return Check("database", False, found, "restore a backup (farm.db.backup-*), or set FARM_HOME")
    return Check("database", True, found)


def _scheduler(home: FarmHome) -> Check:
    holder = lock_holder(home.scheduler_lock)
    if holder is None:
        return Check("scheduler", True, "not running; `farm submit` starts one")
    return Check("scheduler", True, f"running, process {holder.pid}")


def _agent(hello: Callable[[], messages.AgentHello]) -> list[Check]:
    try:
        report = hello()
    except FarmError as error:
        return [Check("agent", False, str(error), "see the end of agent/agent.log in the farm's folder")]
    names = ", ".join(device.device_id for device in report.devices) or "none"
    checks = [
        Check(
            "agent",
            bool(report.devices),
            f"devices: {names}",
            "" if report.devices else "see agent/agent.log in the farm's folder",
        )
    ]
    checks += [*sandbox_checks(report.devices), *attached_checks(report)]
    checks += [
        Check("tuning", True, device.facts.get(messages.HOST_TUNING_FACT, "unknown"))
        # A fact of the host, which each of its devices repeats.
        for device in report.devices[:1]
    ]
    drivers = {api: [one for one in report.devices if one.api == api] for api in ("opencl", "cuda")}
    checks += [
        Check(api, True, "; ".join(_compiling(device) for device in found))
        for api, found in drivers.items()
        if found
    ]
    if not any(drivers.values()):
        why = next((entry.reason for entry in report.missing if entry.kind == "gpu"), "no OpenCL device")
        fix = "install your GPU's OpenCL driver, or PoCL: apt-get install pocl-opencl-icd"
        checks.append(Check("opencl", False, why, fix))
    return [*checks, _peer(report)]


def _compiling(device: messages.Device) -> str:
    """Describe the device, its driver's time for the smallest kernel, and the findings of the probe."""
    seconds, narrow = (
        device.facts.get(messages.FIRST_KERNEL_FACT),
        device.facts.get(messages.NARROW_NUMBERS_FACT),
    )
    known = [f"its first kernel took {seconds} s"] if seconds else []
    known += [f"it has {narrow}"] if narrow else []
    checked = device.facts.get(messages.CONFORMANCE_FACT)
    known += [checked] if checked else []
    between = device.facts.get(messages.IN_THE_WAY_FACT)
    known += [f"in front of its driver: {between}"] if between else []
    told = f" ({'; '.join(known)})" if known else ""
    return f"{device.device_id}: {device.name}{told}"


def _peer(report: messages.AgentHello) -> Check:
    missing = next((entry.reason for entry in report.missing if entry.kind == "litert"), None)
    if missing is None:
        return Check("ai-edge-litert", True, version("ai-edge-litert"))
    # The agent's words end with the command that installs it on its machine.
    why, _, fix = missing.partition(": ")
    found = f"{why}: no `litert` delegate, and outputs are judged against `cpu`"
    return Check("ai-edge-litert", False, found, fix)
