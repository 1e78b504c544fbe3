"""One network in every kind of file against LiteRT: what suits a float32, fp16, dynamic-range, integer model.

    python -m benchmarks.model_kinds [--threads 1] [--zoo FOLDER] [--processes 5] [--rounds 5]

Rows of `runtime_vs_peers.py`, one for each kind, of a network whose skeletons are in this repository. Writes
benchmarks/results/model_kinds.{json,md}, and the measured.json that `farm model info` prints.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runtime_vs_peers import (
    BASELINE,
    REPOSITORY,
    RESULTS,
    add_settings,
    environment_of_host,
    measured,
)
from benchmarks.skeletons import restored
from runtime.model.facts import kind_of
from runtime.model.reader import load_model
from tests.reports import write_report
from tests.tree import tree

NETWORK = "torchvision_mobilenet_v2"
VARIANTS = ("", "__fp16", "__dynamic_int8", "__weight_int8", "__static_int8")
TOLD = REPOSITORY / "runtime/tools/model_info/measured.json"
DEVICE = "opencl_device"


def main() -> int:
    """Measure each variant in a process of its own, then write the reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--zoo", type=Path, nargs="*", default=[], help="folders with other skeletons")
    parser.add_argument("--out", type=Path, help="write the JSON there alone")
    add_settings(parser)
    args, began = parser.parse_args(), tree()
    rows = [_row(NETWORK + variant, args) for variant in VARIANTS]
    environment = environment_of_host()
    report = {"network": NETWORK, "threads": args.threads, "environment": environment, "rows": rows}
    if args.out is not None:
        args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        return 0
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "model_kinds.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    write_report(RESULTS / "model_kinds.md", _markdown(report), began, 0)
    TOLD.write_text(json.dumps(_told(report), indent=1) + "\n", encoding="utf-8")
    return 0


def _row(name: str, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(restored(name, *args.zoo))
        file.flush()
        path = Path(file.name)
        facts = {"model": name, "kind": kind_of(load_model(path)), "bytes": path.stat().st_size}
        found = facts | measured(path, args.threads, args)
    print(json.dumps(found), flush=True)
    if "error" in found:
        sys.exit(f"{name}: {found['error']}")
    return found


def _speeds(row: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of one call on each contender, by the ratios of the same rounds."""
    speeds = {name: row["xnnpack_ms"] / entry["median"] for name, entry in row["speed_over_xnnpack"].items()}
    return {BASELINE: row["xnnpack_ms"], **speeds}


def _told(report: dict[str, Any]) -> dict[str, Any]:
    machine = [v for k, v in report["environment"].items() if k.endswith((".cpu", DEVICE))]
    return {
        "source": "benchmarks/results/model_kinds.json",
        "machine": ", ".join(dict.fromkeys(machine)),
        "threads": report["threads"],
        "rows": [
            {
                "model": row["model"],
                "kind": row["kind"],
                "milliseconds": {name: round(ms, 3) for name, ms in _speeds(row).items()},
                "refused": sorted(row["absent"]),
            }
            for row in report["rows"]
        ],
    }


def _markdown(report: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for row in report["rows"] for name in _speeds(row)))
    lines = [
        "# One network in every kind of file",
        "",
        f"`{report['network']}` at {report['threads']} thread(s): milliseconds of one call, by the median of",
        "per-round ratios over XNNPACK; - is refused. Written by `benchmarks/model_kinds.py`.",
        "",
        "| model | kind | MB | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for row in report["rows"]:
        ms = _speeds(row)
        cells = [f"{ms[name]:.2f}" if name in ms else "-" for name in names]
        lines.append(
            f"| {row['model']} | {row['kind']} | {row['bytes'] / 1e6:.1f} | " + " | ".join(cells) + " |"
        )
    lines += ["", "Environment:", "", *(f"- `{k}`: {v}" for k, v in report["environment"].items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
