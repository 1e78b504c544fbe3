"""Does the farm's loop give what a plain loop over LiteRT gives?

    python -m benchmarks.plain_loop [--models NAME ...] [--blocks 5] [--rounds 7] [--out JSON]

The farm's loop, the same once more, and a loop over LiteRT's own Python class take turns by slices of a tenth
of a second; a block is a fresh process. The medians agree where they differ by at most 3 %, or by twice what
the loop differs from itself. Writes results/plain_loop.{json,md}. The machine must run nothing else.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.interleaved import ends, measure, ratio, slices
from benchmarks.skeletons import REPOSITORY, restored
from runtime.common.statistics import geometric_mean
from runtime.measure.benchmark import Session
from runtime.measure.inputs import make_pool
from runtime.measure.loading import Opener
from tests.reports import write_report
from tests.tree import tree

RESULT: Final = REPOSITORY / "benchmarks/results/plain_loop.json"
MODELS: Final = ("torchvision_mobilenet_v3_small", "torchvision_mnasnet0_5", "torchvision_squeezenet1_1")

WITHIN: Final = 0.03
"""By how much the medians of the two loops may differ, as a share, whatever the loop differs from itself."""

_SLICE_S: Final = 0.1
"""Seconds of a slice, as in the farm's blocks."""

_WARM_UP_S: Final = 0.3
"""Seconds of warm-up of either loop: caches and clocks settle in a few hundred milliseconds."""

_LOOPS: Final = ("farm", "again", "plain")


def main() -> int:
    """Measure every model in blocks of fresh processes, then write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=MODELS, metavar="NAME", help="models of the zoo")
    parser.add_argument("--blocks", type=int, default=5, help="fresh processes")
    parser.add_argument("--rounds", type=int, default=7, help="of a block")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--block", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.block:
        print(json.dumps(_block(args.block, args.rounds)))
        return 0
    began, rows = tree(), {}
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix="farm-loop-") as folder:
            file = Path(folder) / "model.tflite"
            file.write_bytes(restored(name))
            rows[name] = _row([_in_a_process(file, args.rounds) for _ in range(args.blocks)])
        print(name, json.dumps(rows[name]), flush=True)
    args.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    write_report(args.out.with_suffix(".md"), _markdown(rows), began, 0)
    return 0


def _in_a_process(model: Path, rounds: int) -> dict[str, Sequence[float]]:
    cpu = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", cpu, sys.executable, "-m", "benchmarks.plain_loop"]
    command += ["--block", str(model), "--rounds", str(rounds)]
    ran = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def _block(model: str, rounds: int) -> dict[str, Sequence[float]]:
    """Median seconds of each loop's slices in one process."""
    sha256 = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    sessions = [Session(Opener.prepare("litert", {"threads": 1}), model, sha256, 3) for _ in range(2)]
    runs = max(1, round(_SLICE_S * 1e9 / sessions[0].run_ns))
    plain = slices(_plain(model, sha256), _SLICE_S)
    arms: dict[str, Callable[[], float]] = {
        "farm": lambda: median(sessions[0].slice(runs).invoke_ns.tolist()) / 1e9,
        "again": lambda: median(sessions[1].slice(runs).invoke_ns.tolist()) / 1e9,
        "plain": plain,
    }
    measure(arms, math.ceil(_WARM_UP_S / _SLICE_S))
    return dict(measure(arms, rounds).seconds)


def _plain(model: str, sha256: str) -> Callable[[], None]:
    """Return a call as LiteRT's documentation has it, over the same inputs."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415  # only where it is measured

    interpreter = Interpreter(model_path=model, num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    sets, calls = make_pool(details, sha256).sets, 0

    def call() -> None:
        nonlocal calls
        for detail, value in zip(details, sets[calls % len(sets)], strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        for index in outputs:
            interpreter.get_tensor(index)
        calls += 1

    return call


def _row(blocks: Sequence[dict[str, Sequence[float]]]) -> dict[str, Any]:
    """Milliseconds, and the ratios over the farm's loop, of which each block gives one."""
    p50s = {name: [median(block[name]) for block in blocks] for name in _LOOPS}
    again, plain = (_over_farms(blocks, name) for name in _LOOPS[1:])
    apart, itself = abs(plain["ratio"] - 1), abs(again["ratio"] - 1)
    return {
        "ms": {name: 1000 * geometric_mean(values) for name, values in p50s.items()},
        "again": again,
        "plain": plain,
        "agree": apart <= max(WITHIN, 2 * itself),
    }


def _over_farms(blocks: Sequence[dict[str, Sequence[float]]], name: str) -> dict[str, Any]:
    turns = [zip(block[name], block["farm"], strict=True) for block in blocks]
    return ratio([median(own / farms for own, farms in both) for both in turns], [1.0] * len(turns))


def _markdown(rows: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# The farm's loop beside a plain one",
        "",
        "Time over that of the farm's loop, over blocks of fresh processes.",
        "Written by `python -m benchmarks.plain_loop`.",
        "",
        "| model | farm's loop, ms | once more | plain loop | its interval | agree |",
        "|" + "---|" * 6,
    ]
    for name, row in rows.items():
        cells = [name, f"{row['ms']['farm']:.4g}", *(f"{row[loop]['ratio']:.4f}" for loop in _LOOPS[1:])]
        cells += [ends(row["plain"]), "yes" if row["agree"] else "no"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
