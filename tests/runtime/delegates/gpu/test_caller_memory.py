"""Memory of the caller's as a model's inputs and outputs: used itself, copied with a reason, or refused."""

from __future__ import annotations

import mmap
import re
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from runtime.api.compiled_model import CompiledModel
from runtime.api.tensor_buffer import TensorBuffer
from runtime.delegates.storage import HostStorage
from runtime.errors import DelegateError, StatusError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.caller_models import (
    EXPECTED,
    SHAPE,
    SIZE,
    WEIGHTS,
    X,
    dense,
    expected,
    filled,
    on_gpu,
    results,
)
from tests.runtime.models import Builder


def cl_buffer(
    context: cl.Context, size: int = SIZE + 512, flags: int = cl.mem_flags.READ_WRITE
) -> TensorBuffer:
    return TensorBuffer.create_from_cl_buffer(cl.Buffer(context, flags, size), np.float32, SHAPE)


def aligned(size: int, room: int, behind: int = 0) -> np.ndarray:
    """Bytes at a multiple of 64 and `behind`, in a larger array with `room` behind them."""
    raw = np.zeros(size + room + 128, np.uint8)
    start = -raw.ctypes.data % 64 + behind
    return raw[start : start + size]


def svm(context: cl.Context) -> TensorBuffer:
    return TensorBuffer.create_from_svm(
        cl.csvm_empty(context, (SIZE // 4 + 128,), np.float32), np.float32, SHAPE
    )


@pytest.fixture
def commands(monkeypatch) -> list[int]:
    """Record the types of all commands that are enqueued, in order, as OpenCL's own events name them."""
    found: list[int] = []

    def watched(name: str) -> None:
        real = getattr(cl, name)

        def call(*args: Any, **named: Any) -> Any:
            event = real(*args, **named)
            found.append((event[1] if isinstance(event, tuple) else event).command_type)
            return event

        monkeypatch.setattr(cl, name, call)

    for name in dir(cl):
        if name.startswith("enqueue_"):
            watched(name)
    return found


TRANSFERS = {
    getattr(cl.command_type, name)
    for name in dir(cl.command_type)
    if any(word in name for word in ("READ", "WRITE", "COPY", "MAP", "FILL"))
}


@pytest.mark.parametrize("memory", ["managed", "host", "pyopencl.Buffer", "svm"])
def test_a_run_on_memory_of_the_caller_s_enqueues_kernels_alone(memory, model, commands):
    make = {
        "managed": lambda: TensorBuffer.create_managed(np.float32, SHAPE),
        "host": lambda: TensorBuffer.create_from_host_memory(aligned(SIZE + 512, 512).view(np.float32)),
        "pyopencl.Buffer": lambda: cl_buffer(model.opencl_context),
        "svm": lambda: svm(model.opencl_context),
    }[memory]
    source, target = filled(make()), make()
    arena = model._route(0).partition.recording._arena_memory
    arena[:] = 0
    first = model.run_async([source], [target])
    first.wait()
    assert first.copies == ()
    del commands[:]
    event = model.run_async([source], [target])
    event.wait()
    assert commands
    assert not TRANSFERS & set(commands)
    np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)
    # Neither did the host copy anything: the delegate's own memory has seen neither input nor output.
    assert X.tobytes()[:64] not in arena.tobytes()
    assert results(target).tobytes()[:64] not in arena.tobytes()


def test_buffers_of_changing_memory_and_plain_invokes_do_not_disturb_each_other(model):
    sources = [filled(TensorBuffer.create_managed(np.float32, SHAPE), X * scale) for scale in (1, 2, 3)]
    targets = [TensorBuffer.create_managed(np.float32, SHAPE) for _ in sources]
    for _ in range(5):
        for source, target in zip(sources, targets, strict=True):
            model.run_async([source], [target])
    found = np.empty(SHAPE, np.float32)
    model._route(0).partition.invoke([X * 4], [found])
    np.testing.assert_allclose(found, expected(4 * X), rtol=1e-5, atol=1e-6)
    for scale, target in zip((1, 2, 3), targets, strict=True):
        np.testing.assert_allclose(results(target), expected(scale * X), rtol=1e-5, atol=1e-6)


def test_what_kernels_cannot_reach_is_copied_and_the_reason_says_why(model):
    managed = TensorBuffer.create_managed
    shifted = TensorBuffer(HostStorage(aligned(SIZE, 512, 4)), np.dtype(np.float32), SHAPE)
    page = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint8)
    exact = TensorBuffer.create_from_host_memory(page[-SIZE:].view(np.float32))
    shared = managed(np.float32, SHAPE)
    for source, target, reason in (
        (shifted, managed(np.float32, SHAPE), "input .* begins 4 bytes behind a multiple of 64"),
        (
            exact,
            managed(np.float32, SHAPE),
            r"input .* may read 1792 bytes, and 1536 are known to be readable",
        ),
        (managed(np.float32, SHAPE), exact, r"output .* may read 1792 bytes, and 1536 are known to be"),
        (shared, shared, "output .* its memory is that of another tensor of the run"),
    ):
        filled(source)
        event = model.run_async([source], [target])
        event.wait()
        np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)
        assert len(event.copies) == 1
        assert re.search(reason, event.copies[0]), event.copies


def test_no_byte_behind_a_caller_s_memory_is_written(tmp_path):
    """Ten channels: the kernel's vector of 16 ends 24 bytes behind them."""
    b = Builder()
    x, y = b.input(np.float32, (1, 48)), b.tensor(np.float32, (1, 10))
    b.operator(Op.FULLY_CONNECTED, [x, b.constant(WEIGHTS[:10])], [y])
    with on_gpu(b.write([y]), cache_dir=str(tmp_path)) as model:
        memory = aligned(128, 0)
        memory[:] = 7
        target = TensorBuffer.create_from_host_memory(memory[:40].view(np.float32))
        event = model.run_async([filled(model.create_input_buffers(0)[0], X[:1])], [target])
        np.testing.assert_allclose(target.read(10, np.float32), X[0] @ WEIGHTS[:10].T, rtol=1e-5, atol=1e-6)
        assert event.copies == (
            "output 't1' is copied: kernels write 64 bytes, and its memory ends after 40",
        )
        assert (memory[40:] == 7).all()


def test_memory_that_cannot_hold_a_tensor_is_refused_and_the_model_stays_usable(model):
    context, other = model.opencl_context, cl.Context(model.opencl_context.devices)
    fine, target = (
        filled(TensorBuffer.create_managed(np.float32, SHAPE)),
        TensorBuffer.create_managed(np.float32, SHAPE),
    )
    integers = TensorBuffer.create_from_cl_buffer(
        cl.Buffer(context, cl.mem_flags.READ_WRITE, SIZE), np.int32, SHAPE
    )
    unwritable = cl_buffer(context, flags=cl.mem_flags.READ_ONLY)
    destroyed = TensorBuffer.create_managed(np.float32, SHAPE)
    destroyed.destroy()
    for source, result, text in (
        (cl_buffer(other), target, "belongs to another OpenCL context.*`opencl_context`"),
        (fine, cl_buffer(other), "output .* belongs to another OpenCL context"),
        (TensorBuffer.create_managed(np.float32, (8, 47)), target, "takes 1536 bytes, its buffer has 1504"),
        (integers, target, "is float32, and its buffer holds int32; make the TensorBuffer with float32"),
        (fine, unwritable, "was made with READ_ONLY; make it with READ_WRITE"),
        (destroyed, target, "invalid capsule"),
    ):
        with pytest.raises(StatusError, match=text) as caught:
            model.run_async([source], [result])
        assert "\n" not in str(caught.value)
        assert target.event is None
    model.run_by_index(0, [fine], [target])
    np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)


def test_other_objects_are_no_buffers_of_opencl(model):
    image_format = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    image = cl.create_image(model.opencl_context, cl.mem_flags.READ_WRITE, image_format, shape=(4, 4))
    with pytest.raises(DelegateError, match="not Image; an image's pixels are a tensor by create_"):
        TensorBuffer.create_from_cl_buffer(image, np.float32, (4,))
    with pytest.raises(DelegateError, match="not ndarray"):
        TensorBuffer.create_from_cl_buffer(X, np.float32, SHAPE)
    with pytest.raises(StatusError, match="take 1536 bytes, the buffer has 64; make it larger"):
        cl_buffer(model.opencl_context, 64)
    for make in (TensorBuffer.create_from_gl_buffer, TensorBuffer.create_from_gl_texture):
        with pytest.raises(
            StatusError, match=r"of OpenGL cannot be shared: .*copy its content into a pyopencl\.B"
        ):
            make(1, 2, 3)


def test_a_buffer_that_the_caller_releases_stays_until_the_tensor_buffer_goes(model):
    given = cl.Buffer(model.opencl_context, cl.mem_flags.READ_WRITE, SIZE + 512)
    source = TensorBuffer.create_from_cl_buffer(given, np.float32, SHAPE)
    given.release()
    target = TensorBuffer.create_managed(np.float32, SHAPE)
    model.run_by_index(0, [filled(source)], [target])
    np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)


def test_a_device_with_memory_of_its_own_copies_and_says_so(tmp_path, monkeypatch):
    """A CPU device that calls itself a GPU: its kernels may use the delegate's own buffers alone."""
    monkeypatch.setattr("runtime.delegates.gpu.backends.opencl.device.is_gpu", lambda device: True)
    with on_gpu(dense(), cache_dir=str(tmp_path)) as model:
        for source, target in (
            (TensorBuffer.create_managed(np.float32, SHAPE), TensorBuffer.create_managed(np.float32, SHAPE)),
            (cl_buffer(model.opencl_context, SIZE), cl_buffer(model.opencl_context, SIZE)),
        ):
            event = model.run_async([filled(source)], [target])
            np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)
            assert len(event.copies) == 2
            assert "reach the delegate's own memory only" in event.copies[0]


def test_requirements_say_how_much_memory_is_used_without_a_copy(model):
    found = model.get_input_buffer_requirements(0)
    assert found["buffer_size"] == SIZE
    assert found["supported_types"] == [10, 1]
    room = np.frombuffer(mmap.mmap(-1, found["zero_copy_size"]), np.uint8)
    source = filled(TensorBuffer.create_from_host_memory(room.view(np.float32)))
    assert model.run_async([source], model.create_output_buffers(0)).copies == ()


def test_memory_with_room_behind_the_tensor_serves_the_cpu_path_too():
    with CompiledModel.from_buffer(dense()) as on_cpu:
        source, target = (TensorBuffer.create_managed(np.float32, (SIZE // 4 + 128,)) for _ in range(2))
        on_cpu.run_by_index(0, [filled(source)], [target])
        np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)


def test_dlpack_shares_memory_both_ways(model):
    values = aligned(SIZE, 512).view(np.float32).reshape(SHAPE)
    values[:] = X
    source, target = TensorBuffer.from_dlpack(values), model.create_output_buffers(0)[0]
    values[0] = 0
    assert source.get_tensor_details() == {"dtype": "float32", "shape": list(SHAPE)}
    model.run_async([source], [target])
    found = np.from_dlpack(target)  # waits for the run
    assert found.shape == SHAPE
    np.testing.assert_allclose(found, expected(values), rtol=1e-5, atol=1e-6)
    with target.lock() as memory:
        assert np.shares_memory(found, memory)
    with pytest.raises(BufferError, match="use read, or lock"):
        np.from_dlpack(cl_buffer(model.opencl_context))


def test_memory_far_from_the_arena_is_used_itself(monkeypatch, folder):
    """Offsets of 31 bits reach 64 GiB back: as if they reached none, every place is an address of its own."""
    monkeypatch.setattr("runtime.delegates.gpu.backends.opencl.caller_memory._FURTHEST_LINE", -1)
    monkeypatch.setattr("runtime.delegates.gpu.backends.opencl.caller_memory._NEAREST_LINE", 0)
    with on_gpu(dense(), cache_dir=folder) as model:
        source, target = (
            filled(TensorBuffer.create_managed(np.float32, SHAPE)),
            model.create_output_buffers(0),
        )
        event = model.run_async([source], target)
        np.testing.assert_allclose(results(target[0]), EXPECTED, rtol=1e-5, atol=1e-6)
        shares = model._route(0).partition.backend.capabilities.shares_one_kernel
        assert (event.copies == ()) == shares
