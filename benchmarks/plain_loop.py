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
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.interleaved import agreement, agreement_table, measure, ratio, slices
from benchmarks.output import RESULTS, in_a_process, parser, restored, write_report
from runtime.measure.benchmark import Session
from runtime.measure.inputs import make_pool
from runtime.measure.loading import Opener, Subject
from tests.tree import tree

MODELS: Final = ("torchvision_mobilenet_v3_small", "torchvision_mnasnet0_5", "torchvision_squeezenet1_1")

_SLICE_S: Final = 0.1
"""Seconds of a slice, as in the farm's blocks."""

_WARM_UP_S: Final = 0.3
"""Seconds of warm-up of either loop: caches and clocks settle in a few hundred milliseconds."""

_LOOPS: Final = ("farm", "again", "plain")


def main() -> int:
    """Measure every model in blocks of fresh processes, then write the report."""
    options = parser(__doc__, RESULTS / "plain_loop.json")
    options.add_argument("--models", nargs="*", default=MODELS, metavar="NAME", help="models of the zoo")
    options.add_argument("--blocks", type=int, default=5, help="fresh processes")
    options.add_argument("--rounds", type=int, default=7, help="of a block")
    options.add_argument("--block", help=argparse.SUPPRESS)
    args = options.parse_args()
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
    write_report(args.out, rows, _page(rows), began)
    return 0


def _in_a_process(model: Path, rounds: int) -> dict[str, Sequence[float]]:
    pinned = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    return in_a_process("plain_loop", "--block", str(model), "--rounds", str(rounds), prefix=pinned)


def _block(model: str, rounds: int) -> dict[str, Sequence[float]]:
    """Median seconds of each loop's slices in one process."""
    sha256 = hashlib.sha256(Path(model).read_bytes()).hexdigest()
    sessions = [
        Session(Subject(Opener.prepare("litert", {"threads": 1}), model, sha256), 3) for _ in range(2)
    ]
    runs = max(1, round(_SLICE_S * 1e9 / sessions[0].run_ns))
    plain = slices(_plain(model, sha256), _SLICE_S)
    arms: dict[str, Callable[[], float]] = {
        "farm": lambda: median(sessions[0].slice(runs).invoke_ns.tolist()) / 1e9,
        "again": lambda: median(sessions[1].slice(runs).invoke_ns.tolist()) / 1e9,
        "plain": plain,
    }
    # Rounds that nobody counts are the warm-up.
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
    return agreement(p50s, {name: _over_farms(blocks, name) for name in _LOOPS[1:]})


def _over_farms(blocks: Sequence[dict[str, Sequence[float]]], name: str) -> dict[str, Any]:
    turns = [zip(block[name], block["farm"], strict=True) for block in blocks]
    # These are ratios already, a block each: over 1 they only get their interval.
    return ratio([median(own / farms for own, farms in both) for both in turns], [1.0] * len(turns))


def _page(rows: dict[str, dict[str, Any]]) -> list[str]:
    return [
        "# The farm's loop beside a plain one",
        "",
        "Time over that of the farm's loop, over blocks of fresh processes.",
        "Written by `python -m benchmarks.plain_loop`.",
        "",
        *agreement_table(("farm's loop, ms", "once more", "plain loop"), _LOOPS, rows),
    ]


if __name__ == "__main__":
    sys.exit(main())
