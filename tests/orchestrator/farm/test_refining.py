"""Blocks are added to the vaguest results of a campaign, which stand meanwhile."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from agent.wire.measurement import BlockFigure, Quality, Ratio, baseline_id
from agent.wire.messages import AgentHello, MissingDelegate, Reason, ReasonCode, Status
from orchestrator.config.home import FarmHome
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns
from orchestrator.db.cells import attempts, jobs, waiting
from orchestrator.db.results import records
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.errors import UsageError
from orchestrator.farm.again.refining import Refinements
from orchestrator.farm.local.quota import Quota
from orchestrator.policy.rights import Scope, User
from orchestrator.sources.store import Store
from tests.orchestrator.asked import CPU, POCL, asked
from tests.orchestrator.stocked import cells, dispatch, measured, report_devices, result, stock

MODELS = ("steady", "vague", "vaguer")
HALVES = dict(zip(MODELS, (0.004, 0.08, 0.3), strict=True))
BLOCKS = tuple(BlockFigure(p50_ns=1e6, log_ratio=0.01 * n, rounds=7) for n in range(4))
PAIRED = {"litert": {}, "cpu": {}}


def now():
    return datetime.now(UTC)


def figures(half, blocks=BLOCKS, *, ratio=True):
    around = (1.02 * math.exp(-half), 1.02 * math.exp(half))
    found = Ratio(
        against="litert@host-cpu", baseline_id=baseline_id("litert", {}), device_id="host-cpu", median=1.02,
        ci95=around, blocks=len(blocks) or 4, seed=1,
    )  # fmt: skip
    plain = measured()
    return plain.model_copy(
        update={"blocks": blocks, "quality": Quality(), "ratio": found if ratio else None}
    )


def finish(database, cell_id, half, blocks=BLOCKS, *, ratio=True):
    message = result(dispatch(database, cell_id), environment=CPU.environment)
    own = message.model_copy(update={"measurement": figures(half, blocks, ratio=ratio)})
    with database.write() as turn:
        assert ingest.apply(turn, own, now()) == "counted"


class Present:
    """The devices that are present now."""

    def __init__(self, *devices, missing=()):
        self.devices, self.missing = devices, missing

    def hello(self, *, keep):
        return AgentHello(
            agent_id="embedded", host="h", version="0", devices=self.devices, missing=self.missing
        )


@pytest.fixture
def home(tmp_path):
    return FarmHome(tmp_path)


@pytest.fixture
def campaign(database, home, monkeypatch):
    """Add a paired campaign that has ended: one ratio is decided, two are open."""
    monkeypatch.setattr(Store, "find", lambda _self, sha256: sha256)
    stock(database, asked(MODELS, PAIRED, baseline="litert"))
    for cell in cells(database):
        finish(database, cell.cell_id, HALVES[cell.model], ratio=cell.delegate == "cpu")
    return "test"


@pytest.fixture
def refinements(database, home):
    return Refinements(database, Present(CPU, POCL), home)


def by_model(database):
    return {cell.model: cell for cell in cells(database) if cell.delegate == "cpu"}


def begin(database, device="host-cpu"):
    with database.write() as turn:
        begun = assignments.fill(turn, [device], now())
        for _, job in begun:
            for one in job.attempts:
                attempts.start(turn, one.attempt_id, one.epoch, now())
    return [job for _, job in begun]


def shown(database):
    with database.read() as session:
        return {c.model: c for c in records.cells_of(session, 1) if c.delegate == "cpu"}


def test_the_vaguest_open_ratio_is_measured_first_with_the_baseline_and_its_earlier_blocks(
    database, campaign, refinements
):
    before = shown(database)
    found = refinements.refine(campaign)
    found_models = [next(c.model for c in cells(database) if c.cell_id == name) for name in found.cells]
    assert (found_models, dict(found.left_out)) == (["vaguer", "vague"], {})
    (job,) = begin(database)
    assert (job.model_id, job.delegate) == ("vaguer", "cpu")
    assert job.refines.blocks == BLOCKS
    assert job.refines.environment_id == before["vaguer"].environment_id
    assert (job.plan.max_blocks, job.plan.target) == (10, 0.05)
    assert job.soft_limit_s == 900.0
    (baseline,) = job.arms
    assert (baseline.delegate, baseline.reported, baseline.refines) == ("litert", False, None)
    with database.read() as session:
        ((_, again),) = jobs.unstarted(session) or [(None, job)]
    assert again == job
    assert {m: (c.status, c.again) for m, c in shown(database).items()} == {
        "steady": ("done", None), "vague": ("done", "queued"), "vaguer": ("done", "running"),
    }  # fmt: skip


def test_the_pooled_result_replaces_the_earlier_one_in_the_same_series(database, campaign, refinements):
    refinements.refine(campaign)
    (job,) = begin(database)
    pooled = figures(0.01, (*BLOCKS, *BLOCKS))
    message = result(job, environment=CPU.environment).model_copy(update={"measurement": pooled})
    with database.write() as turn:
        assert ingest.apply(turn, message, now()) == "counted"
    assert len(shown(database)["vaguer"].measurement.blocks) == 8
    assert shown(database)["vaguer"].kept == ""
    with database.read() as session:
        own = select(tables.Result).where(tables.Result.cell_id == job.cell_id)
        first, second = session.exec(own.order_by(tables.Result.received_at)).all()
    assert (first.series, first.fingerprint) == (second.series, second.fingerprint)
    assert (first.counted, second.counted) == (False, True)
    ended = by_model(database)["vaguer"]
    assert (ended.refines, ended.rank, ended.plan) == (None, 0, by_model(database)["steady"].plan)


@pytest.mark.parametrize(
    ("target", "queued"), [(None, {"vague", "vaguer"}), (0.05, {"vague", "vaguer"}), (0.003, set(MODELS))]
)
def test_a_target_is_that_of_the_new_blocks(database, campaign, refinements, target, queued):
    assert len(refinements.refine(campaign, target).cells) == len(queued)
    assert {m for m, cell in by_model(database).items() if cell.state == "queued"} == queued
    (job,) = begin(database)
    assert job.plan.target == (target or 0.05)
    assert job.refines.until_decided == (target is None)


def test_when_the_time_is_over_no_further_cell_begins(database, campaign, refinements):
    refinements.refine(campaign, None, 600)
    (job,) = begin(database)
    with database.write() as turn:
        assert waiting.end_overdue(turn, now() + timedelta(seconds=540)) == 0
        assert waiting.end_overdue(turn, now() + timedelta(seconds=660)) == 1
    found = shown(database)
    assert (found["vague"].state, found["vague"].kept, found["vaguer"].state) == ("done", "", "running")
    running = by_model(database)["vaguer"]
    with database.write() as turn:
        ingest.apply(turn, result(job, Status.FAILED, ReasonCode.AGENT_LOST), now())
        assert turn.cell(running.cell_id).queue_until is not None, "the time is over for another attempt, too"


@pytest.mark.parametrize("code", [ReasonCode.CONDITIONS_CHANGED, ReasonCode.TIMEOUT])
def test_a_refinement_that_ends_without_a_result_changes_nothing_but_says_so(
    database, campaign, refinements, code
):
    before = shown(database)["vaguer"]
    refinements.refine(campaign)
    (job,) = begin(database)
    with database.write() as turn:
        ingest.apply(turn, result(job, Status.FAILED, code, environment=CPU.environment), now())
    after = shown(database)["vaguer"]
    assert after.measurement == before.measurement
    assert after.kept.startswith(f"not measured again: {code.value}")


def test_cancelling_a_refinement_leaves_the_campaign_as_it_was(database, campaign, refinements):
    before = {m: (c.measurement, c.status, c.kept, c.device) for m, c in shown(database).items()}
    refinements.refine(campaign)
    with database.write() as turn:
        assert campaigns.cancel_campaign(turn, turn.exec(select(tables.Campaign)).one(), now()) == 2
    assert {m: (c.measurement, c.status, c.kept, c.device) for m, c in shown(database).items()} == before
    assert all((cell.refines, cell.rank) == (None, 0) for cell in cells(database))
    refinements.refine(campaign)


def test_a_cell_that_is_only_tried_again_shares_no_blocks_with_one_that_is_refined(
    database, refinements, monkeypatch
):
    monkeypatch.setattr(Store, "find", lambda _self, sha256: sha256)
    stock(database, asked(("m",), {**PAIRED, "four": {"kind": "cpu", "threads": 4}}, baseline="litert"))
    for cell in cells(database):
        finish(database, cell.cell_id, 0.3, ratio=cell.delegate != "litert")
    refinements.refine("test")
    with database.write() as turn:
        for cell in cells(database):
            if cell.delegate == "four":
                turn.cell(cell.cell_id).refines = None
    (job,) = begin(database)
    assert [arm.delegate for arm in job.arms] == ["litert"]
    with database.write() as turn:
        for cell in cells(database):
            if cell.delegate == "four":
                turn.cell(cell.cell_id).refines = turn.cell(job.cell_id).refines
        ingest.give_up(turn, job.attempt_id, Reason(code=ReasonCode.DEVICE_LOST, text="gone"), now())
        turn.cell(job.cell_id).not_before = None
        turn.device("host-cpu").rests_until = None
    (job,) = begin(database)
    assert [(arm.delegate, arm.refines is not None) for arm in job.arms] == [
        ("four", True),
        ("litert", False),
    ]


def test_where_every_ratio_is_decided_there_is_nothing_to_refine(database, refinements, monkeypatch):
    monkeypatch.setattr(Store, "find", lambda _self, sha256: sha256)
    stock(database, asked(("steady",), PAIRED, baseline="litert"))
    for cell in cells(database):
        finish(database, cell.cell_id, 0.004, ratio=cell.delegate == "cpu")
    found = refinements.refine("test")
    assert (found.cells, dict(found.left_out)) == ((), {})
    with database.read() as session:
        assert session.exec(select(tables.Campaign.ended_at)).one() is not None


NEWER = CPU.model_copy(update={"environment": {"cpu": "epyc", "governor": "powersave"}})
OTHER = CPU.model_copy(update={"name": "Xeon"})
WITHOUT = CPU.model_copy(update={"delegates": ("litert",)})


@pytest.mark.parametrize(
    ("present", "stored", "said"),
    [
        (Present(POCL), True, "device host-cpu is not present"),
        (Present(NEWER), True, r"host-cpu is not as it was: governor \(none\) then, powersave now"),
        (Present(OTHER), True, "host-cpu is another device by now: AMD EPYC then, Xeon now"),
        (
            Present(WITHOUT, missing=(MissingDelegate(kind="cpu", reason="it was removed"),)),
            True,
            "host-cpu has no delegate cpu now: it was removed",
        ),
        (Present(CPU), False, "its model .* is not in the store"),
    ],
)
def test_what_is_gone_or_changed_is_an_error_that_changes_nothing(
    database, campaign, home, monkeypatch, present, stored, said
):
    monkeypatch.setattr(Store, "find", lambda _self, sha256: sha256 if stored else None)
    before = [cell.model_dump() for cell in cells(database)]
    with pytest.raises(UsageError, match=f"no block can be added to campaign test .*; .*{said}"):
        Refinements(database, present, home).refine(campaign)
    assert [cell.model_dump() for cell in cells(database)] == before


@pytest.mark.parametrize(
    ("target", "seconds", "said"),
    [
        (0.0, None, "a target is from"),
        (0.0005, None, "a target is from"),
        (1.5, None, "a target is from"),
        (None, 0.0, "no time for more blocks"),
        (None, -1.0, "no time for more blocks"),
    ],
)
def test_a_bad_target_or_time_is_refused(campaign, refinements, target, seconds, said):
    with pytest.raises(UsageError, match=said):
        refinements.refine(campaign, target, seconds)


def test_a_campaign_that_runs_is_not_refined(database, campaign, refinements):
    refinements.refine(campaign)
    with pytest.raises(UsageError, match=r"has not ended; .*farm cancel .*keeps its results"):
        refinements.refine(campaign)


def test_a_campaign_of_somebody_else_is_not_refined(database, campaign, home):
    user = User("ana", frozenset({Scope.SUBMIT}))
    with pytest.raises(UsageError, match="is not yours, ana"):
        Refinements(database, Present(CPU), home, user).refine(campaign)
    with database.write() as turn:
        turn.exec(select(tables.Campaign)).one().submitted_by = "ana"
    with pytest.raises(UsageError, match="this refinement adds 2"):
        Refinements(database, Present(CPU), home, user, Quota(user, 1)).refine(campaign)


def test_imported_results_have_no_blocks_to_add_to(database, campaign, refinements):
    with database.write() as turn:
        for found in turn.exec(select(tables.Result)):
            found.facts = {"imported_sha256": "a" * 64}
    with pytest.raises(UsageError, match="was imported"):
        refinements.refine(campaign)


def test_results_of_an_older_release_say_that_they_kept_no_blocks(database, refinements, monkeypatch):
    monkeypatch.setattr(Store, "find", lambda _self, sha256: sha256)
    stock(database, asked(("vague",), PAIRED, baseline="litert"))
    for cell in cells(database):
        finish(database, cell.cell_id, 0.3, blocks=(), ratio=False)
    report_devices(database)
    found = refinements.refine("test")
    assert found.cells == ()


def test_waiting_and_begun_attempts_are_given_the_longer_limit(database, campaign, refinements):
    refinements.refine(campaign)
    (job,) = begin(database)
    with database.read() as session:
        attempt = session.get_one(tables.Attempt, job.attempt_id)
    seconds = (attempt.deadline_at - attempt.started_at).total_seconds()
    assert seconds == pytest.approx(2 * (job.soft_limit_s + jobs.HARD_LIMIT_AFTER_S) + 60.0)
