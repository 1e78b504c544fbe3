"""`cpu` and `gpu` against LiteRT: XNNPACK, builtin kernels without a delegate, reference kernels.

    python -m benchmarks.runtime_vs_peers [--models GLOB|FILE ...] [--contenders NAME ...] [--threads 1 2]
                                          [--processes 5] [--rounds 5] [--slice 0.1] [--resume]

A row is a model at a number of threads. Its contenders run in processes of their own that take turns by
rounds, pinned to as many CPUs as threads, and all are started anew for each block (fresh_blocks.py). Numbers
are speed ratios over XNNPACK (> 1: faster), the geometric mean over the blocks with Student's 95 % interval;
beside it stands the interval over the rounds of the first block, which does not know that processes differ.

Rows are written to results/runtime_vs_peers.{json,md} as they end; `--resume` keeps those of equal settings.
Without `--models`: those of examples/models.yaml; a FILE may be a skeleton. `--contenders` names those that
are compared with XNNPACK, where the slow ones would take minutes. `--busy` accepts disturbed rounds, for a
try on a machine that is not quiet, and writes to --out alone.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.fresh_blocks import (
    REPOSITORY,
    DisturbedError,
    EndedError,
    Found,
    Plan,
    compare,
    over_processes,
    over_rounds,
)
from benchmarks.interleaved import FOREIGN_CPU_LIMIT
from benchmarks.peers_report import marks, row_line, table
from runtime.common.statistics import geometric_mean
from runtime.model.skeleton import restore_skeleton
from runtime.tools.samples import percentile
from tests.reports import write_report
from tests.tree import tree

RESULTS: Final = REPOSITORY / "benchmarks/results"
BASELINE: Final = "litert-xnnpack"
SLOW: Final = frozenset({"litert-reference"})
CONTENDERS: Final = (BASELINE, "litert-builtin", *SLOW, "cpu", "gpu")


def main() -> int:
    """Every row that is not there yet, then the table and the marks."""
    args, began = _arguments(), tree()
    path = args.out or RESULTS / "runtime_vs_peers.json"
    contenders = (BASELINE, *args.contenders)
    settings = {"processes": args.processes, "rounds": args.rounds, "slice_s": args.slice}
    report: dict[str, Any] = {"environment": environment_of_host(), **settings, "rows": []}
    if args.resume and path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if {name: kept.get(name) for name in settings} == settings:
            report["rows"] = [row for row in kept["rows"] if "error" not in row]
    for model, file in _models(args.models):
        for threads in args.threads:
            if any((row["model"], row["threads"]) == (model, threads) for row in report["rows"]):
                continue
            report["rows"].append(
                {"model": model, "threads": threads} | measured(file, threads, args, contenders)
            )
            print(row_line(report["rows"][-1]), flush=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            write_report(path.with_suffix(".md"), table(report, contenders[1:]), began, None)
    if report["rows"]:
        write_report(path.with_suffix(".md"), table(report, contenders[1:]), began, 0)
    print("\n".join(marks(report["rows"])))
    return 0


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options of a comparison, which `measured` reads."""
    parser.add_argument("--processes", type=int, default=5, help="blocks: fresh processes of each contender")
    parser.add_argument("--rounds", type=int, default=5, help="rounds within a block")
    parser.add_argument("--slice", type=float, default=0.1, help="seconds per contender and round")
    parser.add_argument("--busy", action="store_true", help="accept disturbed rounds: for a try, with --out")


def measured(
    path: Path, threads: int, args: argparse.Namespace, contenders: Sequence[str] = CONTENDERS
) -> dict[str, Any]:
    """What a row says of a model; `error` where most rounds were disturbed or a contender ended by itself."""
    limit = inf if args.busy else FOREIGN_CPU_LIMIT
    plan = Plan(args.processes, args.rounds, args.slice, limit, SLOW)
    try:
        return _row(compare(contenders, path, threads, plan))
    except (DisturbedError, EndedError) as error:
        return {"error": str(error)}


def _row(found: Found) -> dict[str, Any]:
    speeds = {}
    for name in found.names:
        if name == BASELINE or BASELINE not in found.names:
            continue
        median, interval = over_processes(found, name, BASELINE)
        speeds[name] = {
            "median": median,
            "ci95": interval,
            "blocks": [block.ratio(name, BASELINE) for block in found.blocks],
            "rounds_of_one_block": asdict(over_rounds(found, name, BASELINE)),
        }
    baseline = [
        percentile(block.seconds[BASELINE], 0.5) for block in found.blocks if BASELINE in block.seconds
    ]
    return {
        "xnnpack_ms": 1000 * geometric_mean(baseline) if baseline else None,
        "speed_over_xnnpack": speeds,
        "rejected_rounds": sum(block.rejected for block in found.blocks),
        "absent": dict(found.absent),
        "delegation": dict(found.delegation),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", "--only", nargs="*", default=["*"], metavar="GLOB", help="ids of the demo, or files"
    )
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS[1:], default=CONTENDERS[1:])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--resume", action="store_true", help="keep the rows of the same settings")
    parser.add_argument("--out", type=Path, help="JSON file to write; a table of the same stem beside it")
    add_settings(parser)
    args = parser.parse_args()
    if args.busy and args.out is None:
        parser.error("--busy is for a try: give --out")
    return args


def _models(wanted: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Files, restored skeletons, and the models of the demo whose ids match, fetched if they are missing."""
    from orchestrator.config.home import FarmHome  # noqa: PLC0415
    from orchestrator.manifest import load_manifest  # noqa: PLC0415
    from orchestrator.sources import resolve  # noqa: PLC0415
    from orchestrator.sources.store import Store  # noqa: PLC0415

    files = [Path(name) for name in wanted if name.endswith(".tflite")]
    yield from ((path.stem, path) for path in files)
    for skeleton in (Path(name) for name in wanted if name.endswith(".skel")):
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{skeleton.stem}.tflite"
            path.write_bytes(restore_skeleton(skeleton.read_bytes()))
            yield skeleton.stem, path
    manifest = REPOSITORY / "examples/models.yaml"
    store = Store(FarmHome(REPOSITORY / ".farm").store)
    for entry in load_manifest(manifest).models:
        if any(fnmatch.fnmatch(entry.id, glob) for glob in wanted):
            yield entry.id, store.path(resolve(entry, store, manifest.parent).sha256)


def environment_of_host() -> dict[str, str]:
    """What the probe reports about this host's devices."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "agent.runner", "--probe"], capture_output=True, text=True, check=True
    )
    devices = json.loads(ran.stdout)["devices"]
    return {f"{d['device_id']}.{key}": value for d in devices for key, value in d["environment"].items()}


if __name__ == "__main__":
    sys.exit(main())
