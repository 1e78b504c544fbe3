"""A delegate that lies is caught: each way of lying, through a whole attempt."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.wire.messages import Arm, JobResult, JobSpec, ReasonCode, Receipt, Status
from runtime.common.verdict import grade
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.agent import dishonest
from tests.agent.embedded_agent import BRIEF, EmbeddedAgent, job, put_model
from tests.needs import absent
from tests.reports import write_report
from tests.tree import tree

TIMED = 2 * dishonest.THROTTLED_AFTER + 1
"""Its last run has another input set than the answer that `stale` repeats."""
OFTEN = BRIEF.model_copy(update={"warmup_runs": 0, "rounds": 6, "slice_runs": TIMED // 6})
SHOWN_BY_DEFAULT = ("offset", "random", "stale", "enqueue", "content", "none", "nicer")
"""Delegates that are caught by outputs, by new inputs, by times, by what they take, by the scheduler."""
IN_ONE_PROCESS = ("nan", "warm", "lagging", "fallback", "blind")
"""Further delegates whose lie one timed process shows."""
IN_THREE = ("throttled", "sprinter")
"""Delegates whose lie shows in several processes."""
EVERY = (*SHOWN_BY_DEFAULT, *IN_ONE_PROCESS, *IN_THREE)


class Caught:
    """The results of dishonest delegates and of an honest one, by name, measured with the first look at them:
    what is judged in one process as arms of one job. `lead`: the job that the honest one's result is of.
    """

    def __init__(self, agent: EmbeddedAgent, stored: tuple[str, int]) -> None:
        self.agent = agent
        self._stored = stored
        self._found: dict[str, JobResult] = {}
        self.lead: JobSpec | None = None

    def __getitem__(self, name: str) -> JobResult:
        if name not in self._found:
            self._found |= self._measured(name)
        return self._found[name]

    def _measured(self, name: str) -> dict[str, JobResult]:
        if name in IN_THREE:
            plan = OFTEN.model_copy(update={"min_blocks": 3, "max_blocks": 3})
            return {name: self.agent.run(job(self._stored, name, plan=plan))}
        opencl = [device.device_id for device in self.agent.hello.devices if device.api == "opencl"]
        lead = job(self._stored, "litert", plan=OFTEN)
        if name in IN_ONE_PROCESS:
            found = run_together(self.agent, lead, IN_ONE_PROCESS, opencl)
            del found["litert"]  # here it has no baseline
            return found
        self.lead = lead.model_copy(update={"baseline": f"{lead.attempt_id}-offset"})
        return run_together(self.agent, self.lead, SHOWN_BY_DEFAULT, opencl)


@pytest.fixture(scope="module")
def caught(tmp_path_factory, probed, tiny) -> Iterator[Caught]:
    with pytest.MonkeyPatch.context() as patch:
        agent = agent_with_liars(tmp_path_factory.mktemp("liars"), probed, patch)
        yield Caught(agent, put_model(agent.store, tiny))
        agent.close()


def agent_with_liars(folder, probed, patch):
    """Start an agent whose runners find the dishonest delegates installed."""
    dishonest.install(folder / "site")
    path = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    patch.setenv("PYTHONPATH", os.pathsep.join(path))
    return EmbeddedAgent(folder, probe_command=probed)


def run_together(agent, lead, names, opencl):
    """Run these delegates as arms of one job, `fallback` on a device of OpenCL; their results by name."""
    arms = []
    for name in names:
        device = opencl[0] if name == "fallback" and opencl else "host-cpu"
        arms.append(
            Arm(
                attempt_id=f"{lead.attempt_id}-{name}", attempt_no=1, cell_id=name, epoch=lead.epoch,
                device_id=device, delegate=name, delegate_kind=name,
            )
        )  # fmt: skip
    agent.send(lead.model_copy(update={"arms": tuple(arms), "cell_id": lead.delegate}))
    found = {}
    for _ in range(1 + len(arms)):
        result = agent.expect(JobResult)
        agent.send(Receipt(attempt_id=result.attempt_id))
        found[result.cell_id] = result
    return found


def graded(result):
    """Return the grade of a result's p50, and the reasons beside it."""
    interval, quality = result.measurement.latency_ms.ci95, result.measurement.quality
    half = None if interval is None else math.log(interval[1] / interval[0]) / 2
    found = grade(half, quality.allowance, void=bool(quality.void), doubted=bool(quality.doubts))
    return found, (*quality.void, *quality.doubts)


def is_void(result, reason):
    return any(reason in text for text in result.measurement.quality.void)


def test_an_honest_delegate_among_them_is_not_accused(caught):
    honest = caught["litert"]
    assert honest.status is Status.DONE, honest.reason
    assert honest.measurement.accuracy.verdict == "pass"
    accused = ("cached", "early_return", "no driver")
    quality = honest.measurement.quality
    reasons = (*quality.void, *quality.doubts)
    assert not [text for text in reasons if any(word in text for word in accused)], quality
    assert {"new inputs", "early return", "reported times"} <= set(quality.seen)


def rarely(*lies):
    """Return lies that `make test-attack` looks at alone."""
    return [pytest.param(lie, marks=pytest.mark.attack) for lie in lies]


@pytest.mark.parametrize("lie", ["offset", "stale", *rarely("nan", "warm", "lagging", "blind")])
def test_a_wrong_output_fails(caught, lie):
    result = caught[lie]
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.WRONG_OUTPUT), result.reason
    assert result.measurement.accuracy.verdict == "fail"


def test_there_is_no_ratio_over_a_baseline_that_is_wrong(caught):
    honest, base = caught["litert"], caught["offset"]
    assert (caught.lead.attempt_id, caught.lead.baseline) == (honest.attempt_id, base.attempt_id)
    assert honest.measurement.ratio is None


def test_a_wrong_output_keeps_its_evidence(caught):
    result = caught["offset"]
    assert "'positive' of input set 0" in result.reason.text
    assert result.measurement.accuracy.max_abs == pytest.approx(0.25, rel=1e-3)
    assert result.measurement.samples > 0
    assert result.measurement.samples_sha256


@pytest.mark.attack
def test_a_nan_is_named(caught):
    assert "NaN" in caught["nan"].reason.text


@pytest.mark.parametrize("lie", ["stale", *rarely("warm")])
def test_right_outputs_that_turn_wrong_once_it_is_timed_fail(caught, lie):
    assert [one.verdict for one in caught[lie].measurement.accuracy.outputs] == ["pass"], (
        "the fresh process was right"
    )


def test_output_that_changes_is_flagged(caught):
    result = caught["random"]
    assert result.status is Status.DONE, result.reason
    assert any("nondeterministic" in warning for warning in result.measurement.warnings)
    assert any("nondeterministic" in doubt for doubt in result.measurement.quality.doubts)


def test_answers_from_memory_make_a_right_result_void(caught):
    result = caught["content"]
    assert result.measurement.accuracy.verdict == "pass"
    assert is_void(result, "cached: new inputs take"), result.measurement.quality


def test_a_process_that_is_scheduled_otherwise_in_the_end_is_void(caught):
    assert is_void(caught["nicer"], "it was scheduled otherwise in the end"), caught["nicer"].measurement


def test_an_invoke_that_only_enqueues_looks_no_faster_and_is_named(caught):
    result = caught["enqueue"]
    assert result.measurement.latency_ms.p50 >= 2.0, "the reading of the outputs is part of a sample"
    doubts = result.measurement.quality.doubts
    assert any(text.startswith("early_return: invoke returns") for text in doubts), doubts


@pytest.mark.attack
def test_a_device_that_throttles_half_way_is_void(caught):
    result = caught["throttled"]
    assert result.status is Status.DONE, result.reason
    assert is_void(result, "not steady: each process slows down by"), result.measurement.quality


@pytest.mark.attack
def test_a_silent_fallback_to_the_cpu_is_void(caught):
    result = caught["fallback"]
    if result.measurement.quality.seen.count("device driver") == 0:
        absent("no OpenCL device on this machine")
    assert result.measurement.delegation.status == "full", "it claims everything"
    assert result.measurement.accuracy.verdict == "pass", "and it is right"
    assert is_void(result, "no driver is loaded"), result.measurement.quality


@pytest.mark.attack
def test_a_delegate_that_is_fast_in_its_first_process_alone_is_noisy(caught):
    result = caught["sprinter"]
    assert result.status is Status.DONE, result.reason
    assert graded(result)[0] == "noisy", result.measurement.latency_ms


def table(caught):
    """Every dishonest delegate with the end of its cell, its grade and the reason, as Markdown."""
    lines = [
        "# Dishonest delegates",
        "",
        "| delegate | what it does | cell | grade | reason |",
        "|---|---|---|---|---|",
    ]
    for name in EVERY:
        result, lie = caught[name], getattr(dishonest, f"{name.capitalize()}Delegate").__doc__
        if result.status is Status.DONE:
            found, reasons = graded(result)
        else:
            found, reasons = "", (f"{result.reason.code}: {result.reason.text}",)
        lines.append(f"| `{name}` | {lie} | {result.status} | {found} | {''.join(reasons[:1])[:160]} |")
    return "\n".join(lines) + "\n"


@pytest.mark.attack
def test_none_of_them_is_good(caught):
    """Each ends failed, void or noisy; one that is fair says on its line what is wrong."""
    if path := os.environ.get("HONESTY_REPORT"):
        write_report(Path(path), table(caught), tree(), 0)
    grades = {name: graded(caught[name]) for name in EVERY if caught[name].status is Status.DONE}
    assert {name for name, (found, _) in grades.items() if found == "good"} == set()
    assert {name for name, (found, why) in grades.items() if found == "fair" and not why} == set()


def test_a_correct_model_that_keeps_state_passes(caught, tmp_path):
    """Its output depends on how often it ran, so what is timed cannot be compared with a reference."""
    agent = caught.agent
    model = put_model(agent.store, recurrent_model(tmp_path / "recurrent.tflite"))
    found = run_together(agent, job(model, "litert"), ["cpu"], [])
    for result in found.values():
        assert result.status is Status.DONE, result.reason
        assert result.measurement.accuracy.verdict == "pass"
        assert not any("nondeterministic" in warning for warning in result.measurement.warnings)


@pytest.mark.attack
def test_time_that_physics_forbids_is_struck_out(caught, tmp_path):
    agent = caught.agent
    heavy = put_model(agent.store, heavy_model(tmp_path / "heavy.tflite"))
    often = BRIEF.model_copy(update={"slice_runs": 14})
    found = run_together(agent, job(heavy, "litert", plan=often), ["early"], [])
    assert found["litert"].status is Status.DONE, found["litert"].reason
    lie = found["early"]
    assert (lie.status, lie.reason.code) == (Status.FAILED, ReasonCode.IMPLAUSIBLE)
    assert lie.measurement.accuracy.verdict == "pass", "the answers from memory were right"
    assert lie.measurement.latency_ms.p50 is None
    assert "before the work is done" in lie.measurement.latency_ms.missing["p50"]
    assert is_void(lie, "cached: new inputs take"), lie.measurement.quality


def test_delegate_that_takes_no_operator_is_unsupported_and_says_which(caught):
    result = caught["none"]
    assert (result.status, result.reason.code) == (Status.UNSUPPORTED, ReasonCode.NOT_DELEGATED)
    assert "MUL (operator 0): not on Sundays" in result.reason.text
    delegation = result.measurement.delegation
    assert (delegation.status, delegation.delegated_ops, delegation.total_ops) == ("none", 0, 2)
    assert [f.op for f in delegation.fallbacks] == ["MUL", "RELU"]
    assert result.measurement.samples == 0
    assert result.measurement.latency_ms.p50 is None


def test_operator_that_nobody_has_is_unsupported_and_named(caught, tmp_path):
    agent = caught.agent
    lacking = put_model(agent.store, lacking_model(tmp_path / "lacking.tflite"))
    for result in run_together(agent, job(lacking, "litert"), ["cpu"], []).values():
        assert (result.status, result.reason.code) == (Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_OPERATOR)
        assert "custom op" in result.reason.text.lower()
        assert "RowSums" in result.reason.text


def heavy_model(path):
    """Write a 1x1 convolution of 134 million operations."""
    rng = np.random.default_rng(3)
    weights = rng.uniform(-0.1, 0.1, (256, 1, 1, 256)).astype(np.float32)
    bias = np.zeros(256, np.float32)
    shape = (1, 32, 32, 256)
    tensors = (
        Tensor(0, "image", TensorType.FLOAT32, shape),
        constant(1, "weights", weights),
        constant(2, "bias", bias),
        Tensor(3, "out", TensorType.FLOAT32, shape),
    )
    options = {"stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    operator = Operator(0, BuiltinOperator.CONV_2D, 1, (0, 1, 2), (3,), options)
    return written(path, tensors, (operator,), 3)


def recurrent_model(path):
    """Write an RNN cell whose state is a variable: its output depends on every input so far."""
    rng = np.random.default_rng(4)
    tensors = (
        Tensor(0, "step", TensorType.FLOAT32, (1, 8)),
        constant(1, "weights", rng.uniform(-0.5, 0.5, (4, 8)).astype(np.float32)),
        constant(2, "recurrent", rng.uniform(-0.5, 0.5, (4, 4)).astype(np.float32)),
        constant(3, "bias", np.zeros(4, np.float32)),
        Tensor(4, "state", TensorType.FLOAT32, (1, 4), is_variable=True),
        Tensor(5, "out", TensorType.FLOAT32, (1, 4)),
    )
    options = {"fused_activation_function": ActivationFunctionType.TANH}
    operator = Operator(0, BuiltinOperator.RNN, 1, (0, 1, 2, 3, 4), (5,), options)
    return written(path, tensors, (operator,), 5)


def lacking_model(path):
    """RELU, then a custom operator that nobody registered."""
    tensors = (
        Tensor(0, "image", TensorType.FLOAT32, (4, 8)),
        Tensor(1, "positive", TensorType.FLOAT32, (4, 8)),
        Tensor(2, "sums", TensorType.FLOAT32, (4, 8)),
    )
    operators = (
        Operator(0, BuiltinOperator.RELU, 1, (0,), (1,)),
        Operator(1, BuiltinOperator.CUSTOM, 1, (1,), (2,), custom_code="RowSums"),
    )
    return written(path, tensors, operators, 2)


def constant(index, name, values):
    kind = TensorType.INT32 if values.dtype == np.int32 else TensorType.FLOAT32
    return Tensor(index, name, kind, values.shape, buffer=index, data=memoryview(values.tobytes()))


def written(path, tensors, operators, output):
    path.write_bytes(write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (output,), operators),))))
    return path
