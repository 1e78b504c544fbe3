"""Does the axis `version` find which of three builds of this farm carries a slowdown of 5 %?

    python -m benchmarks.version_axis [--slow one|two|three|none] [--share 0.05] [--out JSON]

Builds three wheels of the committed tree, as docs/lab.md says; in one of them, every invoke of the
interpreter takes longer by that share. A campaign measures them by turns against the installed farm, which is
none of the three. The slow one is named by the verdicts alone. Writes results/version_axis.{json,md}. The
machine must run nothing else.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

from benchmarks import output
from benchmarks.campaign import measured, row_of, wheel_list
from benchmarks.output import REPOSITORY, RESULTS, restored, table, write_report
from tests.tree import tree

BUILDS: Final = ("one", "two", "three")
MODEL: Final = "torchvision_squeezenet1_1"

MEASURE: Final = {
    "blocks": {"min": 14, "max": 14},
    "rounds": 13,
    "slice": {"min_runs": 3, "seconds": 0.1},
    "warmup": {"runs": 2, "min_seconds": 0},
}
"""Counts of a cell. Chosen: two minutes in all, and on a quiet machine an interval of 1 % to either side,
which tells 5 % from nothing."""

_INVOKE: Final = "        self._bound.run(self._primary, _run)\n"
"""The line of the interpreter that runs a model."""


def main() -> int:
    """Build, measure and report; the exit code is 1 where another build than the slow one was found."""
    parser = output.parser(__doc__, RESULTS / "version_axis.json")
    parser.add_argument("--slow", choices=(*BUILDS, "none"), default="two", help="the build to slow down")
    parser.add_argument("--share", type=float, default=0.05, help="by which its invokes take longer")
    args = parser.parse_args()
    began = tree()
    with tempfile.TemporaryDirectory(prefix="farm-versions-") as name:
        folder = Path(name)
        for build in BUILDS:
            add_build(folder, build, args.share if build == args.slow else 0.0)
        rows = measured_builds(folder)
    found = slower_ones(rows)
    report = {"slow": args.slow, "share": args.share, "found": found, "rows": rows}
    write_report(args.out, report, _page(report), began)
    print("\n".join(_page(report)))
    # With `--slow none` the right answer is the empty list.
    return int(found != [build for build in BUILDS if build == args.slow])


def add_build(folder: Path, build: str, share: float) -> None:
    """Put the wheel of a build whose invokes take longer by this share into `wheels`, without a network."""
    source = folder / build
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, stdout=PIPE, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    project = source / "pyproject.toml"
    # A local version (PEP 440) tells the wheels of one release apart.
    project.write_text(re.sub(r'(?m)^version = "[^"]*', rf"\g<0>+{build}", project.read_text(), count=1))
    if share:
        interpreter = source / "runtime/api/interpreter.py"
        text = interpreter.read_text()
        assert text.count(_INVOKE) == 1, "the interpreter runs a model elsewhere now"
        interpreter.write_text(text.replace(_INVOKE, _slower(share)))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder / "wheels"), str(source)], check=True)


def _slower(share: float) -> str:
    """Return the run of a model, and a wait behind it that is not asleep: a sleep ends some 60 us late."""
    lines = (
        "import time",
        "began = time.perf_counter()",
        _INVOKE.strip(),
        f"until = time.perf_counter() + {share} * (time.perf_counter() - began)",
        "while time.perf_counter() < until:",
        "    pass",
    )
    return "".join(f"        {line}\n" for line in lines)


def measured_builds(folder: Path) -> list[dict[str, Any]]:
    """Measure the installed farm and the three builds by turns; return their rows."""
    model = folder / "model.tflite"
    model.write_bytes(restored(MODEL))
    campaign = {
        "version": 1,
        "campaign": "version_axis",
        "defaults": {"measure": MEASURE},
        "models": [{"id": MODEL, "source": str(model)}],
        "delegates": {"cpu": {"kind": "cpu", "threads": 1, "version": ["current", *BUILDS]}},
        "baseline": {"delegate": "cpu-current"},
        "devices": [{"name": "*host-cpu"}],
    }
    wheels = wheel_list(folder / "wheels")
    ended, cells = measured(campaign, home=folder / "home", FARM_RUNNER_WHEELS=wheels)
    if ended:
        raise SystemExit(ended)
    return [row_of(cell) for cell in cells]


def slower_ones(rows: list[dict[str, Any]]) -> list[str]:
    """Return the builds that are slower than the installed farm by their verdict."""
    named = {row["delegate"].removeprefix("cpu-"): row["ratio"] for row in rows}
    return [build for build in BUILDS if named[build]["verdict"] == "slower"]


def _page(report: Mapping[str, Any]) -> list[str]:
    rows = []
    for row in report["rows"]:
        ratio = row["ratio"] or {"median": 1.0, "ci95": None, "verdict": "the baseline"}
        interval = " to ".join(f"{end:.4f}" for end in ratio["ci95"] or ())
        rows.append(
            (row["delegate"], f"{row['p50_ms']:.2f}", f"{ratio['median']:.4f}", interval, ratio["verdict"])
        )
    slow, found = report["slow"], ", ".join(report["found"]) or "none"
    return [
        "# Which of three builds is slower",
        "",
        f"Every invoke of the build `{slow}` takes {report['share']:.0%} longer; the verdicts found {found}.",
        "",
        *table(("build", "p50 in ms", "speed over the installed farm", "95 % interval", "verdict"), rows),
    ]


if __name__ == "__main__":
    sys.exit(main())
