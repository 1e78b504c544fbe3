"""A runner that measures nothing, for `farm_lab.py`: starts fast, waits, notes when it began and ended.

How long it waits is the cell's own: from half to one and a half of what the job says.

`farm_runner.py --probe` lists the devices of `$FAULT_DEVICES`; `farm_runner.py JOB.json FOLDER`: an attempt.
Its line in `gaps.jsonl`, beside the agent's journal, has CLOCK_REALTIME in nanoseconds: `asked`, when the
agent had written the job; `began`, its own first statement; `ended`, its last.
"""

import time

BEGAN_NS = time.time_ns()

import json  # noqa: E402  # the clock first
import os  # noqa: E402
import sys  # noqa: E402
from hashlib import sha256  # noqa: E402
from pathlib import Path  # noqa: E402


def main(arguments: list[str]) -> int:
    """Do as the agent's own runner does, without a model."""
    if arguments[0] == "--probe":
        devices = json.loads(Path(os.environ["FAULT_DEVICES"]).read_text())
        sys.stdout.write(json.dumps({"devices": devices}))
        return 0
    job_file, folder = Path(arguments[0]), Path(arguments[1])
    asked_ns = job_file.stat().st_mtime_ns
    attempt = json.loads(job_file.read_text())
    job = attempt["job"]
    time.sleep(float(job["delegate_options"]["seconds"]) * (0.5 + int(job["cell_id"], 16) / 16**16))
    _write(folder, job["cell_id"])
    line = {"device": job["device_id"], "asked": asked_ns, "began": BEGAN_NS, "ended": time.time_ns()}
    log = folder.parents[1] / "gaps.jsonl"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    # One write to a file that is opened for appending: lines of several runners never mix.
    os.write(descriptor, (json.dumps(line) + "\n").encode())
    # The gap runs from here on: Python's own end of a process would be part of it.
    os._exit(0)


def _write(folder: Path, seed: str) -> None:
    samples = {
        "index": 0, "cache": "cold", "init_ns": 10**6, "first_ns": 10**6, "warmup_ns": [10**6],
        "invoke_ns": [10**6 + i + len(seed) for i in range(100)], "memory_peak_bytes": 1000,
        "memory_before_bytes": 1000, "flags": [],
    }  # fmt: skip
    raw = json.dumps([samples]).encode()
    names = ("init", "init_warm", "first", "p50", "p90", "p99", "mean")
    measurement = {
        "latency_ms": {**dict.fromkeys(names, 1.0), "ci95": [1.0, 1.0]},
        "samples": 100,
        "memory_peak_bytes": 1000,
        "accuracy": {
            "reference": "known", "max_abs": 0.0, "rel_l2": 0.0, "cosine": 1.0, "verdict": "pass",
            "rule": "bit-equal",
        },
        "delegation": None,
        "settings": {},
        "warnings": [],
    }  # fmt: skip
    result = {
        "status": "done", "reason": None, "measurement": measurement,
        "samples_sha256": sha256(raw).hexdigest(),
    }  # fmt: skip
    (folder / "samples.json").write_bytes(raw)
    temporary = folder / ".result.json.tmp"
    temporary.write_text(json.dumps(result))
    temporary.replace(folder / "result.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
