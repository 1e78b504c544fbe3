"""Measures the cost of the measuring itself: the loop around an invoke, the sensors' process, paired blocks.

    python -m benchmarks.measuring_cost [--parts loop sensors pairing] [--out FILE]

*loop*: the time from the end of an invoke until the next begins, and a read of the clock, by the start
offsets that a measurement stores; of a model of one number, for which the loop is most of the time.
*sensors*: a model on all CPUs while a process reads the sensors of a host, and while that process is stopped,
in turns. A machine without sensors reads files of the form that Linux gives them on an Intel host.
*pairing*: the wall time of a campaign whose delegates are compared by paired blocks over that of the same
campaign without a baseline, in turns, everything cached. Writes results/measuring_cost.json. The machine must
run nothing else.
"""

import argparse
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks import interleaved
from benchmarks.campaign import farm
from benchmarks.interleaved import ratio
from benchmarks.output import REPOSITORY, RESULTS, parser, restored, write_figures
from runtime.measure.benchmark import Session, measure
from runtime.measure.loading import Opener, Subject
from runtime.measure.loop import timer_overhead_ns

LOOP_MARK_US: Final = 5.0
"""Most microseconds of an iteration that are not the model's."""

SENSORS_MARK: Final = 0.01
"""By how much the interval of the ratio with and without sensors may reach from 1."""

PAIRING_MARK: Final = 1.35
"""Most times as long as the unpaired campaign that the paired one may take."""

_LOOP_RUNS: Final = 20_000
"""Invokes of the smallest model: about a tenth of a second, in which its median does not move any more."""

_WARMUP_RUNS: Final = 100
"""Invokes that are not timed: caches and clocks settle."""

_SLICE_CALLS: Final = 300
"""Invokes of a slice, with the sensors' process running or stopped. They take tenths of a second, in which it
reads several times."""


def main() -> int:
    """Run the chosen parts; print and write their figures."""
    args = _arguments()
    parts: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "loop": _loop,
        "sensors": _sensors,
        "pairing": _pairing,
    }
    report: dict[str, Any] = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
    for name in args.parts:
        report[name] = parts[name](args)
        print(name, json.dumps(report[name]), flush=True)
        write_figures(args.out, report)
    return 0


def _arguments() -> argparse.Namespace:
    options = parser(__doc__, RESULTS / "measuring_cost.json")
    names = ("loop", "sensors", "pairing")
    options.add_argument("--parts", nargs="+", choices=names, default=names)
    options.add_argument("--model", default="torchvision_mobilenet_v3_small", help="a model of the zoo")
    options.add_argument("--slices", type=int, default=100, help="pairs of slices with sensors and without")
    options.add_argument("--rounds", type=int, default=3, help="campaigns of each kind")
    return options.parse_args()


def _loop(_args: argparse.Namespace) -> dict[str, Any]:
    # Here, and not above: only the tests' builder makes so small a model.
    from tests.runtime.delegates.gpu.caller_models import dense  # noqa: PLC0415

    content = dense(1, np.eye(1, dtype=np.float32), 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.tflite"
        path.write_bytes(content)
        opener, sha256 = Opener.prepare("litert", {"threads": 1}), hashlib.sha256(content).hexdigest()
        found = measure(Subject(opener, str(path), sha256), warmup_runs=_WARMUP_RUNS, runs=_LOOP_RUNS)
    starts, invokes = np.array(found.start_ns), np.array(found.invoke_ns)
    between = np.diff(starts) - invokes[:-1]
    clock_ns = timer_overhead_ns()
    # A read of the clock lies within each timed invoke, and is the loop's as well.
    mean_us = (float(between.mean()) + clock_ns) / 1e3
    return {
        "invokes": len(invokes),
        "invoke_us": float(np.median(invokes)) / 1e3,
        "overhead_us_median": (float(np.median(between)) + clock_ns) / 1e3,
        "overhead_us_mean": mean_us,
        "met": mean_us <= LOOP_MARK_US,
    }


def _sensors(args: argparse.Namespace) -> dict[str, Any]:
    from agent.machine.sensors.discovery import sensors_of  # noqa: PLC0415
    from agent.machine.sensors.sensor import PROCESSOR  # noqa: PLC0415

    cpus = sorted(os.sched_getaffinity(0))
    own = len(sensors_of(PROCESSOR, cpus).sensors)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        model = folder / "model.tflite"
        model.write_bytes(restored(args.model))
        sha256 = hashlib.sha256(model.read_bytes()).hexdigest()
        session = Session(
            Subject(Opener.prepare("litert", {"threads": len(cpus)}), str(model), sha256), _WARMUP_RUNS
        )
        reader = subprocess.Popen(
            [sys.executable, "-c", _READER, text, str(own)], cwd=REPOSITORY, stdout=subprocess.PIPE
        )
        assert reader.stdout is not None
        # Once this line is there, everything is imported, and it begins to read.
        count = int(reader.stdout.readline())

        def slice_after(sign: signal.Signals) -> float:
            reader.send_signal(sign)
            return median(session.slice(_SLICE_CALLS).invoke_ns.tolist())

        signs = {"with": signal.SIGCONT, "without": signal.SIGSTOP}
        arms = {name: partial(slice_after, sign) for name, sign in signs.items()}
        taken = interleaved.measure(arms, args.slices).seconds
        # By SIGKILL, which also ends a process that is stopped.
        reader.kill()
        reader.wait()
        readings = len((folder / "readings").read_text(encoding="utf-8").splitlines())
    found = ratio(taken["with"], taken["without"])
    low, high = found["ci95"] or (0.0, math.inf)
    return {
        "sensors": count,
        "of_this_machine": own > 0,
        "rounds_of_readings": readings,
        **found,
        "met": max(high - 1, 1 - low) <= SENSORS_MARK,
    }


_READER: Final = """
import os, sys
from pathlib import Path
from agent.machine.sensors.discovery import sensors_of
from agent.machine.sensors.recording import record
from agent.machine.sensors.sensor import PROCESSOR
from tests.agent.machine.sensors.trees import INTEL_XEON, tree
folder, own = Path(sys.argv[1]), int(sys.argv[2])
cpus = sorted(os.sched_getaffinity(0))
found = sensors_of(PROCESSOR, cpus) if own else sensors_of(PROCESSOR, cpus, tree(folder, INTEL_XEON))
os.nice(10)
print(len(found.sensors), flush=True)
record(found.sensors, folder / "readings", print)
"""


def _pairing(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "model.tflite").write_bytes(restored(args.model))
        arms = {kind: partial(_campaign, folder, paired=kind == "paired") for kind in ("paired", "unpaired")}
        # The first of each fills the caches: kernels, tuning, references.
        for fill in arms.values():
            fill()
        seconds = interleaved.measure(arms, args.rounds).seconds
    found = ratio(seconds["paired"], seconds["unpaired"])
    medians = {kind: median(values) for kind, values in seconds.items()}
    return {"seconds": medians, **found, "met": found["ratio"] <= PAIRING_MARK}


def _campaign(folder: Path, *, paired: bool) -> float:
    """Wall seconds of a campaign of one model, whose results are not reused."""
    campaign: dict[str, Any] = {
        "version": 1,
        "campaign": "paired" if paired else "unpaired",
        "level": "standard",
        "models": [{"id": "model", "source": "model.tflite"}],
        "delegates": {name: {"kind": name} for name in ("litert", "cpu", "gpu")},
    }
    if paired:
        campaign["baseline"] = {"delegate": "litert"}
    path = folder / "models.yaml"
    path.write_text(json.dumps(campaign), encoding="utf-8")
    began = time.perf_counter()
    ran = farm("submit", str(path), "--force", home=folder / "farm")
    taken = time.perf_counter() - began
    if ran.returncode:
        raise SystemExit(ran.returncode)
    return taken


if __name__ == "__main__":
    sys.exit(main())
