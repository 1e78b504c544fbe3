"""Faults of a device in runs in the background: their events raise what a run in the foreground raises.

The driver's errors are those of its events; the device underneath stays real.
"""

from __future__ import annotations

import pyopencl as cl
import pytest

from runtime.api.event import Event
from runtime.delegates.gpu.backends.opencl import faults
from runtime.errors import DeviceError, DeviceLostError, DeviceMemoryError
from tests.runtime.delegates.gpu.caller_models import EXPECTED, dense, filled, on_gpu
from tests.runtime.delegates.gpu.test_background_runs import close_to, managed
from tests.runtime.delegates.gpu.test_faults import raising

LOST = r"^gpu delegate: running the partition on .+: the device is lost \(.+\); start a new process, and look"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def model(folder):
    with on_gpu(dense(), cache_dir=folder) as compiled:
        yield compiled


@pytest.fixture(autouse=True)
def nothing_lost():
    yield
    faults._lost.clear()


def ending(patch, status):
    """Let the driver report of every command that it has ended with this status."""
    patch.setattr(cl.Event, "command_execution_status", property(lambda _: status))


def unasked(patch, code, text):
    """Let the driver answer every question about a command, and every wait, with an error."""
    raising(patch, "wait_for_events", code, text)
    failing = cl.wait_for_events
    patch.setattr(cl.Event, "command_execution_status", property(failing))
    patch.setattr(cl.Event, "wait", failing)


def started(model):
    """Start a run that nobody has waited for through its own event, and that has in truth ended."""
    target = managed()
    event = model.run_async([filled(managed())], [target])
    # What a driver says to have ended is let go of, so it must not write there any more.
    event.opencl_event.wait()
    return event, target


def usable(model):
    close_to(started(model)[1], EXPECTED)


@pytest.mark.parametrize("timeout_ms", [-1, 1000])
def test_a_device_lost_in_a_run_is_named_and_marked_by_its_event(model, folder, monkeypatch, timeout_ms):
    event, _ = started(model)
    with monkeypatch.context() as patch:
        ending(patch, -2)
        assert event.is_signaled()
        with pytest.raises(DeviceLostError, match=LOST) as caught:
            event.wait(timeout_ms)
    assert "\n" not in str(caught.value)
    with pytest.raises(DeviceLostError, match=LOST):
        event.wait()
    for use in (lambda: started(model), lambda: on_gpu(dense(), cache_dir=folder)):
        with pytest.raises(DeviceLostError, match=r"lost in this process \(running .*start a new process"):
            use()


def test_a_driver_that_answers_nothing_has_lost_its_device(model, monkeypatch):
    event, _ = started(model)
    with monkeypatch.context() as patch:
        unasked(patch, -36, "INVALID_COMMAND_QUEUE")
        raising(patch, "enqueue_fill_buffer", -36, "INVALID_COMMAND_QUEUE")
        assert event.is_signaled()
        with pytest.raises(DeviceLostError, match=LOST):
            event.wait()


def test_a_run_that_was_seen_to_end_has_ended_well_whatever_becomes_of_its_device(model, monkeypatch):
    event, target = started(model)
    event.wait()
    with monkeypatch.context() as patch:
        unasked(patch, -36, "INVALID_COMMAND_QUEUE")
        raising(patch, "enqueue_fill_buffer", -36, "INVALID_COMMAND_QUEUE")
        assert event.is_signaled()
        event.wait()
        close_to(target, EXPECTED)


def test_a_run_that_fails_on_a_device_that_still_answers_is_an_error_alone(model, monkeypatch):
    event, _ = started(model)
    with monkeypatch.context() as patch:
        ending(patch, -5)
        with pytest.raises(DeviceError, match=r"the command ended with OpenCL's status -5") as caught:
            event.wait()
    assert not isinstance(caught.value, DeviceLostError)
    usable(model)


def test_memory_that_a_driver_lacks_in_a_run_is_an_error_after_which_the_model_runs(model, monkeypatch):
    event, target = started(model)
    with monkeypatch.context() as patch:
        ending(patch, -4)
        with pytest.raises(DeviceMemoryError, match=r"no memory left .*; the partition needs \d") as caught:
            event.wait()
    assert "\n" not in str(caught.value)
    with pytest.raises(DeviceMemoryError):
        target.read(EXPECTED.size, EXPECTED.dtype)
    usable(model)


def test_a_run_behind_a_lost_one_raises_its_error(model, monkeypatch):
    first, between = started(model)
    with monkeypatch.context() as patch:
        ending(patch, -2)
        second = model.run_async([between], [managed()])
        with pytest.raises(DeviceLostError, match=LOST):
            first.wait()
    second.opencl_event.wait()
    with pytest.raises(DeviceLostError):
        second.wait()


def test_nobody_waits_for_what_a_lost_device_has_not_begun(model, folder, monkeypatch):
    gate, source = Event(), filled(managed())
    source.event = gate
    held = model.run_async([source], [managed()])
    with on_gpu(dense(), cache_dir=folder) as other:
        done, _ = started(other)
        try:
            with monkeypatch.context() as patch:
                ending(patch, -2)
                with pytest.raises(DeviceLostError):
                    done.wait()
            with pytest.raises(DeviceLostError, match="was lost in this process"):
                held.wait()
        finally:
            gate.signal()


def test_a_device_that_is_lost_at_the_start_of_a_run_is_the_error_of_the_start(model, monkeypatch):
    with monkeypatch.context() as patch:
        raising(patch, "enqueue_nd_range_kernel", -2, "DEVICE_NOT_AVAILABLE")
        with pytest.raises(DeviceLostError, match=r"starting the partition on .*: the device is lost"):
            started(model)
