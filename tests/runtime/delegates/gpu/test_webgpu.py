"""The backend of WebGPU: the same core and kernels on adapters of Vulkan and OpenGL, against LiteRT."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.api.tensor_buffer import TensorBuffer
from runtime.common.installation import install_command
from runtime.delegates.gpu.backends.webgpu import adapter, recording
from runtime.delegates.gpu.backends.webgpu.wgsl.module import Module, Windows, translate
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.errors import DelegateError, DeviceError, DeviceLostError, UnsupportedPrecisionError
from runtime.model.graph import Model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from runtime.model.writer import write_model
from tests.needs import REPOSITORY, absent
from tests.oracle import run_litert
from tests.runtime.delegates.gpu.caller_models import EXPECTED, SHAPE, dense, filled, on_gpu, results
from tests.runtime.delegates.gpu.models import ModelBuilder, facts_of, whole
from tests.runtime.delegates.gpu.webgpu_cases import FEW, MANY, PRODUCT, values, with_rounded_weights
from tests.runtime.ops.cases import Backend, Case, compare
from tests.runtime.ops.families import Family
from tests.runtime.ops.recurrent.runs import check_on_gpu
from tests.runtime.ops.recurrent.test_lstm import float_sequences
from tests.runtime.ops.recurrent.test_rnn import float_rnns
from tests.runtime.ops.recurrent.test_svdf import float_filters
from tests.runtime.ops.test_halves import TOLERANCE
from tests.sweeps import rarely

OPTIONS = {"backend": "webgpu", "tuning": "none", "cache_dir": "", "cost_aware_partitioning": False}

WINDOW = {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2, "padding": Padding.VALID}


def delegate_on(adapter: str | int | None, **options: object) -> GpuDelegate:
    """Return the delegate on an adapter; if the machine has none, skip the test with the reason."""
    try:
        return load_delegate("gpu", {**OPTIONS, "device": adapter, **options})
    except UnsupportedPrecisionError:
        raise
    except (DelegateError, DeviceError) as error:
        absent(f"no WebGPU adapter of {adapter or 'any kind'}: {error}")


@pytest.fixture(scope="module", params=["Vulkan", "OpenGL"])
def delegate(request: pytest.FixtureRequest) -> GpuDelegate:
    return delegate_on(request.param)


@pytest.fixture(scope="module")
def any_adapter() -> GpuDelegate:
    return delegate_on(None)


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Compare results behind activations that lie in memory as fp16."""
    assert np.linalg.norm(ours - theirs) <= TOLERANCE * np.linalg.norm(theirs)


def check(
    delegate: GpuDelegate,
    cases: tuple[Case, ...],
    kind: WeightType = WeightType.F32,
    compared: Callable[[np.ndarray, np.ndarray], None] = compare,
) -> None:
    """All cases as branches of one model, none on the CPU, each with LiteRT's results.

    `kind`: the type to which weights are rounded in the model that LiteRT runs.
    """
    family = Family(delegate, [(one.model, one.inputs) for one in cases])
    for member, one in enumerate(cases):
        found = family.outputs(member)
        assert found is not None, "an operator stayed on the CPU"
        expected = run_litert(with_rounded_weights(one.model, kind), one.inputs, one.resolver)
        for ours, theirs in zip(found, expected, strict=True):
            try:
                compared(ours, theirs)
            except AssertionError as error:
                raise AssertionError(f"{one.name}: {error}") from error


def test_products_chains_and_softmax_match_litert(delegate: GpuDelegate) -> None:
    check(delegate, FEW)
    settings = delegate.describe()
    assert (settings["backend"], settings["device_class"]) == ("webgpu", "lanes")
    assert settings["platform"] in ("WebGPU via Vulkan", "WebGPU via OpenGL")


@pytest.mark.exhaustive
def test_further_shapes_and_operators_match_litert(delegate: GpuDelegate) -> None:
    check(delegate, MANY)


@pytest.mark.exhaustive
@pytest.mark.parametrize("made", [float_sequences, float_rnns, float_filters])
def test_recurrent_cells_match_litert(delegate: GpuDelegate, made: Callable[[], tuple[Any, Any]]) -> None:
    check_on_gpu(*made(), Backend("webgpu", delegate))


@pytest.mark.slow
def test_candidates_are_timed_on_the_device(delegate: GpuDelegate) -> None:
    """By the option `tuning`: timestamps of the device, or the host's clock."""
    timed = load_delegate("gpu", {**OPTIONS, "device": delegate.describe()["platform"].split()[-1]})
    recording = timed.compile(whole(softmax_model(4, 16))).recording
    elapsed = recording.timer()(recording.entry(0))
    assert 0 < elapsed < 60_000_000_000


def softmax_model(rows: int, channels: int) -> Model:
    build = ModelBuilder()
    x = build.input(rows, channels)
    return build.build(build.op(Op.SOFTMAX, [x], (rows, channels), beta=1.0))


def test_operators_without_a_kernel_of_work_groups_stay_on_the_cpu(any_adapter: GpuDelegate) -> None:
    build = ModelBuilder()
    x = build.input(1, 4, 4, 16)
    pooled = build.op(Op.MAX_POOL_2D, [x], (1, 2, 2, 16), **WINDOW)
    of_one = {"radius": 0, "bias": 1.0, "alpha": 1.0, "beta": 1.0}
    wide = build.op(Op.LOCAL_RESPONSE_NORMALIZATION, [pooled], (1, 2, 2, 16), **of_one)
    model = build.build(build.op(Op.RELU, [wide], (1, 2, 2, 16)))
    facts = facts_of(model)
    reasons = [any_adapter.supports(facts, operator) for operator in facts.subgraph.operators]
    assert reasons[2] is None
    assert reasons[1] is not None
    platform = any_adapter.describe()["platform"]
    assert reasons[1].reason == (
        f"{platform} runs kernels of work-groups alone, "
        "of which none computes LOCAL_RESPONSE_NORMALIZATION of float32 in this form"
    )
    image = values(1, 4, 4, 16, seed=3)
    interpreter = Interpreter(model_content=write_model(model), experimental_delegates=[any_adapter])
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, image)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    (expected,) = run_litert(write_model(model), (image,))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_an_adapter_that_is_not_there_is_one_line_with_those_that_are(any_adapter: GpuDelegate) -> None:
    name = any_adapter.describe()["device"]
    for wanted in ("no such adapter", 99):
        with pytest.raises(DeviceError, match="WebGPU adapter") as raised:
            load_delegate("gpu", {**OPTIONS, "device": wanted})
        text = str(raised.value)
        assert str(wanted) in text
        assert f"0: {name}" in text or name in text
        assert "\n" not in text


@pytest.mark.slow
def test_buffers_beyond_the_limit_of_a_binding_are_bound_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A kilobyte a binding: the product's weights of 6 KiB take seven, and its activations several, too.
    monkeypatch.setattr(adapter, "_window_bytes", lambda _: 1024)
    bound: dict[str, Windows] = {}

    def noted(text: str, kernel: str, windows: Windows) -> Module:
        assert kernel not in bound, "compiled twice"
        bound[kernel] = windows
        return translate(text, kernel, windows)

    monkeypatch.setattr(recording, "translate", noted)
    check(delegate_on(None), (PRODUCT,))
    assert max(one.constants for one in bound.values()) == 7
    assert max(one.arena for one in bound.values()) > 1


def test_a_buffer_beyond_the_limit_of_a_binding_is_one_line(any_adapter: GpuDelegate) -> None:
    limit = any_adapter._backend.capabilities.max_allocation_bytes
    with pytest.raises(DelegateError, match="in one buffer, of which") as raised:
        any_adapter.compile(whole(softmax_model(limit // (4 * 1024) + 1, 1024)))
    assert f"gives {limit / (1 << 20):.1f} MiB" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_more_work_groups_than_a_dimension_may_have_are_one_line(any_adapter: GpuDelegate) -> None:
    backend = any_adapter._backend
    narrow = delegate_on(None)
    narrow._backend = replace(backend, opened=replace(backend.opened, most_groups=1))
    with pytest.raises(
        DelegateError, match=r"needs 2 work-groups in one dimension, and .* gives 1"
    ) as raised:
        narrow.compile(whole(softmax_model(17, 64)))
    assert "\n" not in str(raised.value)


NARROW = {"fp16": WeightType.F16, "bf16": WeightType.BF16}


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("adapter", ["Vulkan", rarely("OpenGL")])
def test_narrow_weights_give_what_litert_computes_with_rounded_ones(adapter: str, precision: str) -> None:
    narrow = delegate_on(adapter, precision=precision)
    check(narrow, FEW, NARROW[precision], close if precision == "fp16" else compare)
    settings = narrow.describe()
    stored = {
        "fp16": "weights and activations are stored in fp16",
        "bf16": "weights alone are rounded to bf16",
    }
    assert settings["arithmetic"] == f"float32; {stored[precision]}"
    assert f"{precision} storage: yes" in settings["narrow_numbers"]


def test_a_table_of_narrow_rows_is_widened_where_no_kernel_of_units_runs() -> None:
    build = ModelBuilder()
    rows = np.int32([3, 0, 1, 1])
    table = build.constant(values(5, 18, seed=1))
    found = build.op(Op.EMBEDDING_LOOKUP, [build.input(4, dtype=np.int32), table], (4, 18))
    model = build.build(build.op(Op.NEG, [found], (4, 18)))
    check(delegate_on(None, precision="fp16"), (Case("embedding", write_model(model), (rows,)),))


def test_products_in_narrow_types_are_refused(any_adapter: GpuDelegate) -> None:
    with pytest.raises(UnsupportedPrecisionError, match=r"no kernel multiplies in it.*; use 'fp32'"):
        delegate_on(None, precision="fp16", require_narrow_products=True)


def test_a_closed_graph_is_closed_for_good_and_another_one_runs(any_adapter: GpuDelegate) -> None:
    for _ in range(3):
        compiled = any_adapter.compile(whole(softmax_model(2, 16)))
        found = np.empty((2, 16), np.float32)
        compiled.invoke([np.zeros((2, 16), np.float32)], [found])
        compiled.close()
        compiled.close()
        np.testing.assert_allclose(found, 1 / 16, rtol=1e-6)


def test_a_lost_device_is_named_and_marked_and_another_delegate_goes_on() -> None:
    """The device is destroyed, which is how WebGPU lets a program lose one."""
    lost = delegate_on(None)
    compiled, found, zeros = lost.compile(whole(softmax_model(2, 16))), *np.zeros((2, 2, 16), np.float32)
    lost._backend.opened.device.destroy()
    with pytest.raises(
        DeviceLostError, match=r"running the partition on .*: the device is lost \("
    ) as raised:
        compiled.invoke([zeros], [found])
    assert "\n" not in str(raised.value)
    for use in (
        lambda: compiled.invoke([zeros], [found]),
        lambda: lost.compile(whole(softmax_model(3, 16))),
    ):
        with pytest.raises(DeviceLostError, match=r"the delegate has lost .* \(running .*load the delegate"):
            use()
    compiled.close()
    again = delegate_on(None)
    again.compile(whole(softmax_model(2, 16))).invoke([zeros], [found])
    np.testing.assert_allclose(found, 1 / 16, rtol=1e-6)


def test_a_device_that_is_lost_while_kernels_are_compiled_is_no_fault_of_the_kernels() -> None:
    lost = delegate_on(None)
    lost._backend.opened.device.destroy()
    with pytest.raises(DeviceLostError, match=r"preparing the partition on .*: the device is lost \("):
        lost.compile(whole(softmax_model(2, 16)))


def test_a_run_in_the_background_ends_with_the_error_of_its_device() -> None:
    """There are no events of WebGPU: a thread of the host waits for the run."""
    with on_gpu(dense(), backend="webgpu", cache_dir="") as model:
        source, target = (TensorBuffer.create_managed(np.float32, SHAPE) for _ in range(2))
        model.run_async([filled(source)], [target])
        np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)
        (delegate,) = model._delegates
        delegate._backend.opened.device.destroy()
        event = model.run_async([source], [target])
        with pytest.raises(DeviceLostError, match="the device is lost"):
            event.wait()


LEFT_OPEN = """
import sys
import numpy as np
from delegate_farm import Interpreter, load_delegate
left = []
for backend in ("vulkan", "opengl", "vulkan", "opencl"):
    delegate = load_delegate("gpu", {"backend": backend, "tuning": "none", "cache_dir": ""})
    interpreter = Interpreter(model_path=sys.argv[1], experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.zeros((2, 16), np.float32))
    interpreter.invoke()
    left.append(interpreter)
print([len(one.delegation.fallbacks) for one in left])
"""


@pytest.mark.slow
def test_a_process_ends_that_has_closed_none_of_its_delegates(tmp_path: Path) -> None:
    for name in ("Vulkan", "OpenGL"):
        delegate_on(name)
    model = tmp_path / "softmax.tflite"
    model.write_bytes(write_model(softmax_model(2, 16)))
    command = [sys.executable, "-c", LEFT_OPEN, str(model)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[0, 0, 0, 0]\n"), done.stderr


MISSING = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "wgpu":
            raise ModuleNotFoundError("No module named 'wgpu'", name="wgpu")
sys.meta_path.insert(0, Absent())
import runtime.delegates.gpu.delegate
assert not {"pycparser", "pcpp", "wgpu"} & set(sys.modules), "imported where they are not asked for"
from delegate_farm import load_delegate
try:
    load_delegate("gpu", {"backend": "webgpu", "cache_dir": ""})
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_the_extra_the_backend_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    cannot = "gpu delegate: the backend webgpu cannot be loaded (No module named 'wgpu'): "
    assert line == f"DelegateError {cannot}{install_command('webgpu')}"
