"""Where one agent works and what it starts. Read once, at the edge; passed on as a value."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from agent.devices import RUNNER_COMMAND
from agent.wire.messages import Device

STATE_VARIABLE: Final = "FARM_AGENT_STATE"
MEMORY_VARIABLE: Final = "FARM_RUNNER_MEMORY_BYTES"
LOG_PREFIX: Final = "farm-agent: "
"""Begins each line that an agent logs as text; its parent or the journal of systemd adds the time."""

_LEAST_MEMORY_BYTES: Final = 64 << 20


def state_folder() -> Path:
    """Where a lab's agent keeps its journal: `$FARM_AGENT_STATE`, else a folder of this user's."""
    explicit = os.environ.get(STATE_VARIABLE)
    if explicit:
        return Path(explicit).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "farm-agent"


def memory_limit(environment: Mapping[str, str] = os.environ) -> int | None:
    """`$FARM_RUNNER_MEMORY_BYTES`: address space that each process of an attempt may have; None: no limit.

    Raises `ValueError` naming the variable.
    """
    said = environment.get(MEMORY_VARIABLE)
    if not said:
        return None
    if not said.isdecimal() or int(said) < _LEAST_MEMORY_BYTES:
        raise ValueError(
            f"{MEMORY_VARIABLE}: {said!r} is no number of bytes from {_LEAST_MEMORY_BYTES} on; "
            "a runner needs so much before it loads a model"
        )
    return int(said)


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """What an agent in a lab waits for, in seconds; set with `FARM_<NAME>`.

    heartbeat_s   a sign of life, per running attempt and per idle agent
    watchdog_s    a link whose own message does not come back through the broker for so long is restarted
    resend_s      a result without a receipt for so long is sent again
    """

    heartbeat_s: float = 10.0
    watchdog_s: float = 60.0
    resend_s: float = 30.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LinkTimes:
        """Raises `ValueError` naming the variable."""
        chosen = {}
        for entry in fields(cls):
            name = f"FARM_{entry.name.upper()}"
            try:
                chosen[entry.name] = float(environment.get(name, str(entry.default)))
            except ValueError as error:
                raise ValueError(f"{name}: {environment[name]!r} is no number of seconds") from error
            if chosen[entry.name] <= 0:
                raise ValueError(f"{name}: {environment[name]!r} is not above 0")
        return cls(**chosen)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Folders and commands. `runner_command` gets `JOB.json FOLDER` appended, `probe_command` `--probe`.

    `device_prefix` makes the names of this host's devices its own in a lab; `resend_s` (None: the other
    side is a parent that cannot forget) is how long a result waits for its receipt before it is sent again.

    agent.lock    held (flock) by the one agent that uses this state folder
    journal.db    attempts taken on, and results without a receipt
    runs.log      the ground truth of what ran when (`agent.attempt.runlog`)
    references/   reference outputs by hash
    work/         one folder per live attempt
    """

    agent_id: str
    state: Path
    store: Path
    leases: Path
    heartbeat_s: float = 1.0
    runner_command: Sequence[str] = RUNNER_COMMAND
    probe_command: Sequence[str] = RUNNER_COMMAND
    memory_limit_bytes: int | None = None
    device_prefix: str = ""
    resend_s: float | None = None

    def named(self, device: Device) -> Device:
        """A device under the name that the farm knows it by."""
        return device.model_copy(update={"device_id": self.device_prefix + device.device_id})

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
        """The log of starts and ends."""
        return self.state / "runs.log"

    @property
    def references(self) -> Path:
        """Cached reference outputs."""
        return self.state / "references"

    def folder(self, attempt_id: str) -> Path:
        """Work folder of an attempt."""
        return self.state / "work" / attempt_id
