"""A delegate that lies is caught: each way of lying, through a whole attempt."""

from __future__ import annotations

import os

import numpy as np
import pytest

from agent.wire.messages import ReasonCode, Status
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.agent import dishonest
from tests.agent.embedded_agent import BRIEF, job, put_model


@pytest.fixture
def liars(tmp_path, monkeypatch, start_agent):
    """An agent whose runners find the dishonest delegates installed."""
    dishonest.install(tmp_path / "site")
    path = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return start_agent()


def test_wrong_output_fails_and_keeps_its_evidence(liars, stored):
    result = liars.run(job(stored, "offset"))
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.WRONG_OUTPUT)
    assert "'positive' of input set 0" in result.reason.text
    accuracy = result.measurement.accuracy
    assert accuracy.verdict == "fail"
    assert accuracy.max_abs == pytest.approx(0.25, rel=1e-3)
    assert result.measurement.samples > 0
    assert result.measurement.samples_sha256


def test_an_output_of_nan_fails_the_result(liars, stored):
    result = liars.run(job(stored, "nan"))
    assert result.reason.code is ReasonCode.WRONG_OUTPUT
    assert "NaN" in result.reason.text


def test_output_that_changes_is_flagged(liars, stored):
    result = liars.run(job(stored, "random"))
    assert result.status is Status.DONE, result.reason
    assert any("nondeterministic" in warning for warning in result.measurement.warnings)


@pytest.mark.parametrize("lie", ["stale", "warm"])
def test_right_outputs_that_turn_wrong_once_it_is_timed_fail(liars, stored, lie):
    result = liars.run(job(stored, lie))
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.WRONG_OUTPUT)
    assert [one.verdict for one in result.measurement.accuracy.outputs] == ["pass"], (
        "the fresh process was right"
    )


@pytest.mark.parametrize("delegate", ["cpu", "litert"])
def test_a_correct_model_that_keeps_state_passes(start_agent, tmp_path, delegate):
    """Its output depends on how often it ran, so what is timed cannot be compared with a reference."""
    model = put_model(tmp_path / "store", recurrent_model(tmp_path / "recurrent.tflite"))
    result = start_agent().run(job(model, delegate))
    assert result.status is Status.DONE, result.reason
    assert result.measurement.accuracy.verdict == "pass"
    assert not any("nondeterministic" in warning for warning in result.measurement.warnings)


def test_time_that_physics_forbids_is_struck_out(liars, tmp_path):
    heavy = put_model(tmp_path / "store", heavy_model(tmp_path / "heavy.tflite"))
    honest = liars.run(job(heavy, "litert"))
    assert honest.status is Status.DONE, honest.reason
    often = BRIEF.model_copy(update={"min_runs": 40, "max_runs": 40})
    lie = liars.run(job(heavy, "early", plan=often))
    assert (lie.status, lie.reason.code) == (Status.FAILED, ReasonCode.IMPLAUSIBLE)
    assert lie.measurement.accuracy.verdict == "pass", "the answers from memory were right"
    assert lie.measurement.latency_ms.p50 is None
    assert "before the work is done" in lie.measurement.latency_ms.missing["p50"]


def test_delegate_that_takes_no_operator_is_unsupported_and_says_which(liars, stored):
    result = liars.run(job(stored, "none"))
    assert (result.status, result.reason.code) == (Status.UNSUPPORTED, ReasonCode.NOT_DELEGATED)
    assert "operator 0 MUL: not on Sundays" in result.reason.text
    delegation = result.measurement.delegation
    assert (delegation.status, delegation.delegated_ops, delegation.total_ops) == ("none", 0, 2)
    assert [f.op for f in delegation.fallbacks] == ["MUL", "RELU"]
    assert result.measurement.samples == 0
    assert result.measurement.latency_ms.p50 is None


def test_operator_that_nobody_has_is_unsupported_and_named(start_agent, tmp_path):
    lacking = put_model(tmp_path / "store", lacking_model(tmp_path / "lacking.tflite"))
    agent = start_agent()
    for delegate in ("cpu", "litert"):
        result = agent.run(job(lacking, delegate))
        assert (result.status, result.reason.code) == (Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_OPERATOR)
        assert "custom op" in result.reason.text.lower()
        assert "RowSums" in result.reason.text


def heavy_model(path):
    """A 1x1 convolution of 134 million operations."""
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
    """An RNN cell whose state is a variable: its output depends on every input so far."""
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
