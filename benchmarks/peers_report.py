"""The table of `runtime_vs_peers.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from runtime.common.statistics import geometric_mean

MARK_MS: Final = 1.0
"""Milliseconds from which on a model counts for the marks: below, what surrounds a call weighs as much."""


def row_line(row: dict[str, Any]) -> str:
    """A row on one line, for the terminal."""
    head = f"{row['model']:42} {row['threads']}t"
    if "error" in row:
        return f"{head}  {row['error']}"
    absent = "".join(f"  {name}: {why}" for name, why in row["absent"].items())
    if row["xnnpack_ms"] is None:
        return head + absent
    speeds = "  ".join(f"{name} {found['median']:.2f}" for name, found in row["speed_over_xnnpack"].items())
    return f"{head}  xnnpack {row['xnnpack_ms']:7.2f} ms  x {speeds}{absent}"


def marks(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The geometric means over the float models that the marks count."""
    lines = []
    for threads in sorted({row["threads"] for row in rows}):
        for name in ("gpu", "cpu"):
            counted = [
                row["speed_over_xnnpack"][name]["median"]
                for row in rows
                if row["threads"] == threads
                and "int8" not in row["model"]
                and (row.get("xnnpack_ms") or 0) >= MARK_MS
                and name in row["speed_over_xnnpack"]
            ]
            if counted:
                lines.append(
                    f"{name} at {threads} thread(s): {geometric_mean(counted):.2f} x XNNPACK, geometric mean "
                    f"over {len(counted)} float models on which XNNPACK takes >= {MARK_MS:g} ms"
                )
    return lines


def table(report: dict[str, Any], names: Sequence[str]) -> str:
    """The whole report as Markdown."""
    lines = [
        "# The runtime against its peers",
        "",
        "Speed over LiteRT with XNNPACK (> 1 is faster). Every contender runs in processes of its own, which",
        f"take turns by rounds: {report['processes']} blocks of fresh processes, {report['rounds']} rounds",
        "in each. A cell has the geometric mean over the blocks with Student's 95 % interval over them, and",
        "in brackets the interval over the rounds of the first block alone: it repeats rounds, and says how",
        "well one process is known, not how well the next will do. Written by",
        "`python -m benchmarks.runtime_vs_peers`.",
        "",
        "| model | threads | XNNPACK ms | " + " | ".join(names) + " | rounds thrown away |",
        "|---|---|---|" + "---|" * (len(names) + 1),
    ]
    for row in report["rows"]:
        if "error" in row:
            lines.append(f"| {row['model']} | {row['threads']} | {row['error']} |" + " |" * (len(names) + 1))
            continue
        cells = " | ".join(_cell(row["speed_over_xnnpack"].get(name)) for name in names)
        ms = "-" if row["xnnpack_ms"] is None else f"{row['xnnpack_ms']:.2f}"
        lines.append(f"| {row['model']} | {row['threads']} | {ms} | {cells} | {row['rejected_rounds']} |")
    lines += ["", *(f"- {line}" for line in marks(report["rows"])), *_widths(report["rows"]), ""]
    lines += ["Environment:", "", *(f"- `{key}`: {value}" for key, value in report["environment"].items())]
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    rounds = found["rounds_of_one_block"]
    over = "no interval" if found["ci95"] is None else "{:.3g} to {:.3g}".format(*found["ci95"])
    return f"{found['median']:.3g}, {over} ({rounds['low']:.3g} to {rounds['high']:.3g})"


def _widths(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How the widths of the two intervals compare over all cells."""
    found = [cell for row in rows for cell in row.get("speed_over_xnnpack", {}).values() if cell["ci95"]]
    if not found:
        return []
    over = [cell["ci95"][1] / cell["ci95"][0] for cell in found]
    within = [cell["rounds_of_one_block"]["high"] / cell["rounds_of_one_block"]["low"] for cell in found]
    ends = (f"{100 * (geometric_mean(widths) - 1):.1f} %" for widths in (over, within))
    return ["- from end to end, an interval over processes spans {}, one over rounds {}".format(*ends)]
