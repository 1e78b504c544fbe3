"""Sequences of steps of a model that keeps state: measured on real delegates, and why one has none."""

from __future__ import annotations

import numpy as np
import pytest

from agent.attempt.files import Failure
from agent.runner.passes.steps import StepsReport, steps_of
from agent.wire.messages import Reason, ReasonCode, Status
from runtime.measure.loading import Opener, Subject
from runtime.measure.sequence import SEQUENCES, run_sequences
from runtime.model.schema import BuiltinOperator as Op
from tests.agent.embedded_agent import BRIEF, job, put_model
from tests.runtime.models import Builder

SHA = "ab" * 32


def summing() -> bytes:
    """Build an SVDF layer, which remembers its last inputs."""
    b = Builder()
    x = b.input(np.float32, (1, 3), name="x")
    features = b.constant(np.ones((4, 3), np.float32))
    times = b.constant(np.ones((4, 2), np.float32))
    state = b.tensor(np.float32, (1, 8), is_variable=True)
    y = b.tensor(np.float32, (1, 4))
    b.operator(Op.SVDF, [x, features, times, -1, state], [y], {"rank": 1})
    return b.write([y])


@pytest.fixture
def stateful(tmp_path):
    path = tmp_path / "svdf.tflite"
    path.write_bytes(summing())
    return path


class Counting:
    """An opener that counts what is opened, and the steps that each model has."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def open(self, path, rules=None):
        opened = Opener.prepare("cpu", {}).open(path, rules)
        invoke, place = opened.model.invoke, len(self.steps)
        self.steps.append(0)

        def counted() -> None:
            self.steps[place] += 1
            invoke()

        opened.model.invoke = counted
        return opened


def test_each_sequence_begins_with_a_fresh_state(stateful):
    opener = Counting()
    found = run_sequences(Subject(opener, str(stateful), SHA), 7)
    assert opener.steps == [7] * SEQUENCES
    assert found.first_ns > 0
    assert found.step_ns > 0


def test_a_model_without_state_has_no_steps(tiny):
    found = run_sequences(Subject(Opener.prepare("cpu", {}), str(tiny), SHA), 7)
    assert "keeps no state" in found.why_not


@pytest.mark.parametrize("delegate", ["cpu", "litert"])
def test_a_campaign_measures_them(agent, stateful, delegate):
    plan = BRIEF.model_copy(update={"steps": 6})
    result = agent.run(job(put_model(agent.store, stateful), delegate, plan=plan))
    assert result.status is Status.DONE, (result.reason, result.log_tail)
    found = result.measurement.steps
    assert (found.count, found.missing) == (6, {})
    assert found.first > 0
    assert found.step > 0


def test_what_is_missing_has_its_reason():
    lost = Failure(status=Status.FAILED, reason=Reason(code=ReasonCode.DEVICE_LOST, text="the GPU is lost"))
    for report, why in (
        (StepsReport(failure=lost), "the GPU is lost"),
        (StepsReport(), "it reported nothing"),
    ):
        assert steps_of(report, 5).missing == {"first": why, "step": why}
