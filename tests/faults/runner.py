"""A runner of known latency, started by the agent in place of its own; it opens no model.

`runner.py --probe`: the devices of `$FAULT_DEVICES` (a JSON file; absent file: the probe fails).
`runner.py JOB.json FOLDER`: an attempt. The job's delegate options say what it does: `behave` (see `_ACTS`),
`seconds`, `first_only` (misbehave in the first attempt alone), `first_seconds`.

What it did is written beside the agent's journal, by itself, under the lease: `runs.log`
(`agent.attempt.runlog`) and `truth.jsonl`, one line per completed measurement with its figures and hashes.
The checker believes these.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agent.attempt import runlog
from runtime.measure.samples.summary import ProcessTimes, summarise

DEVICES_VARIABLE = "FAULT_DEVICES"
TRUTH_FILE = "truth.jsonl"
STEP_S = 0.02
SLIP_S = 0.5
"""A step that takes so much longer than asked was disturbed: the measurement says so."""


def main(arguments: list[str]) -> int:
    if arguments[0] == "--probe":
        devices = json.loads(Path(os.environ[DEVICES_VARIABLE]).read_text())
        sys.stdout.write(json.dumps({"devices": devices}))
        return 0
    attempt, folder = json.loads(Path(arguments[0]).read_text()), Path(arguments[1])
    log = folder / runlog.FILE
    job, group = attempt["job"], attempt["device"]["exclusion_group"]
    runlog.append(log, "start", job["attempt_id"], group, "measure")
    _note(log, "started", job)
    options = job["delegate_options"]
    first = job["attempt_no"] == 1
    act = str(options.get("behave", "done"))
    if options.get("first_only") and not first:
        act = "done"
    seconds = float(options.get("seconds", 0.1))
    if first:
        seconds = float(options.get("first_seconds", seconds))
    slipped = _work(folder, seconds)
    status, reason = _ACTS[act](folder)
    result = _result(job, folder, status, reason, slipped)
    _write(folder / "result.json", json.dumps(result).encode())
    _note(log, "completed", job, status=status, samples_sha256=result["samples_sha256"])
    runlog.append(log, "end", job["attempt_id"], group, "measure")
    return 0


def _work(folder: Path, seconds: float) -> bool:
    """Pass the time; whether somebody took it from us."""
    slipped = False
    until = time.monotonic() + seconds
    (folder / "progress").write_text("measure 1/1")
    while (now := time.monotonic()) < until:
        time.sleep(min(STEP_S, until - now))
        slipped = slipped or time.monotonic() - now > STEP_S + SLIP_S
    return slipped


def _done(_folder: Path) -> tuple[str, dict[str, str] | None]:
    return "done", None


def _wrong(_folder: Path) -> tuple[str, dict[str, str] | None]:
    return "failed", {"code": "wrong_output", "text": "cosine 0.1"}


def _unsupported(_folder: Path) -> tuple[str, dict[str, str] | None]:
    return "unsupported", {"code": "unsupported_operator", "text": "operator FAKE, node 0"}


def _device_lost(_folder: Path) -> tuple[str, dict[str, str] | None]:
    return "failed", {"code": "device_lost", "text": "the device does not answer any more"}


def _crash(_folder: Path) -> Any:
    ctypes.string_at(0)


def _killed(_folder: Path) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(_folder: Path) -> Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def _hungry(_folder: Path) -> tuple[str, dict[str, str] | None]:
    """Take memory, and use it, until stopped; two gigabytes mean that nobody stops it."""
    hoard = []
    while len(hoard) < 128:
        hoard.append(b"x" * (16 << 20))
    return "failed", {"code": "runner_error", "text": "nobody limits memory"}


def _daemon(folder: Path) -> tuple[str, dict[str, str] | None]:
    """Leaves a child that has left the session and forgotten its environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            sleeper = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
            os.execve(sys.executable, [sys.executable, "-S", "-c", sleeper, str(folder)], {})
        os._exit(0)
    os.wait()
    time.sleep(0.1)
    return "done", None


_ACTS: dict[str, Callable[[Path], Any]] = {
    "done": _done,
    "wrong": _wrong,
    "unsupported": _unsupported,
    "device_lost": _device_lost,
    "crash": _crash,
    "killed": _killed,
    "hang": _hang,
    "hungry": _hungry,
    "daemon": _daemon,
}


def _result(
    job: dict[str, Any], folder: Path, status: str, reason: dict[str, str] | None, slipped: bool
) -> dict[str, Any]:
    if status == "unsupported" or (reason is not None and reason["code"] == "device_lost"):
        return {"status": status, "reason": reason, "samples_sha256": None}
    flags = ["a step took far longer than asked"] if slipped else []
    chance = random.Random(job["cell_id"])
    init_ns, first_ns, warmup_ns = (chance.randrange(10**6, 10**7) for _ in range(3))
    invoke_ns = [chance.randrange(10**6, 2 * 10**6) for _ in range(100)]
    samples = {
        "index": 0,
        "cache": "cold",
        "init_ns": init_ns,
        "first_ns": first_ns,
        "warmup_ns": [warmup_ns],
        "invoke_ns": invoke_ns,
        "memory_peak_bytes": 1000,
        "memory_before_bytes": 1000,
        "flags": flags,
    }
    raw = json.dumps([samples]).encode()
    _write(folder / "samples.json", raw)
    times = ProcessTimes("cold", init_ns, first_ns, invoke_ns)
    passed = status == "done"
    measurement = {
        "latency_ms": asdict(summarise([times])),
        "samples": len(invoke_ns),
        "memory_peak_bytes": 1000,
        "accuracy": {
            "reference": "known",
            "max_abs": 0.0,
            "rel_l2": 0.0,
            "cosine": 1.0,
            "verdict": "pass" if passed else "fail",
            "rule": "bit-equal",
        },
        "delegation": None,
        "settings": {},
        "warnings": [f"process 1: {flag}" for flag in flags],
    }
    return {
        "status": status,
        "reason": reason,
        "measurement": measurement,
        "samples_sha256": hashlib.sha256(raw).hexdigest(),
    }


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)


def _note(log: Path, event: str, job: dict[str, Any], **facts: str | None) -> None:
    line = {
        "event": event,
        "time_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        "pid": os.getpid(),
        **{name: job[name] for name in ("attempt_id", "cell_id", "device_id", "epoch", "attempt_no")},
        **facts,
    }
    # In the agent's state folder: that of the attempt goes with it.
    descriptor = os.open(log.parents[2] / TRUTH_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
