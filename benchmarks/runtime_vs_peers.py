"""`cpu` and `gpu` against LiteRT: XNNPACK, builtin kernels without a delegate, reference kernels.

    .venv/bin/python benchmarks/runtime_vs_peers.py [--rounds 15] [--threads 1 2] [--only GLOB]

Every contender of a model runs in one process, interleaved (interleaved.py); one process per model and
thread count, pinned to as many CPUs as threads. A call is inputs in, invoke, outputs out. Numbers are
speed ratios over XNNPACK (> 1: faster than XNNPACK), medians of per-round ratios with a 95 % interval.
Writes benchmarks/results/runtime_vs_peers.{json,md}.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.interleaved import geometric_mean, measure, ratio

REPOSITORY = Path(__file__).resolve().parent.parent

RESULTS = REPOSITORY / "benchmarks/results"
BASELINE = "litert-xnnpack"
CONTENDERS = (BASELINE, "litert-builtin", "litert-reference", "cpu", "gpu")
MARK_MS = 1.0


def main() -> int:
    """Parent: one child per model and thread count; then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice", type=float, default=0.15, help="seconds per contender and round")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="*", help="glob over model ids")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "THREADS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(_measure_model(args.child[0], int(args.child[1]), args.rounds, args.slice)))
        return 0
    rows = []
    for model_id, path in _demo_models():
        for threads in args.threads if fnmatch.fnmatch(model_id, args.only) else ():
            row = {"model": model_id, "threads": threads} | measured_in_child(path, threads, args)
            rows.append(row)
            print(_line(row), flush=True)
    report = {"environment": environment_of_host(), "rounds": args.rounds, "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "runtime_vs_peers.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "runtime_vs_peers.md").write_text(_markdown(report), encoding="utf-8")
    print("\n".join(_marks(rows)))
    return 0


def _demo_models() -> list[tuple[str, Path]]:
    from orchestrator.config.home import FarmHome  # noqa: PLC0415
    from orchestrator.manifest import load_manifest  # noqa: PLC0415
    from orchestrator.sources import resolve  # noqa: PLC0415
    from orchestrator.sources.store import Store  # noqa: PLC0415

    manifest = REPOSITORY / "examples/models.yaml"
    store = Store(FarmHome(REPOSITORY / ".farm").store)
    campaign = load_manifest(manifest)
    stored = [resolve(entry, store, manifest.parent) for entry in campaign.models]
    return [(m.id, store.path(m.sha256)) for m in stored]


def measured_in_child(path: Path, threads: int, args: argparse.Namespace) -> dict[str, Any]:
    """Row of a model, measured in a process of its own that is pinned to `threads` CPUs."""
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    count = str(threads)
    environment = os.environ | {
        "OPENBLAS_NUM_THREADS": count,
        "OMP_NUM_THREADS": count,
        "POCL_MAX_PTHREAD_COUNT": count,
    }
    command = [sys.executable, "-m", "benchmarks.runtime_vs_peers", "--child", str(path), count]
    command += ["--rounds", str(args.rounds), "--slice", str(args.slice)]
    ran = subprocess.run(
        ["taskset", "-c", ",".join(map(str, cpus)), *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        return {"error": ran.stderr.strip().splitlines()[-1:] or [f"exit {ran.returncode}"]}
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def _measure_model(path: str, threads: int, rounds: int, slice_s: float) -> dict[str, Any]:
    calls, absent, delegation = {}, {}, {}
    for name in CONTENDERS:
        try:
            loaded = _load(name, path, threads)
            calls[name] = _call(loaded)
            calls[name]()
        except Exception as error:  # noqa: BLE001  # a contender that cannot run is a row of the table
            absent[name] = f"{type(error).__name__}: {error}"
            calls.pop(name, None)
            continue
        report = getattr(loaded, "delegation", None)
        if report is not None:
            delegation[name] = f"{report.delegated_ops}/{report.total_ops}"
    reference = calls.pop("litert-reference", None)
    timed = measure(calls, rounds, slice_s)
    speed = {
        name: asdict(ratio(timed.seconds[BASELINE], timed.seconds[name]))
        for name in calls
        if name != BASELINE
    }
    if reference is not None:
        slow = measure({BASELINE: calls[BASELINE], "litert-reference": reference}, 3, slice_s)
        speed["litert-reference"] = asdict(ratio(slow.seconds[BASELINE], slow.seconds["litert-reference"]))
    baseline = sorted(timed.seconds[BASELINE])
    return {
        "xnnpack_ms": 1000 * baseline[len(baseline) // 2],
        "speed_over_xnnpack": speed,
        "rejected_rounds": timed.rejected,
        "absent": absent,
        "delegation": delegation,
    }


def _load(name: str, path: str, threads: int) -> Any:
    import runtime  # noqa: PLC0415

    if name.startswith("litert-"):
        options = {"threads": threads, "resolver": name.removeprefix("litert-")}
        return runtime.load_delegate("litert", options).load(path)
    delegates = [runtime.load_delegate("gpu", {})] if name == "gpu" else None
    interpreter = runtime.Interpreter(model_path=path, experimental_delegates=delegates, num_threads=threads)
    interpreter.allocate_tensors()
    if delegates and interpreter.delegation.status != "full":
        raise RuntimeError(
            f"delegation is {interpreter.delegation.status}: {interpreter.delegation.fallbacks[:1]}"
        )
    return interpreter


def _call(loaded: Any) -> Any:
    import numpy as np  # noqa: PLC0415

    rng = np.random.default_rng(0)
    inputs = []
    for detail in loaded.get_input_details():
        dtype = np.dtype(detail["dtype"])
        integer = np.issubdtype(dtype, np.integer)
        values = rng.integers(-100, 100, detail["shape"]) if integer else rng.uniform(-1, 1, detail["shape"])
        inputs.append((detail["index"], values.astype(dtype)))
    outputs = [detail["index"] for detail in loaded.get_output_details()]

    def call() -> None:
        for index, value in inputs:
            loaded.set_tensor(index, value)
        loaded.invoke()
        for index in outputs:
            loaded.get_tensor(index)

    return call


def environment_of_host() -> dict[str, str]:
    """What the probe reports about this host's devices."""
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "agent.runner", "--probe"], capture_output=True, text=True, check=True
    )
    devices = json.loads(ran.stdout)["devices"]
    return {f"{d['device_id']}.{key}": value for d in devices for key, value in d["environment"].items()}


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['model']:42} {row['threads']}t  {row['error'][0]}"
    cells = [
        f"{name} {row['speed_over_xnnpack'][name]['median']:.2f}"
        if name in row["speed_over_xnnpack"]
        else f"{name} -"
        for name in CONTENDERS[1:]
    ]
    return f"{row['model']:42} {row['threads']}t  xnnpack {row['xnnpack_ms']:7.2f} ms  x " + "  ".join(cells)


def _marks(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for threads in sorted({row["threads"] for row in rows}):
        for name in ("gpu", "cpu"):
            counted = [
                row["speed_over_xnnpack"][name]["median"]
                for row in rows
                if row["threads"] == threads
                and "int8" not in row["model"]
                and row.get("xnnpack_ms", 0) >= MARK_MS
                and name in row["speed_over_xnnpack"]
            ]
            if counted:
                lines.append(
                    f"{name} at {threads} thread(s): {geometric_mean(counted):.2f} x XNNPACK, geometric mean "
                    f"over {len(counted)} float models on which XNNPACK takes >= {MARK_MS:g} ms"
                )
    return lines


def _markdown(report: dict[str, Any]) -> str:
    lines = [
        "# The runtime against its peers",
        "",
        "Speed over LiteRT with XNNPACK in the same process and round (> 1 is faster): median of per-round",
        f"ratios [95 % interval], {report['rounds']} rounds. Written by `benchmarks/runtime_vs_peers.py`.",
        "",
        "| model | threads | XNNPACK ms | " + " | ".join(CONTENDERS[1:]) + " | rounds thrown away |",
        "|---|---|---|" + "---|" * len(CONTENDERS),
    ]
    for row in report["rows"]:
        if "error" in row:
            lines.append(f"| {row['model']} | {row['threads']} | {row['error'][0]} |")
            continue
        cells = [_cell(row, name) for name in CONTENDERS[1:]]
        lines.append(
            f"| {row['model']} | {row['threads']} | {row['xnnpack_ms']:.2f} | "
            + " | ".join(cells)
            + f" | {row['rejected_rounds']} |"
        )
    lines += ["", *(f"- {line}" for line in _marks(report["rows"])), "", "Environment:", ""]
    lines += [f"- `{key}`: {value}" for key, value in report["environment"].items()]
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any], name: str) -> str:
    if name not in row["speed_over_xnnpack"]:
        return "-"
    value = row["speed_over_xnnpack"][name]
    return f"{value['median']:.3g} [{value['low']:.3g}, {value['high']:.3g}]"


if __name__ == "__main__":
    raise SystemExit(main())
