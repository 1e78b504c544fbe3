from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

import pytest

from agent.wire.messages import Device, ReasonCode, Status
from agent.wire.plan import InputSpec, MeasurePlan
from orchestrator.db.devices.devices import recorded_hello
from orchestrator.db.scheduling import ingest
from orchestrator.errors import UsageError
from orchestrator.manifest.load import load_manifest
from orchestrator.policy.fingerprint import ChangedField, Ingredients, changed_fields, fingerprint
from orchestrator.policy.preview import Duration, expected_s, reuse_rule
from tests.needs import REPOSITORY
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
    assert plan.preview.reused_from == cells(database)[0].cell_id
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
    (plan,) = planned(database, asked(("m",), {"cpu": {"threads": 2}}, plan=MeasurePlan(target=0.03)))
    assert plan.action == "run"
    assert plan.why == "threads 1 → 2, target 0.05 → 0.03"


def test_the_environment_a_result_was_measured_in_is_the_one_compared(database):
    stock(database)
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        message = result(job, environment={"cpu": "epyc", "numpy": "2.5"})
        ingest.apply(session, message, datetime.now(UTC))
    (plan,) = planned(database, asked())
    assert plan.why == "numpy 2.5 → (none)"


def versioned(**kinds: str) -> Device:
    return CPU.model_copy(update={"delegate_environments": {k: {"runtime": v} for k, v in kinds.items()}})


def test_a_new_version_of_one_delegate_measures_its_cells_again_and_no_others(database):
    campaign = asked(("m",), {"cpu": {}, "litert": {}})
    before, after = versioned(cpu="1", litert="1"), versioned(cpu="2", litert="1")
    stock(database, campaign, [before])
    for cell in cells(database):
        job = dispatch(database, cell.cell_id)
        with database.write() as session:
            message = result(job, environment=before.environment_of(cell.delegate, {}))
            ingest.apply(session, message, datetime.now(UTC))
    decided = {plan.spec.delegate: (plan.action, plan.why) for plan in planned(database, campaign, [after])}
    assert decided["cpu"] == ("run", "runtime 1 → 2")
    assert decided["litert"][0] == "reuse"


def test_a_device_stays_as_its_agent_listed_it_whatever_a_result_found(database):
    """A package was replaced since; until the agent looks again, what a runner says is its result's alone."""
    campaign = asked(("m",), {"cpu": {}})
    stock(database, campaign, [versioned(cpu="1")])
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id)
    found = {"cpu": "epyc", "runtime": "2"}
    with database.write() as session:
        ingest.apply(session, result(job, environment=found), datetime.now(UTC))
    with database.read() as session:
        (device,) = recorded_hello(session).hello.devices
    assert device.environment_of("cpu", {}) == {**found, "runtime": "1"}
    (plan,) = planned(database, campaign, [device])
    assert (plan.action, plan.why) == ("run", "runtime 2 → 1")


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
    assert [(p.spec.target, p.action) for p in plans] == [("pocl-0", "reuse"), ("gpu-0", "run")]


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


def test_a_new_cell_is_estimated_by_what_cells_of_its_size_took():
    quick = MeasurePlan()
    planned_s = expected_s(quick, None)
    history = [
        *(Duration(quick, 10_000, 2 * planned_s) for _ in range(5)),
        *(Duration(quick, 100_000_000, 9 * planned_s) for _ in range(5)),
    ]
    assert expected_s(quick, None, 20_000, history) == pytest.approx(2 * planned_s)
    assert expected_s(quick, None, 80_000_000, history) == pytest.approx(9 * planned_s)
    longer = MeasurePlan(slice_seconds=0.4)
    assert expected_s(longer, None, 20_000, history) == pytest.approx(2 * expected_s(longer, None))


def test_between_the_least_blocks_and_the_most_a_cell_is_expected_to_end_in_the_middle():
    bounds = [MeasurePlan(min_blocks=low, max_blocks=high) for low, high in ((3, 3), (3, 12), (12, 12))]
    short, adaptive, long = (expected_s(plan, None) for plan in bounds)
    assert expected_s(MeasurePlan(min_blocks=6, max_blocks=6), None) == adaptive
    assert short < adaptive < long


def test_the_demo_is_expected_to_take_six_minutes_at_most():
    """Every delegate of it computes on the processors, so that its cells run one after the other."""
    campaign = load_manifest(REPOSITORY / "examples/models.yaml")
    seconds = sum(
        expected_s(model.plan, None)
        for model in campaign.models
        for delegate in campaign.delegates
        if not any(
            fnmatchcase(model.id, rule.model) and fnmatchcase(delegate.name, rule.delegate)
            for rule in campaign.exclude
        )
    )
    assert 180 < seconds <= 360


def test_the_history_is_that_of_the_same_delegate_kind(database):
    stock(database)
    measure_all(database)
    plan = MeasurePlan()
    other = asked(("new",), {"cpu": {"threads": 1}, "litert": {}})
    by_kind = {cell.spec.delegate_kind: cell.eta_s for cell in planned(database, other)}
    assert by_kind["cpu"] == pytest.approx(12.0)
    assert by_kind["litert"] == expected_s(plan, None)


def test_the_reuse_rule_is_checked():
    with pytest.raises(UsageError, match="unknown reuse rule 'always'"):
        reuse_rule("always", datetime.now(UTC))
    now = datetime.now(UTC)
    assert reuse_rule("max-age:60", now) == now - timedelta(seconds=60)
    assert reuse_rule("never", now) is None


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
