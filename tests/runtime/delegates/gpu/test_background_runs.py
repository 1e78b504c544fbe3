"""Runs in the background: they begin behind their inputs' events, on the device, and end with their own."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from runtime.api.compiled_model import CompiledModel
from runtime.api.environment import Environment
from runtime.api.event import Event
from runtime.api.gpu_options import GpuOptions
from runtime.api.hardware_accelerator import HardwareAccelerator
from runtime.api.options import Options
from runtime.api.tensor_buffer import TensorBuffer
from runtime.delegates.gpu.backends.opencl.run import OpenClEvent
from runtime.errors import DelegateError, InvocationError, StatusError
from tests.runtime.delegates.gpu.caller_models import (
    EXPECTED,
    SHAPE,
    X,
    dense,
    expected,
    filled,
    on_gpu,
    results,
)
from tests.runtime.delegates.gpu.test_checks import TABLE, gathered_twice


def managed() -> TensorBuffer:
    return TensorBuffer.create_managed(np.float32, SHAPE)


def close_to(buffer: TensorBuffer, expected: np.ndarray) -> None:
    np.testing.assert_allclose(results(buffer), expected, rtol=1e-5, atol=1e-6)


def test_a_run_begins_behind_its_input_s_event_which_nobody_but_the_device_waits_for(model):
    source, target, gate = filled(managed()), managed(), Event()
    source.event = gate
    event = model.run_async([source], [target])
    assert source.event is None
    assert target.event is event
    assert not event.is_signaled()
    with pytest.raises(TimeoutError, match="not signalled within 20 ms"):
        event.wait(20)
    with source.storage.lock() as memory:  # the producer fills the buffer before it signals
        memory.view(np.float32)[:] = X.reshape(-1) * 2
    gate.signal()
    close_to(target, expected(2 * X))
    assert event.is_signaled()


def test_events_of_opencl_go_in_and_out(model):
    context = model.opencl_context
    queue, mine = cl.CommandQueue(context), cl.UserEvent(context)
    given = cl.Buffer(context, cl.mem_flags.READ_WRITE, X.nbytes + 512)
    source, target = TensorBuffer.create_from_cl_buffer(given, np.float32, SHAPE), managed()
    copied = cl.enqueue_copy(queue, given, X, is_blocking=False, wait_for=[mine])
    source.event = Event.create_from_opencl_event(copied)
    event = model.run_async([source], [target])
    found = np.zeros(SHAPE, np.float32)
    read = cl.enqueue_marker(queue, wait_for=[event.opencl_event])
    assert not event.is_signaled()
    mine.set_status(cl.command_execution_status.COMPLETE)
    read.wait()
    assert event.is_signaled()
    found[:] = results(target)
    np.testing.assert_allclose(found, EXPECTED, rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match="the device signals this event"):
        event.signal()


def test_a_run_that_waits_for_its_input_holds_up_no_other_model(model, folder):
    source, target, gate = filled(managed()), managed(), Event()
    source.event = gate
    waiting = model.run_async([source], [target])
    ended: list[CompiledModel] = []

    def others() -> None:
        with on_gpu(dense(times=2), persistent="on", tuning="fast", cache_dir=folder) as other:
            other.run_by_index(0, [filled(managed())], [managed()])
            ended.append(other)

    # On a thread, so that the test fails where it would wait for ever.
    thread = threading.Thread(target=others)
    thread.start()
    thread.join(300)
    assert ended
    assert not waiting.is_signaled()
    gate.signal()
    thread.join()
    close_to(target, EXPECTED)


def test_a_driver_that_returns_before_the_end_is_waited_for_all_the_same(model, monkeypatch):
    mine = cl.UserEvent(model.opencl_context)
    monkeypatch.setattr(OpenClEvent, "_wait", lambda _: None)
    later = threading.Timer(0.05, mine.set_status, [cl.command_execution_status.COMPLETE])
    later.start()
    Event.create_from_opencl_event(mine).wait()
    assert mine.command_execution_status == cl.command_execution_status.COMPLETE
    later.join()


def test_events_that_cannot_order_a_run_are_refused_and_the_model_stays_usable(model):
    other = cl.Context(model.opencl_context.devices)
    source, target = filled(managed()), managed()
    source.event = Event.create_from_opencl_event(cl.UserEvent(other))
    with pytest.raises(StatusError, match=r"event belongs to another OpenCL context; make it in .*`opencl"):
        model.run_async([source], [target])
    with pytest.raises(DelegateError, match=r"an event of OpenCL is a pyopencl\.Event, not str"):
        Event.create_from_opencl_event("soon")
    source.event = None
    model.run_async([source], [target])
    close_to(target, EXPECTED)


def test_the_output_of_one_model_is_the_input_of_the_next_without_a_host_between(model, folder):
    with on_gpu(dense(), cache_dir=folder) as second:
        assert second.opencl_context == model.opencl_context
        source, between, last, gate = filled(managed()), managed(), managed(), Event()
        source.event = gate
        first_event = model.run_async([source], [between])
        last_event = second.run_async([between], [last])
        assert between.event is None
        assert not first_event.is_signaled()
        assert not last_event.is_signaled()
        gate.signal()
        close_to(last, expected(EXPECTED))
        assert first_event.copies == last_event.copies == ()
        for _ in range(20):  # a buffer is filled again only when its reader is done
            model.run_async([source], [between])
            second.run_async([between], [last])
            model.run_async([last], [between])
        close_to(between, expected(EXPECTED, 4))


def test_a_run_on_the_cpu_and_one_on_the_device_order_each_other(model):
    with CompiledModel.from_buffer(dense()) as on_cpu:
        source, between, last, gate = filled(managed()), managed(), managed(), Event()
        source.event = gate
        on_cpu.run_async([source], [between])
        model.run_async([between], [last])
        on_cpu.run_async([last], [between])
        assert not last.event
        gate.signal()
        close_to(between, expected(EXPECTED, 4))


def test_an_error_of_a_run_comes_out_of_its_event_and_of_those_that_waited_for_it(model, folder):
    with on_gpu(gathered_twice(), cache_dir=folder) as gathering:
        last = filled(TensorBuffer.create_managed(np.int32, (1,)), np.int32([1]))
        bad, good = (
            filled(TensorBuffer.create_managed(np.int32, (3,)), np.int32(rows))
            for rows in ([6, 7, 3], [6, 2, 3])
        )
        outputs = [TensorBuffer.create_managed(np.float32, (1, 5)) for _ in range(3)]
        events = [
            gathering.run_async([rows, last], [output])
            for rows, output in zip((good, bad, good), outputs, strict=True)
        ]
        events[0].wait()
        with pytest.raises(InvocationError, match="operator 0 GATHER: an index is outside the axis"):
            events[1].wait()
        events[2].wait()
        assert outputs[2].read(5, np.float32).tolist() == TABLE[2].tolist()
        with pytest.raises(InvocationError):
            outputs[1].read(5, np.float32)
        with pytest.raises(InvocationError):
            gathering.run_by_index(0, [bad, last], [outputs[0]])
        gathering.run_by_index(0, [good, last], [outputs[0]])
    gate, source, target = Event(), filled(managed()), managed()
    source.event = gate
    event = model.run_async([source], [target])
    gate.signal(ValueError("the camera is gone"))
    with pytest.raises(ValueError, match="the camera is gone"):
        event.wait()
    model.run_async([source], [target])
    close_to(target, EXPECTED)


@pytest.mark.parametrize("wait_type", ["passive", "active", "aggressive", "do_not_wait"])
def test_ways_to_wait_differ_in_when_a_run_returns_and_not_in_its_results(wait_type, folder):
    with on_gpu(dense(), wait_type=wait_type, cache_dir=folder) as model:
        source, target = filled(managed()), managed()
        for _ in range(3):
            model.run_by_index(0, [source], [target])
            if wait_type != "do_not_wait":
                assert target.event is None
            close_to(target, EXPECTED)
        gate = source.event = Event()
        if wait_type == "do_not_wait":
            model.run_by_index(0, [source], [target])
            assert target.event is not None
            assert not target.event.is_signaled()
            gate.signal()
            close_to(target, EXPECTED)


def test_a_model_is_compiled_in_the_caller_s_own_context(model, folder):
    context = cl.Context(model.opencl_context.devices)
    gpu = GpuOptions(delegate_options={"tuning": "none", "persistent": "off", "cache_dir": folder})
    with Environment.create(opencl_context=context) as environment:
        compiled = CompiledModel.from_buffer(
            dense(), environment=environment, options=Options(HardwareAccelerator.GPU, gpu_options=gpu)
        )
    assert compiled.opencl_context == context
    given = cl.Buffer(context, cl.mem_flags.READ_WRITE, X.nbytes + 512)
    source, target = filled(TensorBuffer.create_from_cl_buffer(given, np.float32, SHAPE)), managed()
    compiled.run_async([source], [target])
    # Runs in several contexts follow one another as those in one do.
    last = managed()
    model.run_async([target], [last])
    close_to(last, expected(EXPECTED))
    compiled.close()


def test_models_with_persistent_kernels_run_from_several_threads(folder):
    models = [on_gpu(dense(times=n), persistent="on", cache_dir=folder) for n in (2, 3)]
    failures: list[BaseException] = []

    def work(compiled: CompiledModel, expected: np.ndarray) -> None:
        try:
            source, targets = filled(managed()), [managed() for _ in range(4)]
            for _ in range(20):
                for target in targets:
                    compiled.run_async([source], [target])
                close_to(targets[-1], expected)
        except BaseException as error:  # noqa: BLE001  # told to the test's own thread
            failures.append(error)

    wanted = (EXPECTED, expected(X, 3))
    threads = [threading.Thread(target=work, args=pair) for pair in (*zip(models, wanted, strict=True),) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for compiled in models:
        compiled.close()


def test_the_processor_works_while_two_models_run(folder, monkeypatch):
    """By time stamps: pieces of the host's work lie behind both starts, and before either end.

    On a busy machine this thread may have no core until both runs are over; then they run again.
    """
    real = cl.CommandQueue
    profiling = cl.command_queue_properties.PROFILING_ENABLE
    monkeypatch.setattr(cl, "CommandQueue", lambda context, **_: real(context, properties=profiling))
    weights = np.eye(512, dtype=np.float32)
    models = [on_gpu(dense(512, weights, 6), cache_dir=folder) for _ in range(2)]
    assert any(worked_beside(models) for _ in range(100))
    for compiled in models:
        compiled.close()


def worked_beside(models: list[CompiledModel]) -> bool:
    """Run the models at once and work meanwhile; whether some of the work was done before either's end."""
    gate, pieces, content = Event(), [], bytes(1 << 16)
    events = []
    for compiled in models:
        inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
        compiled.run_by_index(0, inputs, outputs)
        inputs[0].event = gate
        events.append(compiled.run_async(inputs, outputs))
        assert not events[-1].is_signaled()
    gate.signal()
    while not all(event.is_signaled() for event in events):
        hashlib.sha256(content).digest()
        pieces.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
    for event in events:
        event.wait()
    profiles = [event.opencl_event.profile for event in events]
    return all(any(one.queued < piece < one.end for piece in pieces) for one in profiles)


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "chained"])
def test_ten_thousand_runs_leave_nothing_behind(waits, model):
    sources, target = [filled(managed()), filled(managed())], managed()

    def runs(count: int) -> None:
        for number in range(count):
            event = model.run_async([sources[number % 2]], [target])
            if waits or number % 500 == 0:
                event.wait()
        target.wait()

    runs(1000)
    before = resident_bytes()
    runs(10_000)
    assert resident_bytes() - before < 2 << 20
