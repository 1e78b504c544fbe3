from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent.wire.messages import InputSpec, MeasurePlan, ReasonCode, Status
from orchestrator.db.write import ingest
from orchestrator.errors import UsageError
from orchestrator.policy.fingerprint import ChangedField, Ingredients, changed_fields, fingerprint
from orchestrator.policy.preview import expected_s, reuse_limit
from tests.orchestrator.asked import CPU, GPU, POCL, asked
from tests.orchestrator.stocked import cells, dispatch, planned, result, stock


def measure_all(database, present=(CPU, POCL), **how):
    """Run every waiting cell; it is measured in its device's environment."""
    environments = {d.device_id: d.environment for d in present}
    for cell in cells(database):
        if cell.state == "queued":
            job = dispatch(database, cell.cell_id)
            with database.write() as session:
                message = result(job, environment=environments[cell.target], **how)
                ingest.apply(session, message, datetime.now(UTC))


def test_a_finished_cell_is_reused_and_named(database):
    stock(database)
    measure_all(database)
    (plan,) = planned(database, asked())
    assert plan.action == "reuse"
    assert plan.reused_from == cells(database)[0].cell_id
    assert plan.eta_s == 0


def test_a_changed_driver_is_named_and_the_cell_runs_again(database):
    campaign = asked(("m",), {"gpu": {}})
    stock(database, campaign, [GPU])
    measure_all(database, [GPU])
    newer = GPU.model_copy(update={"environment": {"driver": "560.28"}})
    (plan,) = planned(database, campaign, [newer])
    assert plan.action == "run"
    assert plan.changed == (ChangedField("driver", "550.90", "560.28"),)
    assert plan.why == "driver 550.90 → 560.28"


def test_changes_of_the_request_are_named_too(database):
    stock(database, asked(("m",), {"cpu": {"threads": 1}}))
    measure_all(database)
    (plan,) = planned(database, asked(("m",), {"cpu": {"threads": 2}}, plan=MeasurePlan(processes=5)))
    assert plan.action == "run"
    assert plan.why == "threads 1 → 2, processes 3 → 5"


def test_the_environment_a_result_was_measured_in_is_the_one_compared(database):
    stock(database)
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        message = result(job, environment={"cpu": "epyc", "numpy": "2.5"})
        ingest.apply(session, message, datetime.now(UTC))
    (plan,) = planned(database, asked())
    assert plan.why == "numpy 2.5 → (none)"


@pytest.mark.parametrize(
    ("status", "code", "action"),
    [
        (Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_OPERATOR, "reuse"),
        (Status.UNSUPPORTED, ReasonCode.DELEGATE_MISSING, "run"),
        (Status.FAILED, ReasonCode.WRONG_OUTPUT, "reuse"),
        (Status.FAILED, ReasonCode.OUT_OF_MEMORY, "run"),
    ],
)
def test_what_measuring_again_would_only_repeat_is_reused(database, status, code, action):
    stock(database)
    measure_all(database, status=status, code=code)
    (plan,) = planned(database, asked())
    assert plan.action == action
    if action == "run":
        assert plan.why == f"last time it ended {status}: {code}"


def test_force_and_never_measure_again(database):
    stock(database)
    measure_all(database)
    assert planned(database, asked(), force=True)[0].action == "run"
    assert planned(database, asked(reuse="never"))[0].why == "measured before; reuse is off"


def test_an_old_result_is_not_reused_beyond_its_age(database):
    stock(database)
    measure_all(database)
    assert planned(database, asked(reuse="max-age:3600"))[0].action == "reuse"
    assert planned(database, asked(reuse="max-age:0"))[0].action == "run"


def test_a_result_of_another_device_is_not_reused(database):
    campaign = asked(("m",), {"gpu": {}})
    stock(database, campaign, [POCL])
    measure_all(database, [POCL])
    plans = planned(database, campaign, [POCL, GPU])
    assert [(p.device, p.action) for p in plans] == [("pocl-0", "reuse"), ("gpu-0", "run")]


def test_a_reused_cell_ends_as_the_original_did(database):
    stock(database, asked(("m",), {"cpu": {}, "litert": {}}))
    measure_all(database, status=Status.UNSUPPORTED, code=ReasonCode.UNSUPPORTED_OPERATOR)
    stock(database, asked(("m",), {"cpu": {}, "litert": {}}))
    first, second = cells(database)[:2], cells(database)[2:]
    assert [c.state for c in second] == ["unsupported"] * 2
    assert [c.reused_from for c in second] == [c.cell_id for c in first]
    assert [c.shown_attempt_id for c in second] == [c.shown_attempt_id for c in first]


def test_the_next_estimate_is_the_last_duration(database):
    stock(database)
    assert planned(database, asked())[0].eta_s == expected_s(MeasurePlan(), None)
    measure_all(database)
    assert planned(database, asked(), force=True)[0].eta_s == pytest.approx(12.0)


def test_the_reuse_rule_is_checked():
    with pytest.raises(UsageError, match="unknown reuse rule 'always'"):
        reuse_limit("always", datetime.now(UTC))
    now = datetime.now(UTC)
    assert reuse_limit("max-age:60", now) == now - timedelta(seconds=60)


def test_a_fingerprint_holds_everything_that_changes_a_measurement():
    base = Ingredients("a" * 64, "cpu", {"threads": 1}, "host-cpu", MeasurePlan(), {"x": InputSpec(seed=1)})
    others = [
        Ingredients("b" * 64, "cpu", {"threads": 1}, "host-cpu", MeasurePlan(), base.inputs),
        Ingredients("a" * 64, "gpu", {"threads": 1}, "host-cpu", MeasurePlan(), base.inputs),
        Ingredients("a" * 64, "cpu", {"threads": 2}, "host-cpu", MeasurePlan(), base.inputs),
        Ingredients("a" * 64, "cpu", {"threads": 1}, "other", MeasurePlan(), base.inputs),
        Ingredients("a" * 64, "cpu", {"threads": 1}, "host-cpu", MeasurePlan(level="standard"), base.inputs),
        Ingredients("a" * 64, "cpu", {"threads": 1}, "host-cpu", MeasurePlan(), {"x": InputSpec(seed=2)}),
    ]
    prints = {fingerprint(i.series, "e1") for i in [base, *others]} | {fingerprint(base.series, "e2")}
    assert len(prints) == len(others) + 2
    reordered = Ingredients(
        "a" * 64, "cpu", dict(reversed(base.delegate_options.items())), "host-cpu", MeasurePlan(), base.inputs
    )
    assert reordered.series == base.series
    for other in others:
        assert changed_fields(base, {}, other, {}) or other.device_id != base.device_id
