"""The pass that times operators one by one: what a result holds of it, and why it holds nothing."""

from __future__ import annotations

from agent.attempt.files import Failure
from agent.runner.passes.profile import ProfileReport, profile_of, wire_profile
from agent.wire import profile as wire
from agent.wire.bounded import MAX_PROFILED
from agent.wire.messages import Reason, ReasonCode, Status
from orchestrator.results.profiles import model_profile
from runtime.common.profile import ModelProfile, OperatorTime, Peaks
from tests.runtime.common.test_profile import PROFILE


def test_a_profile_survives_its_way_through_a_result_without_what_did_not_run():
    sent = wire.Profile.model_validate_json(wire_profile(PROFILE, "kernels").model_dump_json())
    found = model_profile(sent)
    assert found.rows == PROFILE.rows
    assert found.operators == tuple(one for one in PROFILE.operators if one.place != "none")
    assert (found.sums_ns, found.stages_ns, found.peaks) == (
        PROFILE.sums_ns,
        PROFILE.stages_ns,
        Peaks(4.0, 2.0),
    )
    assert wire_profile(PROFILE, "ops").rows == ()


def test_of_too_many_operators_the_slowest_are_listed_and_the_others_counted():
    operators = tuple(
        OperatorTime(i, "ADD", "", "cpu", float(i % 7), 0.0, 0.0, 0.0, is_divided=False)
        for i in range(MAX_PROFILED + 700)
    )
    sent = wire_profile(ModelProfile(1, 1.0, (1,), (), operators, no_peaks="none"), "ops")
    assert (len(sent.operators), sent.left_out) == (MAX_PROFILED, 700)
    assert min(one.time_ns for one in sent.operators) >= 1
    assert [one.index for one in sent.operators] == sorted(one.index for one in sent.operators)
    shown = sum(one.time_ns for one in sent.operators) + sent.left_out_ns
    assert shown == sum(one.time_ns for one in operators)
    assert len(sent.model_dump_json()) < 2**20
    assert sent.missing == {"peaks": "none"}


def test_what_is_missing_has_its_reason():
    lost = Failure(status=Status.FAILED, reason=Reason(code=ReasonCode.DEVICE_LOST, text="the GPU is lost"))
    assert profile_of(ProfileReport(failure=lost), "ops").missing == {"profile": "the GPU is lost"}
    assert profile_of(ProfileReport(), "ops").missing == {"profile": "it reported nothing"}
