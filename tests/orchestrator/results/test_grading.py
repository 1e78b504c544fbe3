"""The grade of a cell, by its ratio or its median."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.wire.measurement import Quality, Ratio
from orchestrator.results.grading import Graded, grade_of, p50_grade
from orchestrator.results.records import CellRecord
from tests.orchestrator.cli.records import cell


def graded(interval: tuple[float, float] | None = (1.99, 2.01), **changes: object) -> CellRecord:
    one = cell("net", "cpu", ci95=interval)
    assert one.measurement is not None
    return replace(one, measurement=one.measurement.model_copy(update=changes))


def ratio(interval: tuple[float, float] | None, allowance: float = 0.0) -> Ratio:
    return Ratio(
        against="litert@host-cpu", baseline_id="0123456789ab", device_id="host-cpu", median=1.5,
        ci95=interval, blocks=3, seed=1, allowance=allowance,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("interval", "quality", "grade", "reason"),
    [
        ((1.99, 2.01), None, "good", ""),
        ((1.99, 2.01), Quality(facts=("autocorrelated",)), "good", ""),
        ((1.99, 2.01), Quality(allowance=0.04), "fair", "others took 3.9% of the time of the rounds"),
        ((1.9, 2.1), Quality(facts=("autocorrelated", "drift")), "fair", "autocorrelated"),
        ((1.9, 2.1), Quality(), "fair", ""),
        ((1.5, 2.5), Quality(), "noisy", ""),
        (None, Quality(), "noisy", ""),
        ((1.99, 2.01), Quality(void=("swap", "drift")), "void", "swap"),
    ],
)
def test_a_median_is_graded_by_what_it_is_known_to(
    interval: tuple[float, float] | None, quality: Quality | None, grade: str, reason: str
) -> None:
    found = p50_grade(graded(interval, quality=quality))
    assert found is not None
    assert (found.grade, found.reason) == (grade, reason)
    assert (found.known_to is None) == (interval is None)


def test_a_cell_with_a_baseline_is_graded_by_its_ratio() -> None:
    one = graded((1.0, 3.0), ratio=ratio((1.49, 1.51), 0.02), quality=Quality(allowance=0.5))
    found = grade_of(one)
    assert found is not None
    assert (found.grade, found.allowance, found.known_to) == ("good", 0.02, pytest.approx(0.0267, abs=1e-4))
    of_median = p50_grade(one)
    assert of_median is not None
    assert (of_median.grade, of_median.allowance) == ("noisy", 0.5)
    assert grade_of(graded()) == p50_grade(graded())
    void = grade_of(graded(ratio=ratio((1.49, 1.51)), quality=Quality(void=("swap",))))
    assert void is not None
    assert (void.grade, void.reason) == ("void", "swap")


@pytest.mark.parametrize(
    "one",
    [
        cell("net", "cpu", verdict="fail"),
        replace(cell("net", "cpu"), status="failed"),
        replace(cell("net", "cpu"), measurement=None),
        cell("net", "cpu", p50=None, ci95=None),
    ],
    ids=["wrong output", "failed", "nothing measured", "too few samples"],
)
def test_what_does_not_count_has_no_grade(one: CellRecord) -> None:
    assert p50_grade(one) is None
    assert grade_of(one) is None


def test_an_imported_result_is_void_and_says_so() -> None:
    imported = replace(cell("net", "cpu"), facts={"imported_tool": "tool", "imported_sha256": "ab"})
    assert grade_of(imported) == Graded(
        "void", pytest.approx(0.05, abs=1e-3), 0.0, "imported: measured by tool, not by this farm"
    )
