"""Weights rounded to fp16 and bfloat16, where a probe of the device says that it can use them."""

import re
from dataclasses import replace

import numpy as np
import pytest

from delegate_farm import Interpreter
from runtime.delegates.gpu.alternatives import layout_rules
from runtime.delegates.gpu.backends.opencl import precision_child, precision_probe
from runtime.delegates.gpu.backends.opencl.device import list_devices
from runtime.delegates.gpu.backends.opencl.precision_child import run
from runtime.delegates.gpu.backends.opencl.precision_probe import probe_precision
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.graph.rounding import round_weights, rounded
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.keep.cache import open_cache
from runtime.delegates.gpu.layout.memory import Stage
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.gpu.settings.precision import Findings, Trial, gains_by_integers, settled
from runtime.errors import UnsupportedPrecisionError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.delegates.gpu.models import ModelBuilder, run_stages, whole
from tests.runtime.models import Builder

ALL = Findings(dict.fromkeys(Trial, ""))
NONE = Findings(dict.fromkeys(Trial, "3 of 16 numbers are wrong"))
CPU, GPU = (replace(ASSUMED[kind], name="a device") for kind in ("cpu", "gpu"))


def never():
    raise AssertionError("fp32 needs no probe")


@pytest.mark.slow
def test_the_probe_is_right_about_this_device_and_is_remembered(backend, tmp_path):
    cache = open_cache(tmp_path / "cache")
    device = list_devices()[0]
    found = probe_precision(device, backend.capabilities, cache)
    assert set(found.faults) == set(Trial)
    assert found.passed(Trial.FP16_STORAGE)
    assert found.passed(Trial.BF16_STORAGE)
    # PoCL has no half arithmetic, and the compiler's own words say so.
    if backend.capabilities.is_pocl:
        assert "does not compile" in found.faults[Trial.FP16_ARITHMETIC]
    assert (tmp_path / "cache" / "precision").is_dir()
    assert probe_precision(device, backend.capabilities, cache) == found


@pytest.mark.slow
def test_a_trial_that_ends_its_process_has_failed_and_the_others_go_on(backend, monkeypatch):
    """There is no device 99: each process ends before its first answer."""

    class Devices(list):
        def index(self, device):
            return 99

    monkeypatch.setattr(precision_probe, "list_devices", Devices)
    found = probe_precision(list_devices()[0], backend.capabilities, open_cache(None))
    assert found.faults == dict.fromkeys(Trial, "ends its process with exit code 1")


def test_integers_gain_by_products_of_shorts_unless_rows_are_quantised():
    devices = [
        replace(CPU, multiplies_bytes=one, multiplies_shorts=other)
        for one, other in ((True, False), (False, True), (False, False))
    ]
    for quantises_rows, gains in ((False, [True, True, False]), (True, [True, False, False])):
        found = [gains_by_integers(each, quantises_rows=quantises_rows) for each in devices]
        assert found == gains
    assert not gains_by_integers(replace(GPU, multiplies_bytes=True), quantises_rows=False)


def test_what_is_asked_for_is_used_or_refused_with_the_reason():
    for precision in ("fp16", "bf16"):
        assert settled(Options(precision=precision), CPU, lambda: ALL) == precision
        with pytest.raises(UnsupportedPrecisionError, match=r"cannot be used on a device: .*are wrong"):
            settled(Options(precision=precision), CPU, lambda: NONE)
    assert settled(Options(), CPU, never) == "fp32"
    assert settled(Options(precision="fp32", precision_loss_allowed=True), CPU, never) == "fp32"
    assert settled(Options(precision_loss_allowed=True), CPU, lambda: ALL) == "fp16"
    assert settled(Options(precision_loss_allowed=True), CPU, lambda: NONE) == "fp32"


@pytest.mark.parametrize(
    ("device", "precision", "failed", "reason"),
    [
        (CPU, "bf16", Trial.BF16_PACE, "takes 4.1 times as long"),
        (CPU, "bf16", Trial.BF16_PRODUCTS, "3 of 16 numbers are wrong"),
        (CPU, "int8", Trial.INT8_PRODUCTS, "3 of 16 numbers are wrong"),
        (CPU, "fp16", None, "no kernel multiplies in it"),
        (GPU, "int8", Trial.BYTE_DOT_PRODUCTS, "3 of 16 numbers are wrong"),
        (GPU, "bf16", None, "no kernel multiplies in it"),
    ],
)
def test_a_precision_without_products_of_its_own_is_refused_where_they_are_required(
    device, precision, failed, reason
):
    found = Findings(dict.fromkeys(Trial, "") | ({failed: reason} if failed else {}))
    assert settled(Options(precision=precision), device, lambda: found) == precision
    strict = Options(precision=precision, require_narrow_products=True)
    with pytest.raises(UnsupportedPrecisionError, match=rf"{precision}.*{reason} \(a device\).*leave out"):
        settled(strict, device, lambda: found)
    if failed:
        assert settled(strict, device, lambda: ALL) == precision
    assert settled(replace(strict, precision="fp32"), device, never) == "fp32"


def test_pairs_count_as_products_only_where_they_are_right_and_gain_time():
    assert ALL.multiplies_bf16
    for trial in (Trial.BF16_PRODUCTS, Trial.BF16_PACE):
        assert not replace(ALL, faults={**ALL.faults, trial: "3 of 16 numbers are wrong"}).multiplies_bf16


def test_a_pace_is_a_fault_where_pairs_take_as_long_as_what_they_replace(backend, monkeypatch):
    """The bound is moved to either side of whatever this device takes."""
    context = backend.opened.context
    if fault := run(context, Trial.BF16_PRODUCTS):
        pytest.skip(fault)
    monkeypatch.setattr(precision_child, "_MOST_PACE", 1e6)
    assert run(context, Trial.BF16_PACE) == ""
    monkeypatch.setattr(precision_child, "_MOST_PACE", 1e-6)
    assert re.fullmatch(
        r"a pair of products takes \d+\.\d times as long as one of float32, and replaces two",
        run(context, Trial.BF16_PACE),
    )


def test_numbers_are_rounded_to_the_nearest():
    kept = np.float32([1.0, -1.5, 0.0, np.inf, -np.inf, 2.0**-20])
    for kind in (WeightType.F16, WeightType.BF16):
        np.testing.assert_array_equal(rounded(kept, kind).widened(), kept)
        assert np.isnan(rounded(np.float32([np.nan, 1]), kind).widened()[0])
    ties = np.float32([1 + 2.0**-8, 1 + 3 * 2.0**-8, -(1 + 2.0**-8)])
    even = np.float32([1, 1 + 2.0**-6, -1])
    np.testing.assert_array_equal(rounded(ties, WeightType.BF16).widened(), even)


@pytest.mark.parametrize(
    ("kind", "largest"),
    [(WeightType.F16, 65504), (WeightType.BF16, np.uint32(0x7F7F0000).view(np.float32))],
)
@pytest.mark.parametrize("others", [[1], [np.inf], [np.nan, -np.inf]])
def test_what_would_become_infinite_stays_as_it_is(kind, largest, others):
    """The next number behind the last that becomes the largest, be it beside some that are not finite."""
    limit = {WeightType.F16: np.float32(65520), WeightType.BF16: np.uint32(0x7F7F8000).view(np.float32)}[kind]
    below = np.nextafter(limit, np.float32(0))
    for sign in (1, -1):
        assert rounded(np.float32([*others, sign * limit]), kind) is None
        assert rounded(np.float32([*others, sign * below]), kind).widened()[-1] == sign * np.float32(largest)


def network():
    random = np.random.default_rng(4)
    build = Builder()
    x = build.input(np.float32, (1, 8, 8, 32))

    def constant(*shape):
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return build.constant((random.standard_normal(shape) * scale).astype(np.float32))

    window = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
    y, z = build.tensor(np.float32, (1, 8, 8, 64)), build.tensor(np.float32, (1, 8, 8, 64))
    build.operator(Op.CONV_2D, [x, constant(64, 1, 1, 32), constant(64)], [y], window)
    taps = [y, constant(1, 3, 3, 64), constant(64)]
    build.operator(Op.DEPTHWISE_CONV_2D, taps, [z], {**window, "depth_multiplier": 1})
    out = build.tensor(np.float32, (1, 10))
    build.operator(Op.FULLY_CONNECTED, [z, constant(10, 4096), constant(10)], [out])
    return build.write([out])


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Precision → the network's output, and what the delegate says of itself."""
    content, found = network(), {}
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 32)).astype(np.float32)
    folder = str(tmp_path_factory.mktemp("cache"))
    for name in ("fp32", "fp16", "bf16"):
        delegate = GpuDelegate(
            {"precision": name, "tuning": "none", "persistent": "off", "cache_dir": folder}
        )
        interpreter = Interpreter(model_content=content, experimental_delegates=[delegate])
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        output = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        found[name] = output, delegate.describe()
        interpreter.close()
    return found


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_results_stay_within_the_tolerance_in_half_the_memory(precision, outcomes):
    (exact, plain), (found, described) = outcomes["fp32"], outcomes[precision]
    assert 0 < np.linalg.norm(found - exact) < 2e-2 * np.linalg.norm(exact)
    assert described["precision"] == precision
    assert "fp16 storage: yes" in described["narrow_numbers"]
    assert "narrow_numbers" not in plain
    inputs = "and the inputs of products" if "bf16 pace: yes" in described["narrow_numbers"] else "alone"
    rounded = f"weights {inputs if precision == 'bf16' else 'alone'} are rounded to {precision}"
    assert (described["arithmetic"], plain["arithmetic"]) == (f"float32; {rounded}", "float32")
    assert int(described["constant_bytes"]) <= 0.55 * int(plain["constant_bytes"])


def test_pairs_of_bfloat16_give_the_products_of_rounded_factors(backend):
    """Rows, depths and columns that fill no vector, an odd depth, and NaN and infinity among the inputs."""
    if not backend.findings().passed(Trial.BF16_PRODUCTS):
        pytest.skip("the device has no instruction for pairs of bfloat16")
    random = np.random.default_rng(2)
    build, sources, outputs = ModelBuilder(), [], []
    for rows, depth, columns in ((7, 37, 33), (13, 64, 255), (3, 1, 40)):
        x = random.standard_normal((rows, depth)).astype(np.float32)
        x[0, :1], x[1, :1] = np.nan, np.inf
        weights = random.standard_normal((columns, depth)).astype(np.float32)
        bias = random.standard_normal(columns).astype(np.float32)
        operands = [build.input(rows, depth), build.constant(weights), build.constant(bias)]
        build.op(Op.FULLY_CONNECTED, operands, (rows, columns))
        sources.append(x)
        narrow = [rounded(one, WeightType.BF16).widened().astype(np.float64) for one in (x, weights)]
        with np.errstate(invalid="ignore"):
            sums = narrow[0] @ narrow[1].T + bias
        # As LiteRT's kernels with a fused activation, also that of NONE, do.
        outputs.append(np.clip(sums, -np.finfo(np.float32).max, np.finfo(np.float32).max))
    model = build.build(*(operator.outputs[0] for operator in build.operators))
    graph = optimise(round_weights(build_graph(whole(model)), "bf16"), layout_rules())
    context = Context(graph, replace(backend.capabilities, multiplies_bf16=True))
    stages = [Stage(i, family_of(node, graph).lower(node, context)[0]) for i, node in enumerate(graph.nodes)]
    names = [stage.candidate.name for stage in stages]
    assert sum(name.startswith("pairs_") for name in names) == len(sources)
    for found, expected in zip(run_stages(backend, graph, stages, sources), outputs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected[2:]).max())
