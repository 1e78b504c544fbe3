"""The machines of a lab under test: agents and the server, each a production process in its own namespace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from agent.wire.environment import EXTRA_VARIABLE
from agent.wire.messages import Device
from tests.faults import truth
from tests.faults.runner import TRUTH_FILE
from tests.needs import REPOSITORY
from tests.services.network import Node
from tests.services.processes import Server

REAL_CPU = "host-cpu"
"""What the product's probe calls the CPU of a host."""

ENTRY = REPOSITORY / "tests/faults/entry.py"


def fake_devices(name: str, count: int = 2) -> tuple[Device, ...]:
    """`count` devices of the host `name`, each with silicon of its own."""
    return tuple(
        Device(
            device_id=f"{index}",
            kind="gpu",
            api="opencl",
            name=f"Fake {index}",
            vendor="Fake",
            delegates=("cpu", "gpu"),
            exclusion_group=f"{name}-{index}",
            environment={"driver": "1.0", "host": name},
        )
        for index in range(count)
    )


@dataclass(frozen=True)
class Held:
    """The open files, connections and memory of a process."""

    descriptors: int
    resident_bytes: int

    def is_far_above(self, before: Held) -> bool:
        """Above the connections of a pool, a log, a lease; or a tenth more memory, and 8 MiB."""
        memory = 1.1 * before.resident_bytes + (8 << 20)
        return self.descriptors > before.descriptors + 8 or self.resident_bytes > memory


@dataclass
class Machine:
    """One program on one node. `environment` is what it gets besides a plain shell's; `inside`: a command
    that gets its command appended (`forms.inside`).
    """

    node: Node
    folder: Path
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    inside: tuple[str, ...] = ()
    server: Server | None = None
    said_before: int = 0

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pid(self) -> int:
        assert self.server is not None
        return self.server.pid

    @property
    def running(self) -> bool:
        return self.server is not None and self.server.running

    def says(self, words: str) -> bool:
        """Whether it said this since its last start."""
        return words in self.log.read_text(errors="replace")[self.said_before :]

    def start(self, **more: str) -> None:
        """Start it; `more` are environment variables of this start alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.said_before = len(self.log.read_text(errors="replace")) if self.log.exists() else 0
        command = [*self.inside, sys.executable, str(ENTRY), *self.arguments]
        environment = {**plain_environment(), **self.environment, **more}
        self.server = Server(self.node.command(command), self.log, environment)

    def held(self) -> Held:
        """Return what its process holds now. Raises `OSError` if there is none."""
        folder = Path(f"/proc/{self.pid}")
        pages = int((folder / "statm").read_text().split()[1])
        return Held(len(list((folder / "fd").iterdir())), pages * os.sysconf("SC_PAGESIZE"))

    def kill(self) -> None:
        """SIGKILL to this process alone: what it started is left to the product."""
        assert self.server is not None
        self.server.send(signal.SIGKILL)
        self.server.end()

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        assert self.server is not None
        return self.server.stop(signal.SIGTERM)

    def pause(self) -> None:
        assert self.server is not None
        self.server.pause()

    def resume(self) -> None:
        assert self.server is not None
        self.server.resume()

    def close(self) -> None:
        if self.server is not None:
            self.server.kill()


@dataclass
class AgentMachine(Machine):
    """A `farm-agent`. `silicon`: what it shares with other agents of the same name for it."""

    name: str = ""
    silicon: str = ""

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def start(self, **more: str) -> None:
        """Start it. Its runners may write their truth into a file that is there before they are."""
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / TRUTH_FILE).touch()
        super().start(**more)

    def plug_in(self, *devices: Device) -> None:
        """Set the devices that the next probe finds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps([device.model_dump(mode="json") for device in devices])
        (self.folder / "devices.json").write_text(text)

    def device_ids(self) -> set[str]:
        """Return the farm's names of its devices."""
        chosen = self.folder / "devices.json"
        if not chosen.exists():
            return {f"{self.name}.{REAL_CPU}"}
        return {f"{self.name}.{device['device_id']}" for device in json.loads(chosen.read_text())}

    def running_attempts(self) -> list[truth.Fact]:
        """Return the attempts whose runner lives now, by its own word."""
        found = truth.facts([self.state])
        ended = {fact.attempt_id for fact in found if fact.event == "completed"}
        started = [fact for fact in found if fact.event == "started" and fact.attempt_id not in ended]
        return [fact for fact in started if Path(f"/proc/{fact.pid}").exists()]

    def link_pids(self) -> list[int]:
        """Return the processes that talk to the broker for this agent."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if b"agent.link" in _command_line(pid)]

    def forget(self) -> None:
        """Delete the machine's state, as a new installation does."""
        shutil.rmtree(self.state)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def plain_environment() -> dict[str, str]:
    """Return the environment of a login shell: no setting of a farm."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    chosen = {name: os.environ[name] for name in kept if name in os.environ}
    ours = ("FAULT_CLOCK", "FAULT_DEVICES", "FAULT_MUTATION", "FAULT_PROTOCOL", "FAULT_RUNNER")
    return chosen | {
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
        EXTRA_VARIABLE: ",".join(ours),
    }
