"""Scripts for LiteRT Next's Python API give the same results, details and kinds of error here."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.api.compiled_model import CompiledModel
from runtime.api.cpu_options import CpuOptions
from runtime.api.event import Event
from runtime.api.gpu_options import GpuOptions
from runtime.api.hardware_accelerator import HardwareAccelerator
from runtime.api.options import Options
from runtime.api.tensor_buffer import ALIGNMENT, TensorBuffer
from runtime.errors import StatusError
from runtime.model.graph import Signature
from runtime.model.schema import BuiltinOperator
from tests.needs import REPOSITORY, absent
from tests.oracle import call_in_litert
from tests.runtime.api import scripts
from tests.runtime.models import Builder
from tests.runtime.test_interpreter import same

Op = BuiltinOperator


def adding(signature: bool, rows_unknown: bool = True) -> bytes:
    """x [?, 4] + k [4]; the signature names them in another order than the graph."""
    b = Builder()
    unknown = {"shape_signature": (-1, 4)} if rows_unknown else {}
    x = b.tensor(np.float32, (1, 4), name="x", **unknown)
    k = b.tensor(np.float32, (4,), name="k")
    b.inputs += [x, k]
    y = b.tensor(np.float32, (1, 4), name="y", **unknown)
    b.operator(Op.ADD, [x, k], [y])
    pairs = (("second", k), ("first", x)), (("result", y),)
    return b.write([y], [Signature("serve", 0, *pairs)] if signature else [])


def compare(script: str, *args: object) -> None:
    expected = call_in_litert(f"tests.runtime.api.scripts:{script}", *args)
    same(getattr(scripts, script)(ours, *args), expected)


@pytest.mark.parametrize("signature", [True, False], ids=["signature", "placeholder"])
def test_signatures_and_details_are_those_of_litert(signature):
    compare("describe", adding(signature))


@pytest.mark.parametrize("signature", [True, False], ids=["signature", "placeholder"])
def test_runs_by_index_and_by_name_give_what_litert_gives(signature):
    names = ("first", "second") if signature else ("x", "k")
    values = (np.arange(4, dtype=np.float32), np.full(4, 10, np.float32))
    compare("run", adding(signature), dict(zip(names, values, strict=True)))


def test_a_resized_input_resizes_the_buffers():
    compare("resize", adding(signature=True), "first", 3)


def test_errors_are_of_the_kinds_that_litert_raises():
    compare("compiled_errors", adding(signature=True), "first")


def test_tensor_buffers_read_and_write_as_litert_s_do():
    compare("buffers")


def test_options_and_environments_are_taken_as_litert_takes_them():
    compare("settings", adding(signature=True))


def test_names_are_found_where_litert_has_them():
    """Ours may have more, and has no `Delegate`, which stands for a shared library."""
    expected, found = call_in_litert("tests.runtime.api.scripts:importable"), scripts.importable(ours)
    for module, names in expected.items():
        assert set(names) - {"Delegate"} <= set(found[module]), module


def test_each_exception_is_a_module_of_litert_s_that_ours_lacks():
    theirs = call_in_litert("tests.runtime.api.scripts:modules")
    assert set(scripts.NOT_OURS) == set(theirs) - set(scripts.modules(ours))


def test_classes_have_what_litert_s_have():
    expected, found = call_in_litert("tests.runtime.api.scripts:members"), scripts.members(ours)
    for name, members in expected.items():
        if not name.rpartition(".")[2].startswith(("Delegate", "Qualcomm", "IntelOpenVino")):
            assert set(members) - SET_BY_INIT.get(name, set()) <= set(found[name]), name


SET_BY_INIT = {
    f"interpreter.{name}": {"experimental_compress_quantization_zero_points"}
    for name in ("Interpreter", "InterpreterWithCustomOps")
} | {f"{module}.Options": {"hardware_accelerators"} for module in ("options", "compiled_model")}
"""Attributes that ours sets when it is made, and LiteRT's class has too."""


def test_options_of_npus_can_be_imported_and_say_what_to_use_instead():
    from runtime.api import options, qualcomm_options

    with pytest.raises(ValueError, match="QualcommOptions: this runtime drives no NPU: give hardware_accel"):
        options.QualcommOptions()
    with pytest.raises(AttributeError, match=r"QualcommLogLevel\.ERROR: this runtime drives no NPU"):
        qualcomm_options.QualcommLogLevel.ERROR  # noqa: B018  # the look itself is refused
    for name in ("qualcomm_options", "intel_openvino_options"):
        with pytest.raises(ValueError, match=f"{name}: this runtime drives no NPU"):
            getattr(Options.create(), name)


def test_methods_take_litert_s_parameters():
    """Ours may have more of both."""
    expected = call_in_litert("tests.runtime.api.scripts:parameters")
    found = scripts.parameters(ours)
    for name, parameters in expected.items():
        assert name in found, name
        assert found[name][: len(parameters)] == parameters, name


def filled(values: np.ndarray) -> TensorBuffer:
    buffer = TensorBuffer.create_managed(values.dtype, values.shape)
    buffer.write(values)
    return buffer


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.uint16, np.complex64], ids=lambda t: t.__name__)
def test_buffers_hold_every_type_of_a_tensor(dtype):
    values = np.arange(5).astype(dtype)
    np.testing.assert_array_equal(filled(values).read(5, dtype), values)


def test_aligned_host_memory_is_shared():
    raw = np.zeros(4 * 8 + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    aligned = raw[start : start + 32].view(np.float32)
    buffer = TensorBuffer.create_from_host_memory(aligned)
    aligned[:] = 3
    assert buffer.read(8, np.float32).tolist() == [3] * 8
    with buffer.lock() as memory:
        memory[:4].view(np.float32)[:] = 7
    assert aligned[0] == 7


def test_other_host_memory_is_copied():
    raw = np.zeros(4 * 8 + 2 * ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT + 4
    values = raw[start : start + 32].view(np.float32)
    buffer = TensorBuffer.create_from_host_memory(values)
    values[:] = 3
    assert buffer.read(8, np.float32).tolist() == [0] * 8


def test_an_asynchronous_run_signals_its_outputs():
    compiled = CompiledModel.from_buffer(adding(signature=False))
    inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
    inputs[0].write(np.arange(4, dtype=np.float32))
    gate = Event()
    inputs[0].event = gate
    done = compiled.run_async(inputs, outputs)
    assert inputs[0].event is None
    assert outputs[0].event is done
    assert not done.is_signaled()
    with pytest.raises(TimeoutError):
        done.wait(1)
    threading.Timer(0.01, gate.signal).start()
    assert outputs[0].read(4, np.float32).tolist() == [0, 1, 2, 3]
    assert done.is_signaled()
    compiled.close()


def test_the_output_of_a_run_is_the_input_of_the_next():
    first = CompiledModel.from_buffer(adding(signature=False))
    second = CompiledModel.from_buffer(adding(signature=False))
    between = first.create_output_buffers(0)
    one = filled(np.ones(4, np.float32))
    last = second.create_output_buffers(0)
    for _ in range(20):
        first.run_async([filled(np.zeros((1, 4), np.float32)), one], between)
        event = second.run_async([between[0], one], last)
    event.wait()
    assert last[0].read(4, np.float32).tolist() == [2] * 4
    first.run_by_index(0, [last[0], one], between)
    assert between[0].read(4, np.float32).tolist() == [3] * 4


def test_a_buffer_is_filled_before_it_is_read_though_a_started_run_reads_it_too():
    models = [CompiledModel.from_buffer(adding(signature=False)) for _ in range(3)]
    source, one, gate = filled(np.zeros((1, 4), np.float32)), filled(np.ones(4, np.float32)), Event()
    between, *last = (model.create_output_buffers(0)[0] for model in models)
    source.event = gate
    models[0].run_async([source, one], [between])
    ends = [model.run_async([between, one], [y]) for model, y in zip(models[1:], last, strict=True)]
    assert between.event is None
    source.write(np.full((1, 4), 4, np.float32))  # what the caller's own event stands for
    threading.Timer(0.05, gate.signal).start()
    assert between.read(4, np.float32).tolist() == [5] * 4
    for end, y in zip(ends, last, strict=True):
        end.wait()
        assert y.read(4, np.float32).tolist() == [6] * 4


@pytest.mark.parametrize("started", [True, False], ids=["started", "waited for"])
def test_a_run_fills_a_buffer_behind_every_started_run_that_reads_it(started):
    models = [CompiledModel.from_buffer(adding(signature=False)) for _ in range(3)]
    shared, one, gate = filled(np.ones((1, 4), np.float32)), filled(np.ones(4, np.float32)), Event()
    gated = filled(np.ones(4, np.float32))
    gated.event = gate
    first, second = (model.create_output_buffers(0)[0] for model in models[:2])
    models[0].run_async([shared, gated], [first])
    models[1].run_async([shared, one], [second]).wait()
    threading.Timer(0.05, gate.signal).start()
    fill = models[2].run_async if started else partial(models[2].run_by_index, 0)
    fill([filled(np.full((1, 4), 50, np.float32)), one], [shared])
    assert shared.read(4, np.float32).tolist() == [51] * 4
    assert first.read(4, np.float32).tolist() == [2] * 4
    assert second.read(4, np.float32).tolist() == [2] * 4


def test_a_buffer_keeps_only_readers_that_have_not_ended():
    compiled = CompiledModel.from_buffer(adding(signature=False))
    x, one = filled(np.zeros((1, 4), np.float32)), filled(np.ones(4, np.float32))
    for _ in range(3):
        last = compiled.run_async([x, one], compiled.create_output_buffers(0))
        last.wait()
    assert x.readers == [last]


def test_errors_of_a_run_come_out_of_its_event():
    compiled = CompiledModel.from_buffer(adding(signature=False))
    small = [TensorBuffer.create_managed(np.float32, (n,)) for n in (3, 4)]
    outputs = compiled.create_output_buffers(0)
    event = compiled.run_async(small, outputs)
    with pytest.raises(StatusError, match="input 'x' takes 16 bytes, its buffer has 12") as caught:
        event.wait()
    assert caught.value.code == 3
    with pytest.raises(StatusError):
        outputs[0].read(4, np.float32)


def test_a_closed_model_says_so():
    with CompiledModel.from_buffer(adding(signature=True)) as compiled:
        pass
    with pytest.raises(StatusError, match="the model is closed"):
        compiled.create_input_buffers(0)


def on(accelerators: HardwareAccelerator, model: bytes, folder: object, **options: str) -> CompiledModel:
    chosen = {"tuning": "none", "persistent": "off", "cache_dir": str(folder), **options}
    chosen |= {"cost_aware_partitioning": "false"}
    gpu = GpuOptions(delegate_options=chosen)
    return CompiledModel.from_buffer(model, options=Options(accelerators, CpuOptions(1), gpu))


def test_enforce_f32_forbids_a_lossy_precision():
    gpu = GpuOptions(enforce_f32=True, delegate_options={"precision": "fp16"})
    with pytest.raises(RuntimeError, match="precision 'fp16' rounds weights"):
        CompiledModel.from_buffer(adding(signature=True), options=Options(HardwareAccelerator.GPU, None, gpu))


GPU, BOTH = HardwareAccelerator.GPU, HardwareAccelerator.GPU | HardwareAccelerator.CPU


def partly_supported() -> bytes:
    """Build a product large enough to pay for its transfers, and an operator without a kernel."""
    b = Builder()
    x, n = b.input(np.float32, (64, 512)), b.input(np.float32, (1, 4))
    y, m = b.tensor(np.float32, (64, 512)), b.tensor(np.float32, (1, 4))
    b.operator(Op.FULLY_CONNECTED, [x, b.constant(np.ones((512, 512), np.float32))], [y])
    backwards = {"seq_dim": 1, "batch_dim": 0}
    b.operator(Op.REVERSE_SEQUENCE, [n, b.constant(np.array([3], np.int32))], [m], backwards)
    return b.write([y, m])


def test_a_gpu_runs_all_or_shares_with_the_cpu(tmp_path):
    from runtime.errors import DeviceError

    try:
        whole = on(GPU, adding(signature=False, rows_unknown=False), tmp_path)
    except DeviceError as error:
        absent(f"no OpenCL device: {error}")
    assert whole.is_fully_accelerated()
    inputs, outputs = whole.create_input_buffers(0), whole.create_output_buffers(0)
    inputs[0].write(np.full(4, 5, np.float32))
    inputs[1].write(np.arange(4, dtype=np.float32))
    whole.run_by_index(0, inputs, outputs)
    assert outputs[0].read(4, np.float32).tolist() == [5, 6, 7, 8]
    with pytest.raises(RuntimeError, match="Disallowed CPU fallback"):
        on(GPU, partly_supported(), tmp_path)
    shared = on(BOTH, partly_supported(), tmp_path)
    assert not shared.is_fully_accelerated()
    report = shared.delegation
    assert report is not None
    assert (report.status, report.delegated_ops) == ("partial", 1)


def test_without_the_device_the_cpu_runs_it_and_says_so(tmp_path):
    with pytest.warns(RuntimeWarning, match="no GPU, the CPU runs the model"):
        compiled = on(BOTH, adding(signature=False), tmp_path, device="no such device")
    assert not compiled.is_fully_accelerated()
    with pytest.raises(RuntimeError, match="no such device"):
        on(GPU, adding(signature=False), tmp_path, device="no such device")


def test_importing_the_model_does_not_import_opencl():
    script = "import sys, runtime.api.compiled_model; sys.exit('pyopencl' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY)
