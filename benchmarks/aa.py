"""A thing compared with itself: how often the farm calls two equal delegates different, and its own loop.

    python -m benchmarks.aa [--models NAME ...] [--contenders 4] [--blocks 5] [--seconds 1] [--out FILE]

First, through `farm submit`: on each model, LiteRT is compared by paired blocks with as many copies of itself
as there are contenders; every verdict but *the same* and *open* is false. Then LiteRT through the
farm's loop and through a plain loop over LiteRT's own Python class, in blocks of fresh processes, beside the
farm's loop once more. The medians agree where they differ by at most 3 %, or by twice what the loop differs
from itself. Writes results/aa.{json,md}. The machine must run nothing else: minutes per model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.fresh_blocks import REPOSITORY
from benchmarks.skeletons import restored
from runtime.common.statistics import estimate, geometric_mean
from runtime.tools.benchmark import Session
from runtime.tools.inputs import make_pool
from runtime.tools.loading import Opener
from runtime.tools.samples import percentile
from tests.reports import write_report
from tests.tree import tree

RESULT: Final = REPOSITORY / "benchmarks/results/aa.json"
MODELS: Final = (
    "torchvision_mobilenet_v2",
    "torchvision_mobilenet_v3_small",
    "torchvision_mnasnet0_5",
    "torchvision_shufflenet_v2",
    "torchvision_squeezenet1_1",
)
FALSE: Final = ("faster", "slower")

MOST_FALSE: Final = 0.05
"""Share of false verdicts that the intervals of 95 % allow."""

LOOP_WITHIN: Final = 0.03
"""By how much the medians of the two loops may differ, as a share, whatever the loop differs from itself."""

_WARM_UP_S: Final = 0.3
"""Seconds of warm-up of a process of either loop: caches and clocks settle in a few hundred milliseconds."""

_LOOPS: Final = ("farm", "farm_again", "plain")


def main() -> int:
    """Both comparisons, then the report."""
    args = _arguments()
    if args.loop:
        kind, model = args.loop
        print(_plain(model, args.seconds) if kind == "plain" else _farms(model, args.seconds))
        return 0
    began = tree()
    report: dict[str, Any] = {"blocks": args.blocks, "seconds": args.seconds}
    with tempfile.TemporaryDirectory(prefix="farm-aa-") as temporary:
        folder = Path(temporary)
        files = {name: folder / f"{name}.tflite" for name in args.models}
        for name, file in files.items():
            file.write_bytes(restored(name))
        report["comparisons"] = _compared(folder, files, args)
        report["loops"] = {name: _loops(file, args) for name, file in files.items()}
    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    text = _markdown(report)
    write_report(args.out.with_suffix(".md"), text, began, 0)
    print(text)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=MODELS, metavar="NAME", help="models of the zoo")
    parser.add_argument("--contenders", type=int, default=4, help="copies that are compared on each model")
    parser.add_argument("--blocks", type=int, default=5, help="fresh processes of each; verdicts need three")
    parser.add_argument("--seconds", type=float, default=1.0, help="timed in each process")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--loop", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def _compared(folder: Path, files: dict[str, Path], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Submit the campaign to a farm of its own, and return the stored ratio and verdict of each contender."""
    copies = [f"copy{number}" for number in range(1, 1 + args.contenders)]
    campaign = {
        "version": 1,
        "campaign": "aa",
        "defaults": {"measure": {"blocks": args.blocks}},
        "models": [{"id": name, "source": str(file)} for name, file in files.items()],
        "delegates": {name: {"kind": "litert", "threads": 1} for name in ("base", *copies)},
        "baseline": {"delegate": "base"},
        "devices": [{"name": "*host-cpu"}],
    }
    path = folder / "models.yaml"
    path.write_text(json.dumps(campaign), encoding="utf-8")
    environment = os.environ | {"FARM_HOME": str(folder / "farm")}
    farm = [str(Path(sys.executable).with_name("farm"))]
    subprocess.run([*farm, "submit", str(path)], env=environment, cwd=REPOSITORY, check=False)
    told = subprocess.run(
        [*farm, "results", "--format", "json"],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    cells = [cell for cell in json.loads(told.stdout) if cell["delegate"] in copies]
    return [_comparison(cell) for cell in cells]


def _comparison(cell: dict[str, Any]) -> dict[str, Any]:
    found = {"model": cell["model"], "contender": cell["delegate"], "status": cell["status"]}
    found["grade"] = cell["grade"]
    ratio = cell["ratio"]
    if ratio is None:
        return found | {"verdict": "no ratio"}
    return found | {name: ratio[name] for name in ("median", "ci95", "verdict")}


def _loops(model: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The farm's loop, once more, and the plain one: milliseconds, and ratios over the farm's by blocks."""
    seconds: dict[str, list[float]] = {name: [] for name in _LOOPS}
    rng = random.Random(0)  # noqa: S311  # an order of work, no secret
    for _ in range(args.blocks):
        for name in rng.sample(_LOOPS, len(_LOOPS)):
            seconds[name].append(_in_a_process(name, model, args.seconds))
    ratios = {
        name: [own / base for own, base in zip(seconds[name], seconds["farm"], strict=True)]
        for name in _LOOPS[1:]
    }
    again, plain = (geometric_mean(ratios[name]) for name in _LOOPS[1:])
    return {
        "ms": {name: 1000 * geometric_mean(values) for name, values in seconds.items()},
        "itself": again,
        "plain": plain,
        "plain_ci95": estimate([math.log(ratio) for ratio in ratios["plain"]]).interval,
        "agree": abs(plain - 1) <= max(LOOP_WITHIN, 2 * abs(again - 1)),
    }


def _in_a_process(name: str, model: Path, seconds: float) -> float:
    cpu = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", cpu, sys.executable, "-m", "benchmarks.aa", "--seconds", str(seconds)]
    command += ["--loop", name, str(model)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return float(ran.stdout.splitlines()[-1])


def _farms(model: str, seconds: float) -> float:
    """Median seconds of the farm's own loop."""
    session = Session(Opener.prepare("litert", {"threads": 1}), model, _sha256(model), 1)
    _for_seconds(session, _WARM_UP_S)
    return percentile(_for_seconds(session, seconds), 0.5) / 1e9


def _for_seconds(session: Session, seconds: float) -> list[int]:
    """Time slices of a tenth of a second for so long; return their invokes in ns."""
    runs = max(1, round(0.1e9 / session.run_ns))
    times: list[int] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        times += session.slice(runs).invoke_ns.tolist()
    return times


def _plain(model: str, seconds: float) -> float:
    """Median seconds of a loop as LiteRT's documentation has it, over the same inputs."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415

    interpreter = Interpreter(model_path=model, num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    sets = make_pool(details, _sha256(model)).sets
    times: list[float] = []
    began = time.perf_counter()
    warm = began + _WARM_UP_S
    while time.perf_counter() < warm + seconds:
        values = sets[len(times) % len(sets)]
        started = time.perf_counter()
        for detail, value in zip(details, values, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        for index in outputs:
            interpreter.get_tensor(index)
        times.append(time.perf_counter() - started)
        if started < warm:
            times.pop()
    return median(times)


def _sha256(model: str) -> str:
    return hashlib.sha256(Path(model).read_bytes()).hexdigest()


def _markdown(report: dict[str, Any]) -> str:
    found: Sequence[dict[str, Any]] = report["comparisons"]
    verdicts = Counter(one["verdict"] for one in found)
    wrong = sum(verdicts[name] for name in FALSE)
    lines = [
        "# A thing compared with itself",
        "",
        f"`python -m benchmarks.aa`: {report['blocks']} blocks of processes of {report['seconds']:g} s each.",
        "",
        f"- Verdicts over {len(found)} comparisons of LiteRT with itself through the farm: "
        + ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
        + f". False: {wrong}; the mark is {MOST_FALSE:.0%}.",
        "",
        "| model | contender | ratio | 95 % interval | verdict | grade |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        cells = [one["model"], one["contender"], _number(one.get("median")), _ends(one.get("ci95"))]
        lines.append("| " + " | ".join([*cells, one["verdict"], str(one["grade"])]) + " |")
    lines += [
        "",
        "| model | farm's loop, ms | once more | plain loop | its interval | agree |",
        "|" + "---|" * 6,
    ]
    for name, loops in report["loops"].items():
        cells = [name, f"{loops['ms']['farm']:.4g}", _number(loops["itself"]), _number(loops["plain"])]
        lines.append("| " + " | ".join([*cells, _ends(loops["plain_ci95"]), _agreed(loops)]) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _ends(interval: Sequence[float] | None) -> str:
    return "-" if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}"


def _agreed(loops: dict[str, Any]) -> str:
    return "yes" if loops["agree"] else "no"


if __name__ == "__main__":
    sys.exit(main())
