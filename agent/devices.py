"""The devices of this host, as a runner process lists (`--probe`) or checks them (`--check`).

Only a valid answer is accepted. The process imports every installed delegate and loads every driver, so it
runs in the boundary of a runner, in a folder of its own.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Final, TypeVar

from pydantic import Field, TypeAdapter

from agent.attached.hosts import Attached
from agent.processes.environment import farm_cache, for_runner, own_caches
from agent.processes.exit_reason import last_line, told
from agent.processes.left_files import LOG_FILE
from agent.processes.sandbox.boundary import TEMPORARY_FOLDER, SandboxSettings, boundary_for
from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.sandbox.reach import Reach
from agent.wire.bounded import MAX_DEVICES, MAX_KINDS, Count, Facts, Id, Text, Wire
from agent.wire.messages import Device, MissingDelegate
from agent.wire.profile import Explained
from runtime.common.durable import write_atomically
from runtime.common.installation import WHEEL_PACKAGE

RUNNER_COMMAND = (sys.executable, "-P", "-m", "agent.runner")
"""`-P`: a file called `numpy.py` in the user's folder must not become part of a measurement."""

COMMIT_RUNNER_COMMAND = (*RUNNER_COMMAND[:-1], f"{WHEEL_PACKAGE}.agent.runner")
"""The same of a wheel of another commit, which is first on the path: a clone's modules have other names."""

PROBE_TIMEOUT_S = 20.0
"""Seconds that one listing may take on a host with at most one GPU. Loading OpenCL drivers and compiling a
first kernel takes seconds; a driver that hangs delays the agent's start by this long."""

FURTHER_GPU_S = 10.0
"""Seconds for each further GPU. Without NVIDIA's persistence mode a GPU takes some seconds until its first
context is there; less would lose all GPUs of a host of eight, more lets a driver that hangs delay a start."""

_GPU_NODES = ("nvidia[0-9]*", "dri/renderD*")
"""Nodes in /dev of which each GPU has one; NVIDIA's may have one of each kind."""


CHECK_TIMEOUT_S = 3600.0
"""Seconds that a check of all devices may take. One takes a minute on two cores, nearly all of it in the
driver's compiler; the slowest driver tried needs thirty times as long for a kernel."""


Findings = Annotated[dict[Id, Annotated[str, Field(max_length=500)]], Field(max_length=64)]
"""What trials of drivers found, by device and driver. Bounded, as they are an argument of the next listing:
the kernel takes 128 KiB for one. Real ones have some 150 characters."""

_FINDINGS: Final = TypeAdapter(Findings)
_FINDINGS_FILE: Final = "findings.json"
"""Name of the file that keeps them, in the cache of the agent's user: of all farms on this host."""


class ProbeError(Exception):
    """The host's devices could not be listed, not even its CPU."""


class ProbeReport(Wire):
    """The answer of `python -m agent.runner --probe`."""

    devices: tuple[Device, ...] = Field(max_length=MAX_DEVICES)
    missing: tuple[MissingDelegate, ...] = Field(default=(), max_length=MAX_KINDS)
    findings: Findings = Field(default_factory=dict)


class CheckedDevice(Wire):
    """The result of a check on one device: operators that agree with the CPU path, and how others differ.

    `fault`: why the device could not be checked; empty if it was. `is_new`: it was checked just now.
    """

    device_id: Id
    name: Text
    agreed: Count = 0
    wrong: Facts = Field(default_factory=dict)
    fault: Text = ""
    is_new: bool = True


class CheckReport(Wire):
    """The answer of `python -m agent.runner --check`."""

    devices: tuple[CheckedDevice, ...] = Field(max_length=MAX_DEVICES)


_Answer = TypeVar("_Answer", ProbeReport, CheckReport, Explained)


def check(*, again: bool = False, timeout_s: float = CHECK_TIMEOUT_S) -> CheckReport:
    """Check the operators of every OpenCL device, and keep what is found for the runs that follow.

    Devices that were checked before with the same driver and kernels are not checked `again` unless asked.
    Raises `ProbeError` where the check ended without an answer; nothing is kept of the device in question.
    """
    command = [*RUNNER_COMMAND, "--check", *(["--again"] if again else [])]
    return ask(command, timeout_s, CheckReport, keeps=True)


def probe(
    command: Sequence[str] = RUNNER_COMMAND,
    timeout_s: float | None = None,
    sandbox: SandboxSettings | None = None,
    releases: Sequence[str] = (),
) -> ProbeReport:
    """List the devices. A driver that crashes or hangs loses what drivers list, one of WebGPU the adapters
    alone; none loses the CPU.

    `sandbox`: None for what the environment says. `timeout_s`: None for what the host's GPUs need.
    `releases`: of packages beside the installed ones, as `Wheels.releases` names them.
    Raises `ProbeError` where not even the CPU can be described.
    """
    timeout_s = probe_limit_s() if timeout_s is None else timeout_s
    asked = [*command, "--probe", *(("--releases", ",".join(releases)) if releases else ())]
    # The probe itself may not write there, and its own program caches are empty.
    keep = farm_cache(for_runner()) / _FINDINGS_FILE
    known = _kept(keep)
    if known:
        asked += ("--known", json.dumps(known))
    try:
        report = ask(asked, timeout_s, ProbeReport, sandbox)
    except ProbeError as error:
        without = ("--without-drivers", f"listing OpenCL devices failed: {error}")
        return ask([*asked, *without], timeout_s, ProbeReport, sandbox)
    if report.findings and report.findings != known:
        _keep(keep, report.findings)
    return report


def _kept(path: Path) -> dict[str, str]:
    """Return the findings of the listing before; none where there are none, or the file is damaged."""
    try:
        return _FINDINGS.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return {}


def _keep(path: Path, findings: dict[str, str]) -> None:
    # Where nothing can be written, the next listing makes them anew, which takes seconds.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, _FINDINGS.dump_json(findings), 0o600)


def with_attached(report: ProbeReport, attached: Sequence[Attached]) -> ProbeReport:
    """Return the report with the attached devices that answer, and why others do not."""
    if not attached:
        return report
    from agent.attached.listing import described_each  # noqa: PLC0415  # most hosts have none

    devices, missing = [*report.devices], [*report.missing]
    own = {device.device_id for device in devices}
    for one, found in zip(attached, described_each(attached), strict=True):
        answer = "its name is that of a device of this host" if one.name in own else found
        if isinstance(answer, str):
            missing.append(MissingDelegate(kind=f"{one.kind}:{one.name}", reason=answer))
        else:
            devices.append(answer)
    return ProbeReport(devices=tuple(devices), missing=tuple(missing))


def probe_limit_s(nodes: Path = Path("/dev")) -> float:
    """Return the seconds that a listing may take by the GPUs that the kernel knows."""
    gpus = max(len(list(nodes.glob(pattern))) for pattern in _GPU_NODES)
    return PROBE_TIMEOUT_S + FURTHER_GPU_S * max(0, gpus - 1)


def ask(
    command: list[str],
    timeout_s: float,
    answer_type: type[_Answer],
    sandbox: SandboxSettings | None = None,
    *,
    keeps: bool = False,
    read: tuple[Path, ...] = (),
    what: str = "the probe",
) -> _Answer:
    """Run a runner's command within the boundary and return its answer. `keeps`: it may write into the farm's
    cache; `read`: what it may read besides. Raises `ProbeError`, in whose text it is `what`.
    """
    with tempfile.TemporaryDirectory(prefix="farm-probe-", ignore_cleanup_errors=True) as folder:
        try:
            code, out, log = _answered(command, timeout_s, Path(folder), sandbox, read, keeps=keeps)
        except subprocess.TimeoutExpired as error:
            raise ProbeError(f"no answer within {timeout_s:g} s") from error
        except OSError as error:
            raise ProbeError(f"{command[0]} cannot be run: {error.strerror}") from error
        except ValueError as error:
            raise ProbeError(f"{command[0]} cannot be run: {error}") from error
    if code != 0:
        raise ProbeError(f"{what} ended with {told(code, log)}")
    try:
        return answer_type.model_validate_json(out)
    except ValueError as error:
        raise ProbeError(f"the answer of {what} is not understood: {error}") from error


def _answered(
    command: Sequence[str],
    timeout_s: float,
    folder: Path,
    sandbox: SandboxSettings | None,
    read: tuple[Path, ...],
    *,
    keeps: bool,
) -> tuple[int, bytes, str]:
    """Run the command in a folder of its own, within a boundary; end what it leaves running.

    Returns exit code, stdout and log. Raises `OSError`, `ValueError` and `TimeoutExpired`.
    """
    settings = sandbox or SandboxSettings.from_environment()
    environment = for_runner()
    cache = farm_cache(environment).resolve()
    if settings.on:
        temporary = folder / TEMPORARY_FOLDER
        temporary.mkdir()
        # The farm's own cache stays where it is: what a check of the operators found is in it.
        environment |= {**own_caches(folder), "FARM_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}
    if keeps:
        # A boundary opens only what exists when it is closed.
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = (folder, cache) if keeps else (folder,)
    close = (
        closing(command, environment, (cache, *read, *settings.read), own, settings) if settings.on else None
    )
    # A file, not a pipe: what a boundary that cannot be closed says is there although no process came to be.
    with (folder / LOG_FILE).open("w+b") as log:
        try:
            process = subprocess.Popen(  # noqa: S603  # our own runner
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # A group of its own, which is killed as a whole.
                process_group=0,
                preexec_fn=close,  # noqa: PLW1509  # this process has one thread
            )
        except subprocess.SubprocessError as error:
            raise ValueError(last_line(_text(log)) or str(error)) from error
        with process:
            try:
                out, _ = process.communicate(timeout=timeout_s)
            finally:
                # Behind an answer too: nothing that it started may stay.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, out, _text(log)


def _text(log: BinaryIO) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def closing(
    command: Sequence[str],
    environment: dict[str, str],
    read: Sequence[Path],
    own: tuple[Path, ...],
    settings: SandboxSettings,
) -> Callable[[], None]:
    """Return what closes the boundary: a runner's, and that of an arm, whose process group nothing leaves."""
    reach = Reach(command, environment, read, (*own, *settings.write))
    boundary = boundary_for(reach, own[0], settings.users)
    inner = InnerBoundary(own, chosen=settings.write)

    def enter() -> None:
        boundary.enter()
        inner.enter()

    return enter
