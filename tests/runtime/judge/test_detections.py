"""Detections are judged by what they say: matched by class and place, whatever their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from runtime.judge.agreement import Expected, Judgement, OutputFacts, judge_each, worst
from runtime.judge.detections import Matching, overlap
from runtime.judge.kinds import ROLES, OutputKind
from runtime.judge.rules import Rule

FACTS = [OutputFacts(role) for role in ROLES]
KINDS = [OutputKind("detections", role) for role in ROLES]
FP32 = Rule("floats", 1e-4, "fp32")
PARTS = list[np.ndarray]


def detector(seed: int = 0) -> PARTS:
    """Three objects above the bound, two boxes of low score, and padding."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 0.5, (6, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.2, 0.4, (6, 2))], axis=1)
    scores = np.array([0.9, 0.7, 0.5, 0.1, 0.0999999, 0.0])
    classes = np.array([3, 1, 3, 7, 8, 0])
    return [part.astype(np.float32)[None] for part in (boxes, classes, scores)] + [np.float32([5])]


def reordered(parts: PARTS) -> None:
    """Swap the two boxes of low score, which differ by a rounding."""
    for part in parts[:2]:
        part[0, [3, 4]] = part[0, [4, 3]]


def other_noise(parts: PARTS) -> None:
    """Find another box, of another class, far below the bound."""
    parts[0][0, 4], parts[1][0, 4] = [0.0, 0.0, 0.1, 0.1], 55


def swapped_classes(parts: PARTS) -> None:
    """Answer by another table of classes."""
    parts[1][:] = 9 - parts[1]


def dropped_box(parts: PARTS) -> None:
    """Lose the second detection."""
    for part in parts[:3]:
        part[0, 1:5] = part[0, 2:6]
    parts[3][:] = 4


def added_box(parts: PARTS) -> None:
    """Find one that is not there."""
    parts[0][0, 5], parts[1][0, 5], parts[2][0, 5], parts[3][:] = [0, 0, 0.1, 0.1], 2, 0.8, 6


def moved_box(parts: PARTS) -> None:
    """Move a box by 20 % of its width."""
    box = parts[0][0, 2]
    box[[1, 3]] += 0.2 * (box[3] - box[1])


def wrong_score(parts: PARTS) -> None:
    """Be 5 % surer than the reference."""
    parts[2][0, 0] *= 0.95


def empty(parts: PARTS) -> None:
    """Find nothing at all."""
    parts[3][:] = 0


def not_a_number(parts: PARTS) -> None:
    """Leave one corner undefined."""
    parts[0][0, 0, 0] = np.nan


def judged(change: Callable[[PARTS], None] | None, rule: Rule = FP32) -> Judgement:
    """Judge a detector's outputs of two sets, those of the second one changed."""
    references = [detector(0), detector(1)]
    outputs = [detector(0), detector(1)]
    if change is not None:
        change(outputs[1])
    return worst(judge_each(Expected(references, FACTS, kinds=KINDS), outputs, rule))


@pytest.mark.parametrize("change", [None, reordered, other_noise])
def test_what_says_the_same_passes(change: Callable[[PARTS], None] | None) -> None:
    found = judged(change)
    assert found.verdict == "pass", found.note
    assert found.matching is not None
    assert (found.matching.matched, found.matching.missing, found.matching.added) == (6, 0, 0)
    assert found.matching.mean_iou == pytest.approx(1.0)


WRONG = {
    swapped_classes: "3 of 3 detections are missing",
    dropped_box: "1 of 3 detections are missing",
    added_box: "1 detections are added",
    moved_box: "a box overlaps its partner by",
    wrong_score: "a score is off by",
    empty: "3 of 3 detections are missing",
    not_a_number: "NaN",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_what_says_something_else_fails(change: Callable[[PARTS], None]) -> None:
    found = judged(change)
    assert found.verdict == "fail"
    assert WRONG[change] in found.note


def test_a_bound_of_honest_runs_leaves_no_room_for_another_class() -> None:
    references = [detector(0), detector(1)]
    runs = {"xnnpack": references}
    outputs = [detector(0), detector(1)]
    swapped_classes(outputs[0])
    expected = Expected(references, FACTS, runs, KINDS)
    rule = Rule("quantised", 0.0, "", ("xnnpack",))
    assert worst(judge_each(expected, outputs, rule)).verdict == "fail"


def test_what_an_honest_run_lacks_is_undecided() -> None:
    references, runs, outputs = ([detector(0), detector(1)] for _ in range(3))
    dropped_box(runs[1])
    dropped_box(outputs[1])
    rule = Rule("floats", 1e-4, "", ("xnnpack",))
    found = worst(judge_each(Expected(references, FACTS, {"xnnpack": runs}, KINDS), outputs, rule))
    assert found.verdict == "pass", found.note


def test_a_reference_that_finds_nothing_proves_nothing() -> None:
    references = [detector(0), detector(1)]
    for parts in references:
        parts[2] *= 0.3
    expected = Expected(references, FACTS, kinds=KINDS)
    same = judge_each(expected, references, FP32)
    assert {one.verdict for one in same} == {None}
    assert "its reference detects nothing above 0.3" in same[0].note
    assert {one.verdict for one in judge_each(expected, [detector(0), detector(1)], FP32)} == {"fail"}


def test_overlap_is_the_same_for_every_order_of_corners() -> None:
    box, others = np.array([0.0, 0.0, 1.0, 2.0]), np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 2.0, 0.0, 0.0]])
    assert overlap(box, others).tolist() == [0.5, 1.0]
    assert overlap(np.zeros(4), np.zeros((1, 4))).tolist() == [0.0]


def test_matchings_add_up() -> None:
    total = Matching(1, 0, 1, 0.9) + Matching(3, 2, 0, 1.0) + Matching(0, 1, 0, None)
    assert (total.matched, total.missing, total.added) == (4, 3, 1)
    assert total.mean_iou == pytest.approx(0.975)
