"""Lists the kernels of the GPU delegate by the time that they lose against the measured roofline.

    .venv/bin/python -m benchmarks.kernels [--models 'torchvision_*'] [--option precision=bf16 ...]

Profiles each model, kernel by kernel, in a process of its own. A kernel could take what its arithmetic takes
at the device's peak, or its traffic at that of its memory, whichever is longer (`Peaks` of `farm model
profile`, the best of all models, as other work only lowers them); what it takes beyond is lost. Traffic that
a cache holds costs nothing: a kernel that only moves it is lost as a whole, as another could have done it on
its way. Kernels that multiply narrow numbers have a multiple of the peak in fp32. The list has the functions
of all models together, those that lose most first: what to work on. Writes benchmarks/results/kernels.json
and .md. The machine must run nothing else.
"""

import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from benchmarks import output
from runtime.measure.inputs import ranged
from runtime.model.reader import read_model
from runtime.tools.model_profile import document, profile_file
from tests.tree import tree

FASTER: Final[Mapping[str, int]] = {"i8_integer_gemm": 4, "f32_integer_gemm": 4, "bf16": 2}
"""Part of a function's name → its arithmetic over that in float32: the products that one instruction adds."""

CACHED_BYTES: Final = 2 << 20
"""Bytes read and written by a kernel that lie in a core's second-level cache: 2 MiB on current servers.
Larger counts more traffic as lost."""

_SHAPE: Final = re.compile(r"\d+(x\d+)*")
"""Words of a label that are sizes, `196x1024x256`; a filter has its stride, `3x3s1`."""

SHOWN: Final = 40
"""Functions and operators in the page; the JSON has all. Chosen: behind them little is lost."""


def main() -> int:
    """Profile the models, print, write."""
    options = output.parser(__doc__, output.RESULTS / "kernels.json")
    options.add_argument("--models", nargs="+", default=["*"], help="globs over names of skeletons")
    options.add_argument("--option", action="append", default=[], help="NAME=VALUE of the delegate")
    options.add_argument("--one", help="profile this model alone, and print the profile as JSON")
    args, began = options.parse_args(), tree()
    if args.one:
        print(json.dumps(profiled(args.one, dict(one.split("=", 1) for one in args.option))))
        return 0
    profiles, failed = {}, {}
    for name in names(args.models):
        print(name, file=sys.stderr)
        given = (word for one in args.option for word in ("--option", one))
        try:
            profiles[name] = output.in_a_process("kernels", "--one", name, *given)
        except output.FailedError as error:
            failed[name] = str(error)
    rows, models, operators = work_list(profiles), by_model(profiles), by_operator(profiles)
    lines = page(models, best_peaks(profiles), failed, rows, operators)
    report = {"failed": failed, "models": models, "operators": operators, "kernels": rows}
    output.write_report(args.out, report, lines, began, status=1 if failed else 0)
    print("\n".join(lines))
    return 1 if failed else 0


def names(globs: Iterable[str]) -> list[str]:
    """Return the names of this repository's skeletons that match."""
    found = {path.stem for folder in output.FOLDERS for path in folder.glob("*.skel")}
    return sorted(name for name in found if any(fnmatch(name, one) for one in globs))


def profiled(name: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the profile of a model as `farm model profile --json` gives it."""
    with tempfile.TemporaryDirectory(prefix="farm-kernels-") as folder:
        path = Path(folder) / "model.tflite"
        content = output.restored(name)
        path.write_bytes(content)
        rules = ranged({}, read_model(content).subgraphs[0])
        return document(profile_file(path, "gpu", options, rules), name)


def work_list(profiles: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the functions of all models take and lose in microseconds, the largest loss first."""
    found: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"us": 0.0, "lost_us": 0.0, "launches": 0, "worst": ("-", 0.0)}
    )
    peaks = best_peaks(profiles)
    for model, profile in profiles.items():
        for row in profile["rows"]:
            lost = row["time_ns"] - least_ns(row, peaks)
            one = found[row["name"]]
            one["us"] += row["time_ns"] / 1e3
            one["lost_us"] += max(0.0, lost) / 1e3
            one["launches"] += 1
            one["worst"] = max(one["worst"], (f"{row['label']} of {model}", lost / 1e3), key=lambda of: of[1])
    rows = [{"function": name, **one} for name, one in found.items()]
    return sorted(rows, key=lambda row: -row["lost_us"])


def by_operator(profiles: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the operators of all models take and would at the roofline in microseconds, by the operator
    and its filter, whatever its shape: what loses most first.
    """
    found: dict[str, dict[str, Any]] = defaultdict(lambda: {"launches": 0, "us": 0.0, "least_us": 0.0})
    peaks = best_peaks(profiles)
    for row in (row for profile in profiles.values() for row in profile["rows"]):
        one = found[" ".join(word for word in row["label"].split() if not _SHAPE.fullmatch(word))]
        one["launches"] += 1
        one["us"] += row["time_ns"] / 1e3
        one["least_us"] += min(row["time_ns"], least_ns(row, peaks)) / 1e3
    rows = [{"operator": name, **one} for name, one in found.items()]
    return sorted(rows, key=lambda row: row["least_us"] - row["us"])


def by_model(profiles: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the kernels of each model take in microseconds, and would at the roofline; the smallest
    share of it first.
    """
    peaks, found = best_peaks(profiles), []
    for model, profile in profiles.items():
        rows = profile["rows"]
        # A kernel that is faster than the measured peaks allow has lost nothing.
        least = sum(min(row["time_ns"], least_ns(row, peaks)) for row in rows)
        whole = sum(row["time_ns"] for row in rows)
        if whole:
            found.append({"model": model, "us": whole / 1e3, "least_us": least / 1e3})
    return sorted(found, key=lambda row: row["least_us"] / row["us"])


def best_peaks(profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, float] | None:
    """Return the highest peaks that a process measured; None where none did."""
    known = [profile["peaks"] for profile in profiles.values() if profile["peaks"]]
    return {name: max(one[name] for one in known) for name in known[0]} if known else None


def least_ns(row: Mapping[str, Any], peaks: Mapping[str, float] | None) -> float:
    """Return a kernel's time at the roofline; its own where its work or the peak is not known."""
    if peaks is None or not (row["flops"] or row["bytes"]):
        return float(row["time_ns"])
    faster = next((rate for part, rate in FASTER.items() if part in row["name"]), 1)
    # In ns: GFLOP/s are operations a nanosecond, and GB/s bytes.
    arithmetic, traffic = row["flops"] / (faster * peaks["gflops"]), row["bytes"] / peaks["gigabytes"]
    return float(max(arithmetic, traffic if row["bytes"] > CACHED_BYTES else 0.0))


def page(
    models: list[dict[str, Any]],
    peaks: Mapping[str, float] | None,
    failed: Mapping[str, str],
    rows: list[dict[str, Any]],
    operators: list[dict[str, Any]],
) -> list[str]:
    """Return the lines of a page in Markdown."""
    whole, lost = sum(row["us"] for row in rows), sum(row["lost_us"] for row in rows)
    told = "no peaks" if peaks is None else f"{peaks['gflops']:.0f} GFLOP/s, {peaks['gigabytes']:.1f} GB/s"
    return [
        "# Kernels by the time that they lose",
        "",
        f"{len(models)} models; peaks in fp32 and of memory: {told}.",
        f"All kernels take {whole / 1e3:.1f} ms, of which {lost / 1e3:.1f} ms are beyond the roofline.",
        f"Traffic up to {CACHED_BYTES >> 20} MiB counts as free: a cache holds it.",
        "Written by `python -m benchmarks.kernels`.",
        *(f"- failed: {name}: {why}" for name, why in failed.items()),
        "",
        *output.table(
            ("function", "launches", "us", "lost us", "worst"),
            (
                (f"`{row['function']}`", row["launches"], f"{row['us']:.0f}", f"{row['lost_us']:.0f}",
                 f"{row['worst'][0]}, {row['worst'][1]:.0f} us")
                for row in rows[:SHOWN]
            ),
        ),
        "",
        "The operators, by the time that they lose; `3x3s2`: a filter and its stride:",
        "",
        *_shares("operator", operators[:SHOWN]),
        "",
        "The models, by the share of their time that the roofline explains:",
        "",
        *_shares("model", models),
    ]  # fmt: skip


def _shares(what: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table of what takes longer than at the roofline."""
    return output.table(
        (what, "us", "at the roofline", "share"),
        (
            (one[what], f"{one['us']:.0f}", f"{one['least_us']:.0f}", f"{one['least_us'] / one['us']:.0%}")
            for one in rows
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
