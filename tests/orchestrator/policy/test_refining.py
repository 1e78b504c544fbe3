"""A waiting cell keeps a request for refinement; the plan and limit of its job follow from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent.wire.bounded import MAX_BLOCKS
from agent.wire.measurement import BlockFigure, Quality, Refinement
from agent.wire.plan import MeasurePlan
from orchestrator.errors import UsageError
from orchestrator.policy.blocks import Refining, refined_to, require_target, unfinished
from tests.orchestrator.stocked import measured

PLAN = MeasurePlan(max_blocks=6, target=0.05)
BLOCKS = tuple(BlockFigure(p50_ns=1e6 + n, log_ratio=0.1 * n, rounds=7, repeated=1) for n in range(4))
REFINING = Refining(Refinement(environment_id="0123456789ab", blocks=BLOCKS), 0.03, -5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"target": None},
        {"ends_at": datetime(2026, 3, 1, 12, tzinfo=UTC)},
        {"earlier": Refinement(environment_id="e", blocks=(BlockFigure(p50_ns=1.0, rounds=1),))},
        {"continues": True},
    ],
)
def test_what_is_stored_is_read_again(changes):
    refining = replace(REFINING, **changes)
    assert Refining.read(refining.stored) == refining


def test_its_job_has_as_many_blocks_again_as_its_level_at_most():
    plan = REFINING.plan(PLAN)
    assert (plan.max_blocks, plan.target, plan.min_blocks) == (10, 0.03, PLAN.min_blocks)
    assert replace(REFINING, target=None).plan(PLAN).target == PLAN.target
    most = PLAN.model_copy(update={"max_blocks": MAX_BLOCKS})
    assert REFINING.plan(most).max_blocks == MAX_BLOCKS


@pytest.mark.parametrize(("planned", "most"), [(6, 6), (5, 5), (4, 5), (3, 5)])
def test_one_that_continues_has_as_many_as_its_level_and_one_more_at_least(planned, most):
    plan = PLAN.model_copy(update={"max_blocks": planned})
    assert replace(REFINING, continues=True).plan(plan).max_blocks == most


@pytest.mark.parametrize(
    ("stopped", "grade", "blocks", "goes_on"),
    [
        ("cancelled", "noisy", BLOCKS, True),
        ("cancelled", None, BLOCKS[:1], True),
        ("cancelled", "void", BLOCKS, False),
        ("cancelled", "noisy", (), False),
        ("target", "good", BLOCKS, False),
        ("", None, BLOCKS, False),
    ],
)
def test_another_attempt_goes_on_from_a_result_that_ended_early_and_is_not_void(
    stopped, grade, blocks, goes_on
):
    found = measured().model_copy(update={"quality": Quality(stopped=stopped), "blocks": blocks})
    expected = Refinement(environment_id="env", blocks=blocks) if goes_on else None
    assert unfinished(found, "env", grade) == expected
    assert unfinished(None, "env", grade) is None


def test_cells_share_blocks_where_they_are_refined_to_the_same_target():
    plain, other = None, replace(REFINING, target=None).stored
    assert refined_to(plain) == refined_to(plain)
    assert len({refined_to(plain), refined_to(other), refined_to(REFINING.stored)}) == 3


@pytest.mark.parametrize(
    ("target", "accepted"), [(0.0, False), (0.0009, False), (0.001, True), (0.03, True), (1.0, False)]
)
def test_a_target_that_no_number_of_blocks_reaches_is_refused(target, accepted):
    if accepted:
        require_target(target)
        return
    with pytest.raises(UsageError, match=r"from 0\.1% to below 100%"):
        require_target(target)
