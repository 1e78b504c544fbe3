"""Submit a campaign file to the farm, and write what it says of every cell to results/.

    python -m benchmarks.campaign FILE [--threads 1 2] [--out JSON] [option of `farm submit` ...]

`--threads` submits the file once for each number, which every delegate gets; without it the file decides.
Times, ratios, intervals, grades and verdicts are the farm's. It reuses what it has measured, so that the same
command goes on where it was stopped. The farm is that of FARM_HOME, else the repository's `.farm`, as
`make demo` has it. Writes results/NAME.{json,md}, NAME as the campaign. The machine must run nothing else.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any, Final, TypeAlias

import yaml

from benchmarks import output
from benchmarks.campaign_report import page
from tests.tree import tree

Row: TypeAlias = dict[str, Any]
"""What a report keeps of a cell; `docs/results-format.md` describes the fields."""

_KEPT: Final = (
    "model", "delegate", "device", "device_name", "level", "threads", "status", "grade",
    "finished_at", "reused_from",
)  # fmt: skip
_KEPT_OF_RATIO: Final = ("against", "median", "ci95", "allowance", "blocks", "verdict")
_FARM: Final = (sys.executable, "-P", "-c", "from orchestrator.cli import main; main()")

_INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as that of `farm submit`."""

_FAILED_CELLS: Final = 1
"""The exit code of `farm submit` where cells failed: they are rows of the report, with their reason."""


def main() -> int:
    """Submit the file, then write the report."""
    parser = output.parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", help="of every delegate, in place of the file's")
    args, options = parser.parse_known_args()
    try:
        run_and_report(args.file, args.threads or (None,), args.out, options)
    except KeyboardInterrupt:
        print("cut short, without a report; the same command goes on where it stopped", file=sys.stderr)
        return _INTERRUPTED
    return 0


def run_and_report(
    file: Path, threads: Sequence[int | None], out: Path | None, options: Sequence[str]
) -> dict[str, Any]:
    """Measure what a campaign file asks for, at each number of threads, write the report, and return it."""
    began, rows, status = tree(), [], 0
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    # The farm gets a copy of the file in another folder, from which relative paths would lead nowhere.
    for model in document["models"]:
        if (file.parent / model["source"]).is_file():
            model["source"] = str((file.parent / model["source"]).absolute())
    for count in threads:
        ended, more = submit(document if count is None else with_threads(document, count), options)
        status = max(status, ended)
        rows += more
    name, baseline = document["campaign"], document["baseline"]["delegate"]
    report = {"campaign": name, "baseline": baseline, "environment": environment(), "rows": rows}
    output.write_report(out or output.RESULTS / f"{name}.json", report, page(report), began, status)
    return report


def with_threads(document: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a campaign whose delegates have so many threads each, with a name of its own."""
    delegates = {name: {**options, "threads": count} for name, options in document["delegates"].items()}
    return {**document, "campaign": f"{document['campaign']}-t{count}", "delegates": delegates}


def submit(document: Mapping[str, Any], options: Sequence[str] = ()) -> tuple[int, list[Row]]:
    """Submit a campaign and wait for its end; return the exit code of `farm submit` and the rows.

    Raises `SystemExit` with its code where it could not be measured, which the command has told.
    """
    ended, cells = measured(document, options)
    rows = [row_of(cell) for cell in cells]
    threads = {row["threads"] for row in rows} - {None}
    # A cell that nothing ran tells no threads.
    return ended, [row | {"threads": min(threads)} for row in rows] if len(threads) == 1 else rows


def measured(
    document: Mapping[str, Any], options: Sequence[str] = (), **more: Any
) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code of `farm submit` and the objects of `farm results`; `more`: as `farm` takes it.

    Raises `SystemExit` as `submit`.
    """
    with tempfile.TemporaryDirectory(prefix="farm-campaign-") as folder:
        path = Path(folder) / "models.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(document), encoding="utf-8")
        ended = farm("submit", str(path), *options, **more).returncode
    if ended > _FAILED_CELLS:
        raise SystemExit(ended)
    return ended, list(_json_of("results", document["campaign"], "--format", "json", **more))


def row_of(cell: Mapping[str, Any]) -> Row:
    """Return what a report keeps of an object of `farm results --format json`."""
    latency, memory = cell["latency_ms"] or {}, cell["memory_bytes"] or {}
    ratio, delegation, reason = cell["ratio"], cell["delegation"], cell["reason"]
    accuracy = cell["accuracy"] or {}
    return {name: cell[name] for name in _KEPT} | {
        "reason": reason and f"{reason['code']}: {reason['text']}",
        "delegated": delegation and f"{delegation['delegated_ops']}/{delegation['total_ops']}",
        "p50_ms": latency.get("p50"),
        "rel_l2": accuracy.get("rel_l2"),
        "accuracy": accuracy.get("verdict"),
        "init_warm_ms": latency.get("init_warm"),
        "ready_bytes": memory.get("ready"),
        "peak_bytes": memory.get("peak"),
        "ratio": ratio and {name: ratio[name] for name in _KEPT_OF_RATIO},
    }


def environment(**more: Any) -> dict[str, str]:
    """Return what the farm found of this machine's devices; `more`: as `farm` takes it."""
    devices = _json_of("devices", "--json", **more)["devices"]
    return {f"{d['device_id']}.{key}": value for d in devices for key, value in d["environment"].items()}


def wheel_list(wheels: Path) -> str:
    """List the wheels of a folder beside it, as FARM_RUNNER_WHEELS takes it; return the list's path."""
    listed = wheels.with_suffix(".txt")
    lines = (
        f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {wheels.name}/{one.name}\n"
        for one in sorted(wheels.iterdir())
    )
    listed.write_text("".join(lines))
    return str(listed)


def farm(
    *arguments: str, home: Path | None = None, stdout: int | None = None, **more: str
) -> CompletedProcess[str]:
    """Run `farm` with this home, else that of FARM_HOME, else the one that benchmarks have.

    `more`: variables of its environment.
    """
    environment = {"FARM_HOME": str(output.REPOSITORY / ".farm")} | os.environ | more
    environment |= {} if home is None else {"FARM_HOME": str(home)}
    command = [*_FARM, *arguments]
    # A benchmark that is terminated, as `make` does with those it starts, takes the campaign with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with subprocess.Popen(command, env=environment, text=True, stdout=stdout) as started:
        try:
            told, _ = started.communicate()
        except SystemExit:
            started.terminate()
            raise
    return CompletedProcess(command, started.returncode, told)


def _json_of(*arguments: str, **more: Any) -> Any:
    ran = farm(*arguments, stdout=PIPE, **more)
    if ran.returncode:
        raise SystemExit(ran.returncode)
    return json.loads(ran.stdout)


if __name__ == "__main__":
    sys.exit(main())
