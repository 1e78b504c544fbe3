"""All outputs of an attempt count: those of every tuning, against a reference for the same inputs."""

from __future__ import annotations

import numpy as np
import pytest

from agent.attempt.files import AttemptFile, OutputFact, ProcessReport, outputs_path
from agent.runner.judge.accuracy import ModelKind, judged_outputs
from agent.runner.judge.references import References
from agent.wire.measurement import ProcessSamples
from agent.wire.messages import Device
from runtime.judge.agreement import OutputFacts
from runtime.judge.rules import Arithmetic
from runtime.measure.inputs import POOL_SIZE
from runtime.measure.outputs import save_outputs
from runtime.measure.reference import Reference, ReferenceKind
from tests.agent.embedded_agent import job

RIGHT = np.linspace(1.0, 2.0, 8, dtype=np.float32)
KIND = ModelKind(Arithmetic.FLOAT, keeps_state=False)


def verdict(tmp_path, values: list[float], pool: str = "a" * 64) -> tuple[str | None, str | None]:
    """Return the verdict and its note over a cold process of each tuning, whose outputs are so many times the
    reference's. Without honest runs none passes. `pool`: the inputs of the reference.
    """
    tmp_path.joinpath("work").mkdir()
    attempt = AttemptFile(
        job=job(("5" * 64, 10)), model_path="m", references="r",
        device=Device(
            device_id="host-cpu", kind="cpu", api="host", name="A", delegates=(), exclusion_group="d",
            environment={},
        ),
    )  # fmt: skip
    reports = []
    for tuning, value in enumerate(values):
        outputs = [(RIGHT * np.float32(value),)] * POOL_SIZE
        path = outputs_path(tmp_path / "work", tuning)
        path.parent.mkdir()
        save_outputs(path, outputs)
        samples = ProcessSamples(
            index=tuning, tuning=tuning, cache="cold", init_ns=1, first_ns=1, warmup_ns=(), invoke_ns=(),
            memory_peak_bytes=1, memory_before_bytes=1, facts={"pool_sha256": "a" * 64},
        )  # fmt: skip
        fact = OutputFact(name="y", scale=0.0, zero_point=0)
        reports.append(ProcessReport(samples=samples, output_facts=(fact,)))
    reference = Reference(
        ReferenceKind.REFERENCE_KERNELS,
        "reference",
        (OutputFacts("y", 0.0, 0),),
        ((RIGHT,),) * POOL_SIZE,
        pool,
    )
    found = judged_outputs(attempt, reports, tmp_path / "work", References(reference), KIND).accuracy
    return found.verdict, found.note


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 1, 1], None), ([1, 2, 1], "fail"), ([1, 1, 2], "fail")]
)
def test_the_outputs_of_every_tuning_count(tmp_path, values, expected):
    assert verdict(tmp_path, values)[0] == expected


def test_a_reference_for_other_inputs_judges_nothing(tmp_path):
    found, note = verdict(tmp_path, [2], pool="b" * 64)
    assert found is None
    assert "made for other inputs" in str(note)
