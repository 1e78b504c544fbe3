"""The report of a campaign as Markdown: each model on each delegate, over the baseline."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.output import environment_lines, table
from runtime.common.statistics import geometric_mean

MARK_MS: Final = 1.0
"""Milliseconds of the baseline from which on a model counts for a mean: below, what surrounds a call weighs
as much. Chosen."""

NOT_FLOAT: Final = "int8"
"""Part of the names of models with narrow integers, which no mean counts."""


def page(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of the whole report."""
    baseline, rows = report["baseline"], report["rows"]
    columns = columns_of(rows, baseline)
    reused = sum(row["reused_from"] is not None for row in rows)
    found = []
    for model, threads in dict.fromkeys((row["model"], row["threads"]) for row in rows):
        cells = {
            column_of(row, rows): row for row in rows if (row["model"], row["threads"]) == (model, threads)
        }
        base = cells.get(baseline)
        ms = "-" if base is None or base["p50_ms"] is None else f"{base['p50_ms']:.3g}"
        found.append([model, threads or "-", ms, *(cell(cells.get(column)) for column in columns)])
    return [
        f"# {report['campaign']}",
        "",
        f"Speed over {baseline} (above 1: faster) with its 95 % interval over blocks of fresh processes,",
        "verdict, grade, and the relative error over all outputs, as `farm results` says them. Written by",
        "`python -m benchmarks.campaign` from",
        f"`benchmarks/{report['campaign']}.yaml`.",
        "",
        *(f"- {line}" for line in summary(rows, columns, baseline)),
        f"- reused from earlier campaigns: {reused} of {len(rows)} cells",
        "",
        *table(["model", "threads", f"{baseline} ms", *columns], found),
        *environment_lines(report),
    ]


def summary(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], baseline: str) -> list[str]:
    """Return, for each delegate and number of threads, the mean that the marks are over, and the verdicts."""
    lines = []
    base_ms = {(row["model"], row["threads"]): row["p50_ms"] for row in rows if row["delegate"] == baseline}
    for column in columns:
        for threads in sorted({row["threads"] for row in rows if row["threads"]}):
            own = [
                row
                for row in rows
                if column_of(row, rows) == column and row["threads"] == threads and row["ratio"] is not None
            ]
            if not own:
                continue
            verdicts = Counter(row["ratio"]["verdict"] for row in own)
            line = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
            counted = {
                row["model"]: row["ratio"]["median"]
                for row in own
                if row["ratio"]["verdict"] != "void"
                and NOT_FLOAT not in row["model"]
                and (base_ms.get((row["model"], threads)) or 0) >= MARK_MS
            }
            if counted:
                least = min(counted, key=lambda model: counted[model])
                line += (
                    f"; {geometric_mean(counted.values()):.2f} x in geometric mean of {len(counted)} float "
                    f"models of {MARK_MS:g} ms and more, least {counted[least]:.2f} x ({least})"
                )
            lines.append(f"{column} at {threads} thread(s): {line}")
    return lines


def columns_of(rows: Sequence[Mapping[str, Any]], baseline: str) -> list[str]:
    """Return the delegates beside the baseline, in their order."""
    return list(dict.fromkeys(column_of(row, rows) for row in rows if row["delegate"] != baseline))


def column_of(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the delegate's name, with the device where it runs on several."""
    # `-` is no device: a cell that none could take does not make one device several.
    devices = {other["device"] for other in rows if other["delegate"] == row["delegate"]} - {"-"}
    return f"{row['delegate']}@{row['device']}" if len(devices) > 1 else str(row["delegate"])


def cell(row: Mapping[str, Any] | None) -> str:
    """Return what a cell says: the ratio, or why there is none."""
    if row is None:
        return "-"
    ratio = row["ratio"]
    if ratio is None:
        return str(row["reason"] or row["status"]).partition(":")[0]
    interval = "no interval" if ratio["ci95"] is None else "{:.3g} to {:.3g}".format(*ratio["ci95"])
    told = f"{ratio['median']:.3g} ({interval}) {ratio['verdict']}, {row['grade']}"
    return told if row["rel_l2"] is None else f"{told}, error {row['rel_l2']:.1e}"
