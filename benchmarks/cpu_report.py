"""Prints the measurements of `cpu_runtime.py` as lines, as a table, and against the marks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.cpu_process import OURS, PEERS, REFERENCE
from runtime.common.statistics import geometric_mean

BUILTIN, XNNPACK = PEERS
MARK_MS = 5.0
FLOAT_KINDS, INTEGER_KINDS = ("float32", "fp16 weights"), ("integer",)
OVERHEAD_MARK_US = 8.0
MEMORY_FACTOR, MEMORY_SLACK_MIB = 2.0, 32.0
LOAD_FACTOR, LOAD_MIB = 3.0, 8.0

_Row = dict[str, Any]


def overhead_us(row: _Row, peer: str = REFERENCE) -> float:
    """Microseconds per operator by which ours takes longer than LiteRT's kernels; 0 where it does not."""
    more = row["ms"][OURS] - row["ms"].get(peer, 0.0)
    return 1000 * max(0.0, more) / max(1, row["operators"])


def memory_limit(row: _Row) -> float | None:
    """MiB that ours may take, from what LiteRT's builtin kernels (else XNNPACK) take; None without either."""
    peaks = row.get("memory_mib", {})
    peer = peaks.get(BUILTIN, peaks.get(XNNPACK))
    return None if peer is None else max(MEMORY_FACTOR * peer, peer + MEMORY_SLACK_MIB)


def marks(report: dict[str, Any]) -> list[str]:
    """One line for each mark, over the rows measured so far."""
    rows = [row for row in report["rows"] if "ms" in row]
    large = [row for row in rows if row["ms"].get(REFERENCE, 0.0) >= MARK_MS]
    lines = _speed_marks(large, FLOAT_KINDS, "float", 5.0)
    lines += _speed_marks(large, INTEGER_KINDS, "integer", 2.0)
    others = sorted({row["kind"] for row in large} - {*FLOAT_KINDS, *INTEGER_KINDS})
    for kind in others:
        lines += _speed_marks(large, (kind,), kind, None)
    lines += _overhead_marks([row for row in rows if 0.0 < row["ms"].get(REFERENCE, 0.0) < MARK_MS])
    lines += _memory_marks([row for row in report["rows"] if OURS in row.get("memory_mib", {})])
    lines += _load_marks(report.get("load", {}))
    failed = [row["model"] for row in report["rows"] if "error" in row or OURS in row.get("absent", {})]
    return lines + ([f"not measured: {', '.join(failed)}"] if failed else [])


def _speed_marks(rows: list[_Row], kinds: Sequence[str], name: str, mark: float | None) -> list[str]:
    counted = [row for row in rows if row["kind"] in kinds]
    if not counted:
        return []
    mean = geometric_mean([_median(row, REFERENCE) for row in counted])
    goal = "no mark" if mark is None else f"mark {mark:g}"
    lines = [f"{name}: {mean:.2f} x reference kernels in geometric mean of {len(counted)} models ({goal})"]
    lines.append(_below(counted, "slower than the reference kernels", REFERENCE, 1.0))
    with_builtin = [row for row in counted if BUILTIN in row["speed_over"]]
    if with_builtin:
        against = geometric_mean([_median(row, BUILTIN) for row in with_builtin])
        lines.append(f"{name}: {against:.2f} x builtin kernels in geometric mean")
        if name == "float":
            lines.append(_below(with_builtin, "beyond 1.5 x the time of builtin kernels", BUILTIN, 1 / 1.5))
    return [line for line in lines if line]


def _below(rows: list[_Row], what: str, peer: str, least: float) -> str:
    found = [f"{row['model']} {_median(row, peer):.2f}" for row in rows if _median(row, peer) < least]
    return f"  {what} ({len(found)}): {', '.join(found)}" if found else f"  {what}: none"


def _overhead_marks(rows: list[_Row]) -> list[str]:
    if not rows:
        return []
    lines = []
    for peer in (REFERENCE, BUILTIN):
        found = {row["model"]: overhead_us(row, peer) for row in rows}
        over = [f"{name} {us:.1f}" for name, us in found.items() if us > OVERHEAD_MARK_US]
        lines.append(
            f"overhead per operator over {peer}, {len(rows)} models below {MARK_MS:g} ms: median "
            f"{statistics.median(found.values()):.1f} us (mark {OVERHEAD_MARK_US:g}); above it: "
            f"{', '.join(over) or 'none'}"
        )
    return lines


def _memory_marks(rows: list[_Row]) -> list[str]:
    if not rows:
        return []
    limits = [(row, memory_limit(row)) for row in rows]
    over = [
        f"{row['model']} {row['memory_mib'][OURS]:.0f} of {limit:.0f} MiB"
        for row, limit in limits
        if limit is not None and row["memory_mib"][OURS] > limit
    ]
    line = f"peak memory beyond max(2 x LiteRT's, + 32 MiB), of {len(rows)} models ({len(over)}): "
    return [line + (", ".join(over) or "none")]


def _load_marks(loads: dict[str, _Row]) -> list[str]:
    if any("seconds" not in row for row in loads.values()) or not loads:
        return []
    small, large = loads.values()
    factor = large["seconds"] / small["seconds"]
    line = f"loading {large['megabytes']:.0f} MB: {factor:.2f} x the time of {small['megabytes']:.1f} MB "
    return [line + f"(mark {LOAD_FACTOR:g}), resident memory +{large['mib']:.1f} MiB (mark {LOAD_MIB:g})"]


def row_line(row: _Row) -> str:
    """A row while the benchmark runs."""
    if "error" in row:
        return f"{row['model']:45} {row['error']}"
    text = f"{row['model']:45} {row['kind']:14}"
    if "ms" in row:
        text += f" {row['ms'][OURS]:9.2f} ms"
        text += "".join(f"  {peer} {_median(row, peer):6.2f}" for peer in row["speed_over"])
        text += f"  {overhead_us(row):.1f} us/op over the reference"
    if OURS in row.get("memory_mib", {}):
        text += "  MiB " + " ".join(f"{name} {mib:.0f}" for name, mib in row["memory_mib"].items())
    return text


def markdown(report: dict[str, Any]) -> str:
    """The page `results/cpu_runtime.md`."""
    heads = ["model", "kind", "operators", "ours ms", "over reference", "over builtin", "over XNNPACK"]
    heads += ["µs per operator", "MiB ours", "MiB builtin", "MiB XNNPACK", "rounds thrown away"]
    lines = [
        "# The CPU path beside LiteRT, one thread",
        "",
        "Speed over LiteRT's kernels in the same process and round (> 1: ours is faster): median of the",
        f"rounds' ratios [95 % interval], {report['rounds']} rounds (3 with the reference kernels). Memory:",
        "growth of the peak of resident memory from just before loading to after two invocations, MiB.",
        "Overhead: what an operator costs us beyond the same arithmetic done plainly, that is, beyond the",
        "reference kernels. Written by `benchmarks/cpu_runtime.py`.",
        "",
        *(f"- {line.strip()}" for line in marks(report)),
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
    ]
    lines += [_table_row(row) for row in report["rows"]]
    lines += ["", "Environment:", "", *(f"- `{k}`: {v}" for k, v in report["environment"].items())]
    return "\n".join(lines) + "\n"


def _table_row(row: _Row) -> str:
    if "ms" not in row:
        reason = row.get("error") or row.get("absent", {}).get(OURS, "not measured")
        return f"| {row['model']} | {row.get('kind', '')} | {reason} |"
    peaks = row.get("memory_mib", {})
    cells = [row["model"], row["kind"], str(row["operators"]), f"{row['ms'][OURS]:.2f}"]
    cells += [_cell(row, peer) for peer in (REFERENCE, BUILTIN, XNNPACK)]
    cells.append(f"{overhead_us(row):.1f}")
    cells += [f"{peaks[name]:.0f}" if name in peaks else "-" for name in (OURS, BUILTIN, XNNPACK)]
    cells.append(str(row["rejected_rounds"]))
    return f"| {' | '.join(cells)} |"


def _cell(row: _Row, peer: str) -> str:
    if peer not in row["speed_over"]:
        return "-"
    found = row["speed_over"][peer]
    return f"{found['median']:.3g} [{found['low']:.3g}, {found['high']:.3g}]"


def _median(row: _Row, peer: str) -> float:
    found = row["speed_over"].get(peer)
    return float("nan") if found is None else float(found["median"])
