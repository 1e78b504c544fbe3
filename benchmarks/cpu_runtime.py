"""The CPU path beside LiteRT at one thread: speed, overhead per operator, memory, loading.

    .venv/bin/python -m benchmarks.cpu_runtime [--models GLOB ...] [--parts speed memory load] [--resume]

Over all real models and the whole zoo of `../shared/models`. One process per model, interleaved
(interleaved.py), pinned to one CPU; a call is inputs in, invoke, outputs out. Memory is taken in a process
per contender. Writes benchmarks/results/cpu_runtime.{json,md}. `--busy` measures on a machine that others
use: for hints only, and nothing is written.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu_process import OURS, PEERS
from benchmarks.cpu_report import markdown, marks, row_line
from benchmarks.interleaved import FOREIGN_CPU_LIMIT
from runtime.model.facts import kind_of
from runtime.model.graph import Model
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.models.collection import manifest, real_model, zoo, zoo_model
from tests.models.comparison import random_rows
from tests.reports import write_report
from tests.runtime.models import Builder
from tests.tree import Tree, tree

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks/results"
JSON = RESULTS / "cpu_runtime.json"
PARTS = ("speed", "memory", "load")
LOAD_LAYERS = 10
LOAD_WIDTHS = {"2.5 MB": 256, "250 MB": 2560}


def main() -> int:
    """Every chosen model, then the table and the marks."""
    args, began = _arguments(), tree()
    report: dict[str, Any] = {"environment": _environment(), "rounds": args.rounds, "rows": []}
    if args.resume and JSON.exists():
        report = json.loads(JSON.read_text(encoding="utf-8"))
    rows = report["rows"]
    done = {row["model"] for row in rows}
    for name, read in _collection(args.models):
        if name not in done:
            rows.append({"model": name} | _measured(read(name), args))
            print(row_line(rows[-1]), flush=True)
            _keep(report, args, began, None)
    if "load" in args.parts:
        report["load"] = _loads()
    _keep(report, args, began, 0)
    print("\n".join(marks(report)))
    return 0


def _keep(report: dict[str, Any], args: argparse.Namespace, began: Tree, status: int | None) -> None:
    """Write the rows so far, so that a run of hours can be resumed where it was stopped."""
    if not args.busy:
        RESULTS.mkdir(exist_ok=True)
        JSON.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        write_report(JSON.with_suffix(".md"), markdown(report), began, status)


def _environment() -> dict[str, str]:
    """What the figures depend on besides the code."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    found = {
        "processor": next(
            (x.split(":", 1)[1].strip() for x in cpuinfo if x.startswith("model name")), "unknown"
        ),
        "litert": version("ai-edge-litert"),
        "numpy": np.__version__,
    }
    return found | {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["*"], metavar="GLOB", help="names to measure")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--slice", type=float, default=0.1, help="seconds per contender and round")
    parser.add_argument("--resume", action="store_true", help="keep the rows of results/cpu_runtime.json")
    parser.add_argument("--busy", action="store_true", help="accept disturbed rounds; write nothing")
    return parser.parse_args()


def _collection(globs: list[str]) -> list[tuple[str, Any]]:
    """(name, function that reads it), the real models first."""
    found = [(name, real_model) for name in sorted(manifest())] + [
        (name, zoo_model) for name in sorted(zoo())
    ]
    return [(name, read) for name, read in found if any(fnmatch.fnmatch(name, glob) for glob in globs)]


def _measured(data: bytes, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of one model, which lies in a file while it is measured."""
    row: dict[str, Any] = {"kind": kind_of(read_model(data))}
    with tempfile.TemporaryDirectory(prefix="cpu-runtime-") as folder:
        file, inputs = Path(folder) / "model.tflite", Path(folder) / "inputs.npz"
        file.write_bytes(data)
        np.savez(inputs, *random_rows(data)[0])
        if "speed" in args.parts:
            limit = os.cpu_count() or 1 if args.busy else FOREIGN_CPU_LIMIT
            row |= _process("speed", file, inputs, args.rounds, args.slice, limit)
        if "memory" in args.parts:
            peaks = {name: _process("memory", file, inputs, name) for name in (OURS, *PEERS)}
            if "error" in peaks[OURS]:
                row["error"] = peaks[OURS]["error"]
            row["memory_mib"] = {name: found["mib"] for name, found in peaks.items() if "mib" in found}
    return row


def _process(part: str, file: Path, *rest: object) -> dict[str, Any]:
    """A part in a process of its own, on one CPU; the end of its stderr where it fails."""
    cpu = str(min(os.sched_getaffinity(0)))
    ran = subprocess.run(
        [
            "taskset",
            "-c",
            cpu,
            sys.executable,
            "-m",
            "benchmarks.cpu_process",
            part,
            str(file),
            *map(str, rest),
        ],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        return {"error": (ran.stderr.strip().splitlines() or [f"exit {ran.returncode}"])[-1]}
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def _loads() -> dict[str, dict[str, Any]]:
    """Two models that differ only in how large their weights are."""
    found = {}
    for name, width in LOAD_WIDTHS.items():
        with tempfile.TemporaryDirectory(prefix="cpu-runtime-") as folder:
            file = Path(folder) / "model.tflite"
            file.write_bytes(write_model(_layers(width)))
            found[name] = {"megabytes": file.stat().st_size / 1e6} | _process("load", file)
    return found


def _layers(width: int) -> Model:
    builder = Builder()
    rng = np.random.default_rng(0)
    value = builder.input(np.float32, (1, width))
    for _ in range(LOAD_LAYERS):
        weights = builder.constant(rng.uniform(-1, 1, (width, width)).astype(np.float32))
        result = builder.tensor(np.float32, (1, width), type=TensorType.FLOAT32)
        builder.operator(BuiltinOperator.FULLY_CONNECTED, [value, weights, -1], [result])
        value = result
    return builder.model([value])


if __name__ == "__main__":
    raise SystemExit(main())
