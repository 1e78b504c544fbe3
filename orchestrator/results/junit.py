"""JUnit XML of a campaign: a test case for each cell, and one for each of its budgets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from orchestrator.results.budgets import FAILED, Judged, Outcome
from orchestrator.results.comparison import reason_text
from orchestrator.results.format import visible
from orchestrator.results.records import CellRecord

_ENDED: Final = ("done", "unsupported")


def junit_xml(
    name: str, cells: Iterable[CellRecord], judged: Sequence[Judged], failing: Collection[Outcome] = FAILED
) -> str:
    """Write the document: failed cells and budgets of a `failing` outcome are failures; others not met,
    skipped.

    Characters that XML cannot hold are written by name: they come from a stranger's model.
    """
    suite = Element("testsuite", name=visible(name))
    for cell in cells:
        case = SubElement(suite, "testcase", classname=_class(cell), name="measured")
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
