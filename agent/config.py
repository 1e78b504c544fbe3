"""The settings of one agent: its folders, commands and times. They are read once and passed on as values."""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from agent.attached.hosts import KINDS, Attached
from agent.devices import RUNNER_COMMAND, ProbeReport, probe, with_attached
from agent.machine.wheels import Wheels, unpack
from agent.processes.sandbox.boundary import SANDBOXED, SandboxSettings
from agent.wire.messages import Device

STATE_VARIABLE: Final = "FARM_AGENT_STATE"
MEMORY_VARIABLE: Final = "FARM_RUNNER_MEMORY_BYTES"
LOG_PREFIX: Final = "farm-agent: "
"""Prefix of each line that an agent logs as text; its parent or the journal of systemd adds the time."""

_LEAST_MEMORY_BYTES: Final = 64 << 20
"""Lowest limit of a runner's address space in bytes: a Python with numpy needs more before it loads a model,
so a smaller limit would fail every attempt."""


def state_folder() -> Path:
    """Return the state folder of a lab's agent: `$FARM_AGENT_STATE`, else a folder in this user's home."""
    explicit = os.environ.get(STATE_VARIABLE)
    if explicit:
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "farm-agent"


def memory_limit(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return `$FARM_RUNNER_MEMORY_BYTES`, the address space of each process of an attempt; None: no limit.

    Raises `ValueError` naming the variable.
    """
    text = environment.get(MEMORY_VARIABLE)
    if not text:
        return None
    if sys.platform == "darwin":
        raise ValueError(f"{MEMORY_VARIABLE}: the farm bounds no address space on macOS; unset it")
    if not text.isdecimal() or int(text) < _LEAST_MEMORY_BYTES:
        raise ValueError(
            f"{MEMORY_VARIABLE}: {text!r} is not a number of bytes of at least {_LEAST_MEMORY_BYTES}, "
            "which a runner needs before it loads a model"
        )
    return int(text)


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """The times of an agent in a lab, in seconds; set with `FARM_<NAME>`.

    heartbeat_s   between two heartbeats, of each running attempt and of the agent
    watchdog_s    a link through which no ping has come back for so long is restarted
    resend_s      a result without a receipt for so long is sent again
    """

    heartbeat_s: float = 10.0
    watchdog_s: float = 60.0
    resend_s: float = 30.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "LinkTimes":
        """Read the times from the environment. Raises `ValueError` naming the variable."""
        chosen = {}
        for entry in fields(cls):
            name = f"FARM_{entry.name.upper()}"
            try:
                chosen[entry.name] = float(environment.get(name, str(entry.default)))
            except ValueError as error:
                raise ValueError(f"{name}: {environment[name]!r} is not a number of seconds") from error
            # Not `<= 0`, which is false of `nan`.
            if not 0 < chosen[entry.name] < math.inf:
                raise ValueError(f"{name}: {environment[name]!r} is not a finite number above 0")
        return cls(**chosen)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Folders and commands. `runner_command` gets `JOB.json FOLDER` appended, `probe_command` `--probe`.

    `device_prefix` makes the names of this host's devices unique in a lab; `resend_s` is how long a result
    waits for its receipt before it is sent again (None: never, since the other side is the parent process).

    agent.lock    locked (flock) by the only agent that uses this state folder
    journal.db    accepted attempts, and results without a receipt
    runs.log      which process ran when (`agent.attempt.runlog`)
    references/   reference outputs, and why some cannot be made (`agent.attempt.references`)
    workload.json how long the calibration workload took (`agent.machine.workload`)
    work/         one folder per running attempt
    wheels/       releases from the wheels of `wheel_list`, one folder each (`agent.machine.wheels`)
    """

    agent_id: str
    state: Path
    store: Path
    leases: Path
    heartbeat_s: float = 1.0
    runner_command: Sequence[str] = RUNNER_COMMAND
    probe_command: Sequence[str] = RUNNER_COMMAND
    memory_limit_bytes: int | None = None
    sandbox: SandboxSettings = SANDBOXED
    device_prefix: str = ""
    resend_s: float | None = None
    wheel_list: Path | None = None
    wheels: Wheels = field(default_factory=Wheels)
    attached: Sequence[Attached] = ()

    def named(self, device: Device) -> Device:
        """Return a device under the name that the farm knows it by, with the facts of the sandbox and of the
        wheels that were refused; an attached one has its own.
        """
        own = device.api in KINDS
        facts = {**device.facts, **({} if own else {**self.sandbox.facts(), **self.wheels.facts()})}
        return device.model_copy(update={"device_id": self.device_prefix + device.device_id, "facts": facts})

    def attached_as(self, device: Device) -> Attached | None:
        """Return the settings of a device that is attached; None for one of this host."""
        names = {self.device_prefix + one.name: one for one in self.attached}
        return names.get(device.device_id) if device.api in KINDS else None

    @property
    def lock(self) -> Path:
        """Lock file of the agent."""
        return self.state / "agent.lock"

    @property
    def journal(self) -> Path:
        """The journal's SQLite file."""
        return self.state / "journal.db"

    @property
    def runs_log(self) -> Path:
        """The log of process starts and ends."""
        return self.state / "runs.log"

    @property
    def workloads(self) -> Path:
        """The file of the calibration workload's times before and after earlier attempts, by device."""
        return self.state / "workload.json"

    @property
    def references(self) -> Path:
        """The folder of cached reference outputs."""
        return self.state / "references"

    def with_wheels(self) -> "AgentConfig":
        """Return the settings with the allowed wheels unpacked. Raises `OSError`."""
        return replace(self, wheels=unpack(self.wheel_list, self.state / "wheels"))

    def probed(self) -> ProbeReport:
        """List the devices, attached ones too. Raises as `agent.devices.probe`."""
        listed = probe(self.probe_command, sandbox=self.sandbox, releases=self.wheels.releases())
        return with_attached(listed, self.attached)

    @property
    def work(self) -> Path:
        """The folder of the attempts' work folders."""
        return self.state / "work"

    def folder(self, attempt_id: str) -> Path:
        """Return the work folder of an attempt."""
        return self.work / attempt_id
