"""The tables of `judge_power.py`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

OUTCOMES: Final = ("caught", "not judged", "missed")

KINDS: Final = 53
"""Corruptions of the catalogue; those that change an output by less than is meant are not counted."""

MARK: Final = 49
"""How many of them the judge owes in each arithmetic."""

_NAMED: Final = 6
"""Missed corruptions that a row names; the others are in the JSON file."""

_Found = Mapping[str, Any]


def row_line(name: str, row: dict[str, Any]) -> str:
    """Format a model on one line, for the terminal."""
    if "rules" not in row:
        return f"{name:52} {row.get('error') or row['not_judged']}"
    parts = [f"{label}: {_counts(found)}; {_honest(found)}" for label, found in row["rules"].items()]
    return f"{name:52} " + " | ".join(parts)


def markdown(report: dict[str, Any]) -> str:
    """Return the marks, the corruptions by kind, those that were missed, and every model."""
    rules = list(_rules(report))
    alarms = [f"{name} ({label}, {what})" for name, label, found in rules
              for what, one in found["honest"].items() if one["verdict"] == "fail"]  # fmt: skip
    pairings = sum(len(found["honest"]) for _, _, found in rules)
    lines = [
        "# The judge's power",
        "",
        f"Outputs of LiteRT {report['litert']}, `cpu` and `gpu`, judged as a farm judges them; then honest",
        "ones are corrupted. Written by `python -m benchmarks.judge_power`.",
        "",
        f"False alarms: {len(alarms)} of {pairings} honest pairings of {len(report['rows'])} models"
        + (f": {', '.join(alarms)}." if alarms else "."),
        "",
        f"| arithmetic | caught | not judged | missed | of {KINDS} (mark: {MARK}) | kinds at 9 of 10 |",
        "|" + "---|" * 6,
    ]
    labels = [label for label in dict.fromkeys(label for _, label, _ in rules) if _of(rules, label)]
    for label in labels:
        counts = _sum(found["counts"] for found in _of(rules, label))
        by_kind = _by_kind(_of(rules, label))
        often = sum(found["caught"] >= 0.9 * found.total() for found in by_kind.values())
        # As if each output had all kinds: those that would hardly change one are left out of its counts.
        share = KINDS * counts["caught"] / counts.total()
        lines.append(f"| {label} | {_cells(counts)} | {share:.1f} | {often} of {len(by_kind)} |")
    lines += ["", "By corruption: caught / not judged / missed.", ""]
    lines += [f"| corruption | {' | '.join(labels)} |", "|" + "---|" * (1 + len(labels))]
    tables = {label: _by_kind(_of(rules, label)) for label in labels}
    for what in dict.fromkeys(what for table in tables.values() for what in table):
        cells = [" / ".join(str(tables[label].get(what, Counter())[o]) for o in OUTCOMES) for label in labels]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    lines += [
        "",
        "Honest outputs: the verdict, and the error over its bound by the rule of which it takes most.",
        "",
        "| model | rule | caught | not judged | missed | honest outputs | what was missed |",
        "|" + "---|" * 7,
    ]
    for name, row in report["rows"].items():
        if "rules" not in row:
            lines.append(f"| {name} | {row.get('error') or row['not_judged']} | | | | | |")
    for name, label, found in rules:
        missed = "; ".join(found["missed"][:_NAMED])
        lines.append(f"| {name} | {label} | {_cells(found['counts'])} | {_honest(found)} | {missed} |")
    return "\n".join(lines) + "\n"


def _of(rules: Iterable[tuple[str, str, _Found]], label: str) -> list[_Found]:
    return [found for _, of, found in rules if of == label and found["counts"]]


def _by_kind(found: Iterable[_Found]) -> dict[str, Counter[str]]:
    table: dict[str, Counter[str]] = {}
    for one in found:
        for what, counts in one["by_corruption"].items():
            table.setdefault(what, Counter()).update(counts)
    return table


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


def _counts(found: _Found) -> str:
    return ", ".join(f"{found['counts'].get(outcome, 0)} {outcome}" for outcome in OUTCOMES)


def _honest(found: _Found) -> str:
    return ", ".join(f"{what} {_verdict(one)}" for what, one in found["honest"].items())


def _verdict(one: Mapping[str, Any]) -> str:
    verdict = one["verdict"] or "not judged"
    return verdict if one["margin"] is None else f"{verdict} {100 * one['margin']:.2g} %"
