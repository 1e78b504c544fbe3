"""The devices of this host, as a runner process lists (`--probe`) or checks them (`--check`).

Only a valid answer is accepted.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import TypeVar

from pydantic import Field

from agent.processes.environment import for_runner
from agent.processes.exit_reason import describe_exit, last_line
from agent.wire.bounded import MAX_DEVICES, MAX_KINDS, Count, Facts, Id, Text, Wire
from agent.wire.messages import Device, MissingDelegate

RUNNER_COMMAND = (sys.executable, "-P", "-m", "agent.runner")
"""`-P`: a file called `numpy.py` in the user's folder must not become part of a measurement."""

PROBE_TIMEOUT_S = 20.0
"""Seconds that one listing may take. Loading OpenCL drivers and compiling a first kernel on each device takes
seconds; a driver that hangs delays the agent's start by this long."""


CHECK_TIMEOUT_S = 3600.0
"""Seconds that a check of all devices may take. One takes a minute on two cores, nearly all of it in the
driver's compiler; the slowest driver tried needs thirty times as long for a kernel."""


class ProbeError(Exception):
    """The host's devices could not be listed, not even its CPU."""


class ProbeReport(Wire):
    """The answer of `python -m agent.runner --probe`."""

    devices: tuple[Device, ...] = Field(max_length=MAX_DEVICES)
    missing: tuple[MissingDelegate, ...] = Field(default=(), max_length=MAX_KINDS)


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


_Answer = TypeVar("_Answer", ProbeReport, CheckReport)


def check(*, again: bool = False, timeout_s: float = CHECK_TIMEOUT_S) -> CheckReport:
    """Check the operators of every OpenCL device, and keep what is found for the runs that follow.

    Devices that were checked before with the same driver and kernels are not checked `again` unless asked.
    Raises `ProbeError` where the check ended without an answer; nothing is kept of the device in question.
    """
    command = [*RUNNER_COMMAND, "--check", *(["--again"] if again else [])]
    return _ask(command, timeout_s, CheckReport)


def probe(command: Sequence[str] = RUNNER_COMMAND, timeout_s: float = PROBE_TIMEOUT_S) -> ProbeReport:
    """List the devices. A driver that crashes or hangs loses the OpenCL devices, never the CPU.

    Raises `ProbeError` where not even the CPU can be described.
    """
    try:
        return _ask([*command, "--probe"], timeout_s, ProbeReport)
    except ProbeError as error:
        reason = f"listing OpenCL devices failed: {error}"
        return _ask([*command, "--probe", "--without-opencl", reason], timeout_s, ProbeReport)


def _ask(command: list[str], timeout_s: float, answer_type: type[_Answer]) -> _Answer:
    try:
        answer = subprocess.run(  # noqa: S603  # our own runner
            command,
            env=for_runner(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise ProbeError(f"{command[0]} cannot be run: {error.strerror}") from error
    if answer.returncode != 0:
        last = last_line(answer.stderr.decode(errors="replace"))
        raise ProbeError(
            f"the probe ended with {describe_exit(answer.returncode)}" + (f": {last}" if last else "")
        )
    try:
        return answer_type.model_validate_json(answer.stdout)
    except ValueError as error:
        raise ProbeError(f"the probe's answer is not understood: {error}") from error
