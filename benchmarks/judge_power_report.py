"""The tables of `judge_power.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

OUTCOMES: Final = ("caught", "not judged", "missed")

MARK: Final = 0.95
"""Share of the corruptions that are caught or explicitly not judged, which the judge owes."""

_NAMED: Final = 6
"""Missed corruptions that a row names; the others are in the JSON file."""


def row_line(name: str, row: dict[str, Any]) -> str:
    """A model on one line, for the terminal."""
    if "rules" not in row:
        return f"{name:52} {row.get('error') or row['not_judged']}"
    parts = [f"{label}: {_counts(found)}, XNNPACK {_verdict(found)}" for label, found in row["rules"].items()]
    return f"{name:52} " + "; ".join(parts)


def markdown(report: dict[str, Any]) -> str:
    """The marks, the corruptions by kind, what was missed, and every model."""
    judged = [(name, label, found) for name, label, found in _rules(report)]
    total = _sum(found["counts"] for _, _, found in judged)
    good, every = total["caught"] + total["not judged"], total.total()
    failed = [f"{name} ({label})" for name, label, found in judged if _verdict(found) == "fail"]
    lines = [
        "# The judge's power",
        "",
        f"Outputs of XNNPACK (LiteRT {report['litert']}), corrupted and judged as a delegate's are;",
        f"{report['sets']} input sets a model. Written by `python -m benchmarks.judge_power`.",
        "",
        f"- {good} of {every} corruptions ({good / max(1, every):.2%}) are caught or explicitly not judged;",
        f"  the mark is {MARK:.0%}. Caught: {total['caught']}, not judged: {total['not judged']}, missed:",
        f"  {total['missed']}.",
        f"- XNNPACK's own output fails on {len(failed)} of {len(judged)} pairings"
        + (f": {', '.join(failed)}." if failed else "."),
        "",
        "| corruption | caught | not judged | missed |",
        "|---|---|---|---|",
    ]
    for what in dict.fromkeys(what for _, _, found in judged for what in found["by_corruption"]):
        counts = _sum(found["by_corruption"].get(what, {}) for _, _, found in judged)
        lines.append(f"| {what} | {_cells(counts)} |")
    lines += [
        "",
        "| model | rule | caught | not judged | missed | XNNPACK | what was missed |",
        "|" + "---|" * 7,
    ]
    for name, row in report["rows"].items():
        if "rules" not in row:
            lines.append(f"| {name} | {row.get('error') or row['not_judged']} | | | | | |")
    for name, label, found in judged:
        missed = "; ".join(found["missed"][:_NAMED])
        lines.append(f"| {name} | {label} | {_cells(found['counts'])} | {_verdict(found)} | {missed} |")
    return "\n".join(lines) + "\n"


def _sum(tables: Iterable[Mapping[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for table in tables:
        total.update(table)
    return total


def _cells(counts: Mapping[str, int]) -> str:
    return " | ".join(str(counts.get(outcome, 0)) for outcome in OUTCOMES)


def _rules(report: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, row in report["rows"].items():
        yield from ((name, label, found) for label, found in row.get("rules", {}).items())


def _counts(found: dict[str, Any]) -> str:
    return ", ".join(f"{found['counts'].get(outcome, 0)} {outcome}" for outcome in OUTCOMES)


def _verdict(found: dict[str, Any]) -> str:
    return found["xnnpack"]["verdict"] or "not judged"
