"""Precision int8: operators on quantised tensors in integers, bit for bit as LiteRT's reference kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.layout.source import Source, assemble
from runtime.delegates.gpu.settings.precision import Findings, Trial
from runtime.delegates.gpu.start import preparing
from runtime.errors import DeviceError
from runtime.model.graph import Quantization
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, Padding
from tests.needs import absent
from tests.oracle import run_litert
from tests.runtime.models import Builder, per_tensor
from tests.runtime.ops import test_matmul_levels
from tests.runtime.ops.cases import Case, compare
from tests.runtime.ops.elementwise import test_arithmetic, test_level_functions, test_quantize, test_select
from tests.runtime.ops.families import Family
from tests.runtime.ops.image import test_pool, test_resize
from tests.runtime.ops.matmul import (
    test_batch_matmul,
    test_conv,
    test_depthwise_conv,
    test_fully_connected,
)
from tests.runtime.ops.movement import test_concatenation, test_pad, test_transpose
from tests.runtime.ops.reduction import test_arg_extreme, test_reduce, test_softmax
from tests.runtime.ops.support import test_levels
from tests.sweeps import rarely

MODULES = (
    test_arg_extreme, test_arithmetic, test_batch_matmul, test_concatenation, test_conv, test_depthwise_conv,
    test_fully_connected, test_level_functions, test_levels, test_pad, test_pool, test_quantize, test_reduce,
    test_resize, test_select, test_softmax, test_transpose,
)  # fmt: skip

WRONG = "3 of 16 numbers are wrong"

LEFT = {
    "SUM_int8": "tensor 0 't0' is int8, where SUM takes float32 or int32 or int64 or bool",
    "concatenation_int16": "input and output have other scales, between which no kernel of integers moves",
    "concatenation_rescaled": "input and output have other scales, between which no kernel of integers moves",
    "dequantize_channels": "tensor 0 is int8, but has not one positive scale for all of its elements",
    "max_int8": "tensor 0 't0' is int8, where REDUCE_MAX takes float32 or int32 or int64 or bool",
}
"""Cases on levels of 8 bits that stay on the CPU, and the reasons."""

NO_KERNEL_OF_INT16 = re.compile(
    r"tensor 0 't0' is int16, where (BATCH_MATMUL|EXP|LOG|LOGISTIC|SOFTMAX|TANH) takes float32 or int8"
    r"( or uint8)?"
)
"""The reason of a case of int16 whose function the delegate has for levels of 8 bits only."""


def quantised(modules: Iterable[Any]) -> list[Case]:
    """Return the modules' cases whose inputs are levels."""
    found = {}
    for module in modules:
        lists = (content for content in vars(module).values() if isinstance(content, (list, tuple)))
        for case in (each for content in lists for each in content if isinstance(each, Case)):
            if any(value.dtype in (np.int8, np.uint8, np.int16) for value in case.inputs):
                found[id(case)] = case
    return list(found.values())


BYTES = [each for each in test_matmul_levels.CASES if re.match("(conv|depthwise|dense)_uint8", str(each))]
"""Products of uint8, whose filters have a zero point."""

CASES = [*quantised(MODULES), *BYTES]
PRODUCTS = [*quantised((test_batch_matmul, test_conv, test_fully_connected, test_depthwise_conv)), *BYTES]


def opened(temporary: pytest.TempPathFactory, precision: str | None = "int8", **more: str) -> GpuDelegate:
    folder = temporary.getbasetemp() / "opencl-cache"
    options = {"tuning": "none", "persistent": "off", "cost_aware_partitioning": False}
    chosen = {} if precision is None else {"precision": precision}
    try:
        return load_delegate("gpu", {**options, **chosen, **more, "cache_dir": str(folder)})
    except DeviceError as error:
        absent(f"no OpenCL device: {error}")


def opened_for_bytes(temporary: pytest.TempPathFactory, **more: str) -> GpuDelegate:
    """Open the delegate with the precision that its probe chooses, on a device that multiplies bytes."""
    delegate = opened(temporary, precision=None, **more)
    if fault := delegate._backend.findings().faults.get(Trial.INT8_PRODUCTS):
        pytest.skip(f"the device does not multiply bytes: {fault}")
    return delegate


def left(case: Case, delegate: GpuDelegate) -> str:
    """Why the delegate leaves the model to the CPU path, "" where it takes it."""
    interpreter = Interpreter(model_content=case.model, experimental_delegates=[delegate])
    assert interpreter.delegation is not None
    return "; ".join(f.reason for f in interpreter.delegation.fallbacks)


def check_together(cases: list[Case], delegate: GpuDelegate) -> None:
    """All of them as one model, whose kernels are compiled at once."""
    family = Family(delegate, [(case.model, case.inputs) for case in cases])
    for place, case in enumerate(cases):
        found = family.outputs(place)
        assert found is not None, "not taken whole"
        for ours, theirs in zip(found, run_litert(case.model, case.inputs, case.resolver), strict=True):
            assert ours.dtype == theirs.dtype
            compare(ours, theirs)


def test_what_has_no_integer_kernel_stays_on_the_cpu_for_a_reason(tmp_path_factory):
    delegate = opened(tmp_path_factory)
    assert delegate.describe()["integer_path"] == "yes"
    reasons = {case.name: reason for case in CASES if (reason := left(case, delegate))}
    wide = [name for name, reason in reasons.items() if NO_KERNEL_OF_INT16.fullmatch(reason)]
    assert wide
    assert {name: reason for name, reason in reasons.items() if name not in wide} == LEFT


FEW = [
    case for case in CASES if str(case) in ("int8_same_3x3", "add_int8_every_pair", "int8_0", "average_int8")
]
"""Cases with a product, an operator of two operands, a row's function and a window."""


@pytest.mark.parametrize("cases", [FEW, rarely(CASES)], ids=["few", "all"])
def test_operators_on_levels_have_the_bits_of_litert(tmp_path_factory, cases):
    delegate = opened(tmp_path_factory)
    taken = [case for case in cases if not left(case, delegate)]
    narrow = [case for case in cases if all(value.dtype != np.int16 for value in case.inputs)]
    assert len(taken) > len(narrow) - len(LEFT)
    check_together(taken, delegate)


@pytest.mark.parametrize(
    "cases", [[case for case in PRODUCTS if case in FEW], rarely(PRODUCTS)], ids=["few", "all"]
)
def test_products_without_the_instruction_have_the_bits_of_litert(tmp_path_factory, monkeypatch, cases):
    monkeypatch.setattr(GpuDelegate, "_probe", lambda self: Findings())
    delegate = opened(tmp_path_factory)
    check_together([case for case in cases if not left(case, delegate)], delegate)


@pytest.mark.parametrize(
    ("fault", "of_shorts", "path"),
    [
        ("", WRONG, "yes"),
        (WRONG, "", "yes"),
        (WRONG, WRONG, f"no: int8 products: {WRONG}"),
    ],
)
def test_without_a_precision_the_probe_decides(tmp_path_factory, monkeypatch, fault, of_shorts, path):
    findings = Findings({Trial.INT8_PRODUCTS: fault, Trial.INT16_PRODUCTS: of_shorts})

    def probed(delegate: GpuDelegate) -> Findings:
        delegate._findings = findings
        return findings

    monkeypatch.setattr(GpuDelegate, "_probe", probed)
    delegate = opened(tmp_path_factory, precision=None) if fault else opened_for_bytes(tmp_path_factory)
    case = next(case for case in PRODUCTS if str(case) == "int8_of_one_channel")
    interpreter = Interpreter(model_content=case.model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert delegate.describe()["integer_path"] == path


@pytest.mark.slow
def test_work_groups_of_two_threads_share_no_local_memory(tmp_path_factory):
    """Products by a function too large for the compiler to make it a part of its kernel by itself; the last
    group's tile has zeros, with which another one's sums would be too low.
    """
    (case,) = (each for each in CASES if str(each) == "int8_ties")
    delegate = opened(tmp_path_factory, device_class="gpu", threads="2")
    interpreter = Interpreter(model_content=case.model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    (given,), (found,) = interpreter.get_input_details(), interpreter.get_output_details()
    (expected,) = run_litert(case.model, case.inputs, case.resolver)
    # One run in ten was wrong where threads shared it.
    for _ in range(200):
        interpreter.set_tensor(given["index"], case.inputs[0])
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(found["index"]), expected)


IN_SCALE, OUT_SCALE = 0.02, 0.5
WINDOW = {
    "padding": Padding.SAME, "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1,
    "fused_activation_function": ActivationFunctionType.NONE,
}  # fmt: skip


def layer(
    kind: BuiltinOperator, image: tuple[int, ...], filters: tuple[int, ...], axis: int, dtype: type = np.int8
) -> bytes:
    """Build a layer with the scales that XNNPACK asks for, with outputs whose roundings differ."""
    random, builder, middle = np.random.default_rng(sum(filters)), Builder(), 128 if dtype is np.uint8 else 0
    scales = random.uniform(0.001, 0.01, 1 if middle else filters[axis]).astype(np.float32).tolist()
    x = builder.input(dtype, image, per_tensor(IN_SCALE, 3 + middle))
    w = builder.constant(
        (random.integers(-127, 127, filters) + middle).astype(dtype),
        Quantization(tuple(scales), (middle and middle + 9,) * len(scales), 0 if middle else axis),
    )
    of_bias = Quantization(tuple(IN_SCALE * scale for scale in scales), (0,) * len(scales))
    b = builder.constant(random.integers(-1000, 1000, filters[axis]).astype(np.int32), of_bias)
    y = builder.tensor(dtype, (*image[:-1], filters[axis]), quantization=per_tensor(OUT_SCALE, middle - 4))
    is_dense = kind is BuiltinOperator.FULLY_CONNECTED
    options = {"fused_activation_function": ActivationFunctionType.NONE} if is_dense else WINDOW
    more = {"depth_multiplier": 1} if kind is BuiltinOperator.DEPTHWISE_CONV_2D else {}
    builder.operator(kind, [x, w, b], [y], options | more, 5 if is_dense else 3)
    return builder.write([y])


def test_products_can_have_the_bits_of_xnnpack(tmp_path_factory):
    models = [
        layer(BuiltinOperator.CONV_2D, (1, 14, 14, 96), (576, 1, 1, 96), 0),
        layer(BuiltinOperator.DEPTHWISE_CONV_2D, (1, 28, 28, 192), (1, 3, 3, 192), 3),
        layer(BuiltinOperator.FULLY_CONNECTED, (64, 256), (1000, 256), 0),
        layer(BuiltinOperator.CONV_2D, (1, 14, 14, 96), (72, 1, 1, 96), 0, np.uint8),
        layer(BuiltinOperator.DEPTHWISE_CONV_2D, (1, 28, 28, 96), (1, 3, 3, 96), 3, np.uint8),
    ]
    shapes = [(1, 14, 14, 96), (1, 28, 28, 192), (64, 256), (1, 14, 14, 96), (1, 28, 28, 96)]
    bytes_ = [np.random.default_rng(1).integers(-128, 127, shape).astype(np.int8) for shape in shapes]
    given = [x if place < 3 else x.view(np.uint8) for place, x in enumerate(bytes_)]
    delegate = opened(tmp_path_factory, rounding="xnnpack")
    family = Family(delegate, [(model, (x,)) for model, x in zip(models, given, strict=True)])
    for place, (model, x) in enumerate(zip(models, given, strict=True)):
        (found,) = family.outputs(place) or ()
        np.testing.assert_array_equal(found, run_litert(model, [x], "BUILTIN")[0])
        # The reference rounds a dense layer's sums once, too; no sum here is its tie.
        is_dense = x.ndim == 2
        assert is_dense or (found != run_litert(model, [x])[0]).any()


@pytest.mark.parametrize(
    ("modules", "more"),
    [
        ((test_fully_connected,), {}),
        rarely((test_conv, test_fully_connected), {}),
        rarely((test_conv, test_fully_connected), {"rounding": "xnnpack"}),
    ],
    ids=["few", "reference", "xnnpack"],
)
def test_products_in_work_groups_have_the_bits_of_those_without(tmp_path_factory, monkeypatch, modules, more):
    """Compare with kernels that are compared with LiteRT above: odd windows, depths and outputs, sums."""
    names: list[str] = []

    def noted(*given: Any) -> Source:
        source = assemble(*given)
        names.extend(source.names.values())
        return source

    monkeypatch.setattr(preparing, "assemble", noted)
    delegates = [opened(tmp_path_factory, device_class=one, **more) for one in ("gpu", "cpu")]
    cases = [case for case in quantised(modules) if not left(case, delegates[0])]
    ours, others = (Family(one, [(case.model, case.inputs) for case in cases]) for one in delegates)
    for place, case in enumerate(cases):
        found_here, expected_here = ours.outputs(place), others.outputs(place)
        assert found_here is not None, f"{case} stayed on the CPU"
        assert expected_here is not None, f"{case} stayed on the CPU"
        for found, expected in zip(found_here, expected_here, strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=str(case))
    assert sum("i8_groups_integer_gemm_product" in name for name in names) >= 1
