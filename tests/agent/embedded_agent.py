"""The orchestrator's end of an embedded agent, for tests: a real child process over a real socket pair."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent.attached.hosts import attached_devices
from agent.config import AgentConfig
from agent.daemon import serve
from agent.processes.sandbox.boundary import SandboxSettings
from agent.wire.bounded import Wire
from agent.wire.messages import (
    AgentHello,
    Heartbeat,
    JobRefused,
    JobResult,
    JobSpec,
    JobStarted,
    Receipt,
    artifact_path,
    decode_for_orchestrator,
    encode,
)
from agent.wire.plan import MeasurePlan
from tests.services import known
from tests.services.forks import Fork, starts_afresh

PATIENCE_S = 60.0
BRIEF = MeasurePlan(
    min_blocks=1, max_blocks=1, warmup_runs=1, warmup_seconds=0.0, rounds=3, slice_runs=4, slice_seconds=0.0
)
M = TypeVar("M", bound=Wire)
_EPOCHS = itertools.count(1)

_SERVE = """
import sys
from tests.agent.embedded_agent import main
from tests.services import forked_children, known
if folder := known.shared_folder():
    known.share(folder)
    forked_children.import_runners()
sys.exit(main())
"""


def main() -> int:
    """Serve as an agent: the arguments are its configuration as JSON and a connected socket."""
    given = json.loads(sys.argv[1])
    paths = {name: Path(given.pop(name)) for name in ("state", "store", "leases")}
    chosen = given.pop("sandbox")
    more = (tuple(map(Path, chosen.get(name, ()))) for name in ("read", "write"))
    given |= {"sandbox": SandboxSettings(chosen["on"], *more), "attached": attached_devices()}
    return serve(AgentConfig(agent_id="test", **paths, **given), int(sys.argv[2]))


class EmbeddedAgent:
    """Starts an agent on `folder`. `runner` replaces the runner's command line. The agent runs
    `inside` a command, and its runners with the settings of `sandbox`. `shares`: it takes the references that
    others have made; by default where its runner is the product's.
    """

    def __init__(
        self,
        folder: Path,
        runner: Sequence[str] | None = None,
        memory_limit_bytes: int | None = None,
        state: str = "agent",
        probe_command: Sequence[str] | None = None,
        sandbox: dict[str, Any] | None = None,
        inside: Sequence[str] = (),
        patience_s: float = PATIENCE_S,
        shares: bool | None = None,
    ) -> None:
        self.folder = folder
        self.state = folder / state
        self.store = folder / "store"
        if sandbox is None:
            notes = self.state / "notes"
            for made in (self.state, notes):
                made.mkdir(0o700, parents=True, exist_ok=True)
            sandbox = {"on": True, "write": [str(notes)]}
        config: dict[str, Any] = {
            "state": str(self.state),
            "store": str(self.store),
            "leases": str(folder / "leases"),
            "heartbeat_s": 0.1,
            "sandbox": sandbox,
        }
        if runner is not None:
            config["runner_command"] = list(runner)
        if memory_limit_bytes is not None:
            config["memory_limit_bytes"] = memory_limit_bytes
        if probe_command is not None:
            config["probe_command"] = list(probe_command)
        ours, theirs = socket.socketpair()
        with theirs:
            alone = {} if (runner is None if shares is None else shares) else known.ALONE
            self.process = _started(json.dumps(config), theirs.fileno(), os.environ | alone, inside)
        ours.settimeout(patience_s)
        self._socket = ours
        self._lines = ours.makefile("rb")
        self.seen: list[Wire] = []
        self.hello = self.expect(AgentHello)

    def send(self, message: Wire) -> None:
        self._socket.sendall(encode(message))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def expect(self, kind: type[M], where: Callable[[M], bool] = lambda _m: True) -> M:
        """Return the next message of a kind; whatever comes before it is kept in `seen`."""
        while line := self._lines.readline():
            message = decode_for_orchestrator(line)
            self.seen.append(message)
            if isinstance(message, kind) and where(message):
                return message
        raise AssertionError(f"the agent hung up before {kind.__name__}; seen: {self.seen}")

    def run(self, job: JobSpec) -> JobResult:
        """Send a job, wait for its result, give the receipt."""
        self.send(job)
        begun = self.expect(
            Wire, lambda m: isinstance(m, JobStarted | JobRefused) and m.attempt_id == job.attempt_id
        )
        assert isinstance(begun, JobStarted), f"{begun}; missing: {self.hello.missing}"
        result = self.expect(JobResult, lambda message: message.attempt_id == job.attempt_id)
        self.send(Receipt(attempt_id=result.attempt_id))
        return result

    def refusal(self, job: JobSpec) -> JobRefused:
        self.send(job)
        return self.expect(JobRefused)

    def phases(self) -> list[str]:
        return [m.phase for m in self.seen if isinstance(m, Heartbeat)]

    def hang_up(self) -> None:
        self._lines.close()
        self._socket.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()

    def close(self) -> None:
        """End the agent by hanging up; it must go by itself. Nothing happens to one that is gone."""
        self.hang_up()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise


def _started(
    config: str, descriptor: int, environment: dict[str, str], inside: Sequence[str]
) -> Fork | subprocess.Popen[bytes]:
    """Start the agent, as a fork where nothing has to happen before it is called."""
    if inside or starts_afresh(environment):
        return subprocess.Popen(
            [*inside, sys.executable, "-c", _SERVE, config, str(descriptor)],
            env=environment,
            pass_fds=[descriptor],
            start_new_session=True,
        )
    with Path(os.devnull).open("rb") as nothing:
        return Fork(
            [f"{__name__}:main", config],
            (nothing.fileno(), 1, 2),
            Path.cwd(),
            environment,
            session=True,
            descriptors=[descriptor],
        )


def put_model(store: Path, model: Path) -> tuple[str, int]:
    """Copy a model into a store: its sha256 and size."""
    data = model.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    target = artifact_path(store, sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(model, target)
    return sha256, len(data)


def job(model: tuple[str, int], delegate: str = "litert", device: str = "host-cpu", **fields: Any) -> JobSpec:
    """Build a job with a fresh id and a brief plan."""
    values: dict[str, Any] = {
        "attempt_id": uuid.uuid4().hex,
        "attempt_no": 1,
        "cell_id": "cell",
        "epoch": next(_EPOCHS),
        "device_id": device,
        "model_id": "tiny",
        "model_sha256": model[0],
        "model_bytes": model[1],
        "delegate": delegate,
        "delegate_kind": delegate,
        "plan": BRIEF,
    }
    return JobSpec(**{**values, **fields})


def eventually(condition: Callable[[], bool], what: str, limit_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds; fail with `what` after a long time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process lives (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
