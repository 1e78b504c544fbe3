"""Judges limits on the figures of cells, and writes what came of it as JUnit XML."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from agent.wire.measurement import TOOK_TURNS
from orchestrator.manifest.budget import ENERGY, FPS, MEMORIES, RATIO, Budget
from orchestrator.results.comparison import reason_text
from orchestrator.results.format import visible
from orchestrator.results.records import CellRecord, void_reason
from orchestrator.results.regression import Change, Report
from orchestrator.results.speedups import counted_latency

Outcome: TypeAlias = Literal["met", "exceeded", "open", "not_judged", "no_result"]

FAILED: Final[tuple[Outcome, ...]] = ("exceeded", "no_result")
"""Outcomes that a longer measurement does not mend."""

UNDECIDED: Final[tuple[Outcome, ...]] = ("open", "not_judged")
"""Outcomes that are no answer: whoever asked says whether the build fails for one."""

_INTERVALS: Final = {"p50": "ci95", "p90": "p90_ci95", "p99": "p99_ci95"}


@dataclass(frozen=True, slots=True)
class Judged:
    """One budget of one cell. `said` explains the outcome in figures."""

    cell: CellRecord
    budget: Budget
    outcome: Outcome
    said: str


def judge_budgets(
    cells: Iterable[CellRecord], budgets: Sequence[Budget], earlier: Report | None = None
) -> list[Judged]:
    """Judge every budget of every cell; one that is `unsupported` has no figure to judge, and an earlier
    result that stands while there is no newer one is not judged for it.

    `earlier`: the comparison with an earlier campaign, whose second side these cells are.
    """
    changes = {} if earlier is None else {c.second.cell_id: c for c in earlier.changes if c.second}
    found = []
    outcome: Outcome
    for cell in cells:
        if cell.status == "unsupported":
            continue
        for budget in budgets:
            if cell.kept:
                outcome, said = "no_result", cell.kept
            elif budget.figure == RATIO:
                outcome, said = _judged_ratio(cell, budget, changes.get(cell.cell_id))
            else:
                outcome, said = _judged(cell, budget)
            # A limit is exceeded whatever the outputs are, but outputs that may be wrong do not meet it.
            if outcome == "met" and (unjudged := _unjudged_outputs(cell)):
                outcome, said = "not_judged", f"{said}; {unjudged}"
            found.append(Judged(cell, budget, outcome, said))
    return found


def open_cells(judged: Iterable[Judged]) -> tuple[CellRecord, ...]:
    """Return the cells with a budget that further blocks may decide, each once."""
    return tuple({one.cell.cell_id: one.cell for one in judged if one.outcome == "open"}.values())


def _judged_ratio(cell: CellRecord, budget: Budget, change: Change | None) -> tuple[Outcome, str]:
    if counted_latency(cell) is None:
        return "no_result", _figure(cell, "p50")[2]
    if change is None or change.estimate is None:
        why = "there is no earlier campaign" if change is None else change.why
        return "not_judged", f"nothing to compare with: {why}"
    found = change.estimate
    said = f"{found.ratio:.3f}"
    if found.ci95 is not None:
        said += f" [{found.ci95[0]:.3f} to {found.ci95[1]:.3f}]"
    said += " times the earlier speed" + ("" if found.blocks else ", unpaired")
    if change.verdict == "void":
        return "not_judged", f"{said}; {change.why}"
    if change.is_one_result:
        # Nothing was measured again, because nothing that a result depends on has changed.
        return "met" if budget.limit <= 1.0 else "exceeded", f"{said}; one result, reused"
    if found.ci95 is None:
        return "open", f"{said}; {change.why}"
    low, high = _widened(found.ci95, found.allowance)
    if low >= budget.limit:
        return "met", said
    return "exceeded" if high < budget.limit else "open", said


def _judged(cell: CellRecord, budget: Budget) -> tuple[Outcome, str]:
    value, interval, why = _figure(cell, budget.figure)
    if value is None:
        # A counter that cannot tell arms apart is no fault of the cell, and must not fail a build.
        return "not_judged" if why == TOOK_TURNS else "no_result", why
    shown = _shown(value, budget.figure)
    if (void := void_reason(cell)) is not None:
        return "not_judged", f"{shown}, {void if cell.imported else f'void: {void}'}"
    # More blocks may give such a figure its interval; the others never have one and count as they are.
    if interval is None:
        if budget.figure in _INTERVALS:
            return "open", f"{shown} without an interval: {why}"
        kept = value >= budget.limit if budget.figure == FPS else value <= budget.limit
        return "met" if kept else "exceeded", shown
    # From here on every limit is an upper one: frames, which are bounded from below, have no interval.
    quality = None if cell.measurement is None else cell.measurement.quality
    low, high = _widened(interval, 0.0 if quality is None else quality.allowance)
    said = f"{shown} [{_shown(low, budget.figure)} to {_shown(high, budget.figure)}]"
    if high <= budget.limit:
        return "met", said
    return "exceeded" if low > budget.limit else "open", said


def _widened(interval: tuple[float, float], allowance: float) -> tuple[float, float]:
    return interval[0] * math.exp(-allowance), interval[1] * math.exp(allowance)


def _unjudged_outputs(cell: CellRecord) -> str:
    """Why it is not known whether the outputs are right; empty where it is."""
    if cell.measurement is None or cell.measurement.accuracy.verdict is not None:
        return ""
    return f"its outputs were not judged: {cell.measurement.accuracy.note or 'not recorded'}"


def _figure(cell: CellRecord, name: str) -> tuple[float | None, tuple[float, float] | None, str]:
    """Return the value, its interval if it has one, and why one of them is missing."""
    latency = counted_latency(cell)
    if latency is None or cell.measurement is None:
        reason = "" if cell.reason is None else f" ({cell.reason.code}: {cell.reason.text})"
        return None, None, f"{cell.struck_as if cell.struck_out else cell.status}{reason}"
    if name in MEMORIES:
        return getattr(cell, MEMORIES[name]), None, "not recorded"
    if name == ENERGY:
        energy = cell.measurement.energy
        return energy.invoke_mj, energy.ci95, energy.note or "not recorded"
    if name == FPS:
        found = cell.measurement.pipeline
        if found is None:
            return None, None, "its campaign file asks for no `measure: {pipeline: …}`"
        return found.per_second, None, found.missing.get("per_second", "not recorded")
    value: Any = getattr(latency, name)
    field = _INTERVALS.get(name, "")
    interval = getattr(latency, field) if field else None
    missing = latency.missing.get(field if value is not None else name, "not recorded")
    return value, interval, missing


def _shown(value: float, figure: str) -> str:
    if figure == FPS:
        return f"{value:.4g} frames/s"
    if figure == ENERGY:
        return f"{value:.4g} mJ"
    return f"{value / 1e6:.4g} MB" if figure in MEMORIES else f"{value:.4g} ms"


_ENDED: Final = ("done", "unsupported")


def junit_xml(
    name: str, cells: Iterable[CellRecord], judged: Sequence[Judged], failing: Collection[Outcome] = FAILED
) -> str:
    """Return the document: failed cells and budgets of a `failing` outcome are failures; others not met,
    skipped.

    Characters that XML cannot hold are written by name: they come from a stranger's model.
    """
    suite = Element("testsuite", name=visible(name))
    for cell in cells:
        case = SubElement(suite, "testcase", classname=_class(cell), name="measured")
        # A kept result is of an earlier run: this one has none.
        if cell.struck_out or cell.kept or cell.status not in _ENDED:
            SubElement(case, "failure", message=visible(cell.kept or reason_text(cell) or cell.status))
        elif cell.status == "unsupported":
            SubElement(case, "skipped", message=visible(reason_text(cell)))
    for one in judged:
        case = SubElement(suite, "testcase", classname=_class(one.cell), name=one.budget.text)
        if one.outcome != "met":
            kind = "failure" if one.outcome in failing else "skipped"
            SubElement(case, kind, message=visible(f"{one.outcome.replace('_', ' ')}: {one.said}"))
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    indent(suite)
    return tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _class(cell: CellRecord) -> str:
    return visible(f"{cell.model}.{cell.delegate}@{cell.device}")
