"""An end of an attempt has a status and a reason of its own, in words without the paths of the agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.attempt.files import AttemptFile, Failure
from agent.runner.failures import failure_of
from agent.wire.messages import Device, ReasonCode, Status
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.gpu.settings.precision import Findings, Trial, settled
from runtime.delegates.partition import DelegationReport, Fallback
from runtime.errors import (
    DataError,
    DeadlineError,
    DelegateMissingError,
    DeviceLostError,
    DeviceMemoryError,
    MisfitError,
    NoDeviceError,
    UnsupportedOperatorError,
    UnsupportedPrecisionError,
)
from tests.agent.embedded_agent import job

DEVICE = Device(
    device_id="d", kind="gpu", api="opencl", name="A", delegates=(), exclusion_group="d", environment={}
)


@pytest.fixture
def ended(stored):
    """Return the failure of an attempt on `gpu` that ends with an error."""

    def ended(error: Exception) -> Failure:
        attempt = AttemptFile(
            job=job(stored, "gpu", "d"), device=DEVICE, model_path="/model", data_path="/data", references="r"
        )
        return failure_of(error, attempt)

    return ended


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NoDeviceError("LiteRT finds no GPU"), Status.UNSUPPORTED, ReasonCode.NO_DEVICE),
        (DelegateMissingError("gpu delegate: no clang"), Status.UNSUPPORTED, ReasonCode.DELEGATE_MISSING),
        (DeviceLostError("the device is lost"), Status.FAILED, ReasonCode.DEVICE_LOST),
        (DeviceMemoryError("it needs 5 MiB"), Status.FAILED, ReasonCode.OUT_OF_MEMORY),
        (DeadlineError("it took 6 ms"), Status.FAILED, ReasonCode.TIMEOUT),
    ],
    ids=str,
)
def test_what_a_machine_lacks_is_unsupported_and_a_fault_of_a_device_fails(ended, error, status, code):
    failure = ended(error)
    assert (failure.status, failure.reason.code) == (status, code)
    assert failure.reason.text == str(error)


def test_a_precision_that_the_device_lacks_is_unsupported_with_the_reason(ended):
    lacking = Findings({Trial.FP16_STORAGE: "3 of 16 numbers are wrong"})
    with pytest.raises(UnsupportedPrecisionError) as caught:
        settled(Options(precision="fp16"), replace(ASSUMED["cpu"], name="A"), lambda: lacking)
    failure = ended(caught.value)
    assert (failure.status, failure.reason.code) == (Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_PRECISION)
    assert "'fp16' cannot be used on A: fp16 storage: 3 of 16 numbers are wrong" in failure.reason.text


@pytest.mark.parametrize(
    ("error", "status"),
    [(DataError("/data: 5.png: damaged"), Status.FAILED), (MisfitError("no classifier"), Status.UNSUPPORTED)],
)
def test_labelled_data_that_is_bad_fails_and_a_model_that_it_does_not_judge_is_unsupported(
    ended, error, status
):
    failure = ended(error)
    assert (failure.status, failure.reason.code) == (status, ReasonCode.LABELLED_DATA)
    assert failure.reason.text == str(error).replace("/data", "labelled data")


def test_many_operators_that_stay_on_the_cpu_are_a_count_in_the_reason_and_a_list_in_the_report(ended):
    left = tuple(Fallback(i, f"Vendor{i}", "no OpenCL kernel for this operator") for i in range(24))
    error = UnsupportedOperatorError("custom operator Vendor0; runtime.custom_operator registers a kernel")
    error.delegation = DelegationReport("none", 0, 24, 0, left)
    failure = ended(error)
    assert failure.reason.code is ReasonCode.NOT_DELEGATED
    assert failure.reason.text == (
        "custom operator Vendor0; runtime.custom_operator registers a kernel; gpu leaves 24 of 24 operators "
        "to the CPU"
    )
    assert failure.delegation is not None
    assert [found.op for found in failure.delegation.fallbacks] == [f"Vendor{i}" for i in range(24)]
