"""An agent without a runtime: speaks the wire, measures nothing, keeps every promise of a real one.

`python -m tests.contract.fake_agent --state DIR --store DIR --embedded --fd N`. A job's `delegate_options`
say how its fake runner behaves (`behave`) and how long it takes (`seconds`; `first_seconds` the first time).
`DIR/devices.json`, where present, replaces the devices. `DIR/truth.jsonl` is the ground truth: one line per
start and per end of a runner, written under the lock of its exclusion group.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from agent.runner.judge.stopping import Stopped
from agent.transport.process import ALIVE
from agent.wire.measurement import (
    Accuracy,
    BlockFigure,
    Delegation,
    Latency,
    Measurement,
    Quality,
)
from agent.wire.messages import (
    AgentHello,
    CancelJob,
    Device,
    Heartbeat,
    JobRefused,
    JobResult,
    JobSpec,
    JobStarted,
    MissingDelegate,
    Reason,
    ReasonCode,
    Receipt,
    Shutdown,
    Status,
    artifact_path,
    decode_for_agent,
    encode,
)
from agent.wire.reference import ReferenceRecord

REFERENCE_KEY = "7" * 64
CPU = Device(
    device_id="host-cpu",
    kind="cpu",
    api="host",
    name="Fake CPU",
    delegates=("cpu", "litert"),
    exclusion_group="host",
    environment={"cpu": "fake", "driver": "550.90"},
)
POCL = Device(
    device_id="pocl",
    kind="cpu",
    api="opencl",
    name="Fake PoCL",
    delegates=("gpu",),
    exclusion_group="host",
    environment={"opencl": "fake 3.1"},
)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--state", "--store"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--prefix", default="")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = socket.socket(fileno=given.fd)
    FakeAgent(given.state, given.store, link, given.prefix).serve()


def measurement(samples_sha256: str | None, verdict: str = "pass") -> Measurement:
    return Measurement(
        latency_ms=Latency(
            init=3.0, init_warm=2.0, first=2.0, p50=1.0, p90=None, p99=None, mean=1.0, ci95=(0.9, 1.1),
            missing={"p90": "needs 64 samples", "p99": "needs 662 samples"},
        ),
        samples=30,
        memory_peak_bytes=1000,
        accuracy=Accuracy(
            reference="fake", max_abs=0.0, rel_l2=0.0, cosine=1.0, verdict=verdict, rule="bit-equal"
        ),
        delegation=Delegation(status="full", delegated_ops=3, total_ops=3, partitions=1),
        settings={},
        samples_sha256=samples_sha256,
    )  # fmt: skip


@dataclass
class FakeAgent:
    state: Path
    store: Path
    link: socket.socket
    prefix: str = ""
    job: JobSpec | None = None
    ends_at: float = 0.0
    seq: int = 0
    buffer: bytes = b""
    lease: int = -1
    told: dict[str, JobResult] = field(default_factory=dict)

    @property
    def spool(self) -> Path:
        return self.state / "spool"

    def serve(self) -> None:
        self.spool.mkdir(parents=True, exist_ok=True)
        self.send(self.hello())
        for path in sorted(self.spool.glob("*.json")):
            self.send(JobResult.model_validate_json(path.read_bytes()))
        while True:
            readable, _, _ = select.select([self.link], [], [], self.pause())
            if readable and not self.receive():
                self.end(Status.FAILED, ReasonCode.INTERRUPTED, "the orchestrator went away")
                return
            if self.job is not None:
                self.advance()

    def hello(self) -> AgentHello:
        devices = (CPU, POCL)
        chosen = self.state / "devices.json"
        if chosen.exists():
            devices = tuple(Device.model_validate(entry) for entry in json.loads(chosen.read_text()))
        named = (d.model_copy(update={"device_id": self.prefix + d.device_id}) for d in devices)
        devices = tuple(named)
        kinds = {kind for device in devices for kind in device.delegates}
        missing = [
            MissingDelegate(kind=kind, reason=f"fake: nothing here runs {kind}")
            for kind in ("cpu", "gpu", "litert")
            if kind not in kinds
        ]
        return AgentHello(agent_id="fake", host="here", version="0", devices=devices, missing=tuple(missing))

    def pause(self) -> float | None:
        return None if self.job is None else max(0.0, min(0.1, self.ends_at - time.monotonic()))

    def receive(self) -> bool:
        data = self.link.recv(1 << 16)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            if line == ALIVE:
                continue
            match decode_for_agent(line):
                case JobSpec() as job:
                    self.take(job)
                case CancelJob(attempt_id=attempt_id):
                    if self.job is not None and self.job.attempt_id == attempt_id:
                        self.cancel(self.job)
                case Receipt(attempt_id=attempt_id):
                    (self.spool / f"{attempt_id}.json").unlink(missing_ok=True)
                case Shutdown():
                    self.end(Status.FAILED, ReasonCode.INTERRUPTED, "the farm was stopped")
                    self.link.close()
                    sys.exit(0)
        return bool(data)

    def cancel(self, job: JobSpec) -> None:
        """End the job; one that is to `keep-blocks` has finished two and is done with these."""
        if job.delegate_options.get("behave") == "keep-blocks":
            self.end(Status.DONE, ReasonCode.COMPLETED, "", stopped="cancelled")
        else:
            self.end(Status.CANCELLED, ReasonCode.CANCELLED, "by the user")

    def take(self, job: JobSpec) -> None:
        options = job.delegate_options
        if options.get("behave") == "refuse":
            reason = Reason(code=ReasonCode.ARTIFACT, text="the store lacks the model")
            self.send(JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=reason))
            return
        if job.attempt_id in self.taken():
            if self.job is None or self.job.attempt_id != job.attempt_id:
                reason = Reason(code=ReasonCode.INTERRUPTED, text="it was under way when this agent died")
                self.send(JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=reason))
            return
        assert self.job is None, "two jobs at once on one host"
        self.lease = os.open(self.state / "host.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lease, fcntl.LOCK_EX)
        self.job = job
        seconds = options.get("seconds", 0.02)
        if job.attempt_no == 1:
            seconds = options.get("first_seconds", seconds)
        self.ends_at = time.monotonic() + float(seconds)
        self.truth("start", job)
        self.send(JobStarted(attempt_id=job.attempt_id, epoch=job.epoch))

    def taken(self) -> set[str]:
        """Return the attempts that this agent has ever begun: it begins none of them again."""
        path = self.state / "truth.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {json.loads(line)["attempt_id"] for line in lines}

    def advance(self) -> None:
        job = self.job
        assert job is not None
        self.seq += 1
        if time.monotonic() < self.ends_at:
            self.send(
                Heartbeat(attempt_id=job.attempt_id, epoch=job.epoch, seq=self.seq, phase="measure 1/3")
            )
            return
        behave = str(job.delegate_options.get("behave", "done"))
        first = job.attempt_no == 1
        if behave == "die" or (behave == "die-once" and first):
            os.kill(os.getpid(), signal.SIGKILL)
        crashes = behave == "crash" or (behave == "crash-once" and first)
        status, code, text = {
            "unsupported": (Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_OPERATOR, "operator FAKE, node 0"),
            "timeout": (Status.FAILED, ReasonCode.TIMEOUT, "not finished in time"),
            "oom": (Status.FAILED, ReasonCode.OUT_OF_MEMORY, "out of memory"),
            "wrong": (Status.FAILED, ReasonCode.WRONG_OUTPUT, "cosine 0.1"),
        }.get(behave, (Status.DONE, ReasonCode.COMPLETED, ""))
        if crashes:
            status, code, text = Status.FAILED, ReasonCode.CRASH, "SIGSEGV"
        self.end(status, code, text)

    def end(self, status: Status, code: ReasonCode, text: str, stopped: Stopped = "target") -> None:
        job = self.job
        if job is None:
            return
        self.job = None
        measured = None
        if status is Status.DONE or code is ReasonCode.WRONG_OUTPUT:
            measured = measurement(self.samples(), "pass" if status is Status.DONE else "fail")
            if job.delegate_options.get("behave") == "keep-blocks":
                earlier = () if job.refines is None else job.refines.blocks
                blocks = (*earlier, *(BlockFigure(p50_ns=1e6, rounds=7) for _ in range(2)))
                quality = Quality(blocks=len(blocks), stopped=stopped)
                measured = measured.model_copy(update={"blocks": blocks, "quality": quality})
        result = JobResult(
            attempt_id=job.attempt_id,
            epoch=job.epoch,
            cell_id=job.cell_id,
            device_id=job.device_id,
            status=status,
            reason=None if status is Status.DONE else Reason(code=code, text=text),
            measurement=measured,
            environment=self.environment(job.device_id),
            log_tail="",
            duration_ns=20_000_000,
            references=self.made(job),
        )
        (self.spool / f"{job.attempt_id}.json").write_text(result.model_dump_json())
        self.truth("end", job)
        os.close(self.lease)
        behave = job.delegate_options.get("behave")
        if behave == "die-after-result" and job.attempt_no == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(3 if behave == "repeat-result" else 1):
            self.send(result)

    def made(self, job: JobSpec) -> tuple[ReferenceRecord, ...]:
        """Return a reference, if the attempt is to `refer`."""
        if job.delegate_options.get("behave") != "refer":
            return ()
        file = self.samples()
        size = artifact_path(self.store, file).stat().st_size
        return (
            ReferenceRecord(
                key=REFERENCE_KEY, kind="reference", maker="1/fake", sha256=file, size_bytes=size
            ),
        )

    def environment(self, device_id: str) -> dict[str, str]:
        return next(d.environment for d in self.hello().devices if d.device_id == device_id)

    def samples(self) -> str:
        from hashlib import sha256

        text = json.dumps(
            [
                {
                    "index": 0, "cache": "cold", "init_ns": 3, "first_ns": 2, "warmup_ns": [1],
                    "invoke_ns": [1, 2, 3], "memory_peak_bytes": 5, "memory_before_bytes": 6,
                }
            ]
        ).encode()  # fmt: skip
        digest = sha256(text).hexdigest()
        path = artifact_path(self.store, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        return digest

    def truth(self, what: str, job: JobSpec) -> None:
        line = {
            "what": what,
            "at_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            "attempt_id": job.attempt_id,
            "cell_id": job.cell_id,
            "device_id": job.device_id,
            "references": [record.key for record in job.references],
        }
        with (self.state / "truth.jsonl").open("a") as out:
            out.write(json.dumps(line) + "\n")

    def send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.link.sendall(encode(message))


if __name__ == "__main__":
    main()
