"""The matmul family on quantised activations: bit for bit LiteRT's reference kernels.

Every operator x activations (int8, uint8, int16 with 64-bit or 32-bit bias) x filters (int8, uint8, int4; one
scale, or one per channel) x options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from runtime.model.graph import Quantization
from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, const, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check
from tests.runtime.ops.matmul.test_conv import N1, NONE, RELU, RELU6, SAME, VALID, options


@dataclass(frozen=True)
class Kind:
    """Types of activations, filter and bias. `bias` None: the operator has none."""

    name: str
    data: Any
    filter: Any = np.int8
    bias: Any = np.int32
    narrow: bool = False
    channels: bool = True

    def zero(self, rng: np.random.Generator) -> int:
        bounds = np.iinfo(self.data)
        return 0 if self.data is np.int16 else int(rng.integers(bounds.min // 2, bounds.max // 2))


KINDS = (
    Kind("int8", np.int8),
    Kind("int8_per_tensor", np.int8, channels=False),
    Kind("int8_no_bias", np.int8, bias=None),
    Kind("uint8", np.uint8, np.uint8, channels=False),
    Kind("int16", np.int16, bias=np.int64),
    Kind("int16_bias32", np.int16, bias=np.int32),
    Kind("int16_no_bias", np.int16, bias=None),
    Kind("int4", np.int8, narrow=True),
)
VERSIONS = {"int16": 4, "int16_no_bias": 4, "int16_bias32": 8, "int4": 7}


def operands(
    kind: Kind, x: tuple[int, ...], w: tuple[int, ...], axis: int, depth: int, seed: int
) -> tuple[Arg, Arg, Arg | None, Out]:
    """Activations, filter, bias and the output's form; results lie inside and outside its range."""
    rng = np.random.default_rng(seed)
    bounds = np.iinfo(kind.data)
    in_scale = 0.001 if kind.data is np.int16 else 0.05
    data = Arg(
        rng.integers(bounds.min, bounds.max, x, endpoint=True).astype(kind.data),
        per_tensor(in_scale, kind.zero(rng)),
    )
    low, high = (0, 255) if kind.filter is np.uint8 else (-7, 7) if kind.narrow else (-127, 127)
    channels = w[axis]
    scales = rng.uniform(0.002, 0.02, channels if kind.channels else 1).astype(np.float32)
    zeros = (137,) if kind.filter is np.uint8 else (0,) * len(scales)
    weights = Arg(
        rng.integers(low, high, w, endpoint=True).astype(kind.filter),
        Quantization(tuple(map(float, scales)), zeros, axis if kind.channels else 0),
        constant=True,
        type=TensorType.INT4 if kind.narrow else None,
    )
    reach = float(bounds.max) / 2 * in_scale * (high - low) / 4 * 0.01 * np.sqrt(depth)
    bias = None
    if kind.bias is not None:
        values = rng.integers(-1, 1, channels, endpoint=True) * reach / in_scale / scales / 4
        products = tuple(float(np.float32(in_scale) * s) for s in scales)
        bias = Arg(values.astype(kind.bias), Quantization(products, (0,) * len(products)), constant=True)
    out = Out(kind.data, per_tensor(reach / float(bounds.max) * 1.5, kind.zero(rng)))
    return data, weights, bias, out


def present(*args: Arg | None) -> list[Arg]:
    """Return the operands that are present: a bias that is left out has no place in the list of inputs."""
    return [arg for arg in args if arg is not None]


def convolutions() -> Iterator[Case]:
    forms: Mapping[str, Any] = {
        "same": ((2, 7, 8, 5), (6, 3, 3, 5), options()),
        "pointwise_relu6": ((1, 6, 5, 17), (9, 1, 1, 17), options(activation=RELU6)),
        "valid_stride2_relu": ((1, 9, 8, 4), (5, 3, 2, 4), options(VALID, (2, 2), activation=RELU)),
        "dilated_n1": ((1, 12, 9, 3), (4, 3, 3, 3), options(dilation=(2, 3), activation=N1)),
        "grouped": ((2, 6, 7, 8), (12, 3, 3, 2), options()),
        "deep": ((1, 4, 4, 200), (3, 3, 3, 200), options()),
        "panels": ((1, 5, 7, 21), (272, 1, 1, 21), options()),
    }
    for kind in KINDS:
        for form, (x, w, given) in forms.items():
            if kind.bias is None or (form == "grouped" and kind.name in ("uint8", "int4")):
                continue
            data, weights, bias, out = operands(kind, x, w, 0, int(np.prod(w[1:])), seed=len(form))
            chosen = given | bias_type(kind)
            yield case(
                f"conv_{kind.name}_{form}",
                BuiltinOperator.CONV_2D,
                present(data, weights, bias),
                [out],
                chosen,
                VERSIONS.get(kind.name, 3),
            )


def bias_type(kind: Kind) -> dict[str, Any]:
    """Return the option by which a file sets its bias's type, so that the kernels know how wide to add."""
    wide = kind.data is np.int16 and kind.bias is not np.int32
    return {"quantized_bias_type": TensorType.INT64 if wide else TensorType.INT32}


def depthwise() -> Iterator[Case]:
    forms: Mapping[str, Any] = {
        "same": ((2, 7, 8, 5), (1, 3, 3, 5), options()),
        "multiplier_valid_relu6": ((1, 7, 8, 3), (1, 3, 3, 6), options(VALID, activation=RELU6)),
        "stride2": ((1, 9, 8, 4), (1, 3, 3, 4), options(stride=(2, 2))),
        "dilated_relu": ((1, 12, 9, 4), (1, 3, 3, 4), options(dilation=(2, 3), activation=RELU)),
        "many_taps": ((1, 30, 3, 2), (1, 24, 3, 2), options()),
        "wide": ((1, 12, 10, 96), (1, 3, 3, 96), options(stride=(2, 2))),
    }
    for kind in KINDS:
        if kind.name == "int16_bias32":
            continue
        for form, (x, w, given) in forms.items():
            data, weights, bias, out = operands(kind, x, w, 3, w[1] * w[2], seed=len(form))
            chosen = given | {"depth_multiplier": w[3] // x[3]}
            yield case(
                f"depthwise_{kind.name}_{form}",
                BuiltinOperator.DEPTHWISE_CONV_2D,
                present(data, weights, bias),
                [out],
                chosen,
                {"int16": 5, "int16_no_bias": 5, "int4": 6}.get(kind.name, 3),
            )


def layers() -> Iterator[Case]:
    forms: Mapping[str, Any] = {
        "vector": ((1, 33), (7, 33), NONE),
        "batch_relu": ((5, 64), (9, 64), RELU),
        "deep_relu6": ((2, 3000), (4, 3000), RELU6),
    }
    for kind in KINDS:
        for form, (x, w, activation) in forms.items():
            data, weights, bias, out = operands(kind, x, w, 0, w[1], seed=len(form))
            chosen = {"fused_activation_function": activation} | bias_type(kind)
            yield case(
                f"dense_{kind.name}_{form}",
                BuiltinOperator.FULLY_CONNECTED,
                present(data, weights, bias),
                [out],
                chosen,
                {"int16": 7, "int16_no_bias": 7, "int16_bias32": 11, "int4": 8}.get(kind.name, 4),
            )


def transposed() -> Iterator[Case]:
    forms: Mapping[str, Any] = {
        "same_stride2": ((2, 8, 6, 4), (4, 3, 3, 5), (2, 4, 3, 5), SAME, 2, NONE),
        "valid": ((1, 7, 8, 3), (3, 4, 3, 6), (1, 4, 6, 6), VALID, 1, NONE),
        "relu6": ((1, 8, 8, 3), (3, 2, 2, 6), (1, 4, 4, 6), SAME, 2, RELU6),
    }
    for kind in KINDS:
        for form, (y, w, x, padding, stride, activation) in forms.items():
            if kind.narrow:
                continue
            data, weights, bias, out = operands(kind, x, w, 0, w[3] * w[1] * w[2] // 2, seed=len(form))
            chosen = {"padding": padding, "stride_h": stride, "stride_w": stride} | bias_type(kind)
            yield case(
                f"transpose_{kind.name}_{form}",
                BuiltinOperator.TRANSPOSE_CONV,
                present(const(y, np.int32), weights, data, bias),
                [out],
                chosen | {"fused_activation_function": activation},
                5 if kind.name == "int16_bias32" else 4,
            )


def computed_weights() -> Iterator[Case]:
    """Yield cases whose filters come from outside at run time."""
    data, weights, bias, out = operands(KINDS[1], (3, 20), (6, 20), 0, 20, seed=2)
    late = Arg(weights.value, weights.quantization)
    chosen = {"fused_activation_function": NONE}
    yield case("dense_late", BuiltinOperator.FULLY_CONNECTED, [data, late, bias], [out], chosen, 4)


CASES = [
    *convolutions(),
    *depthwise(),
    *layers(),
    *transposed(),
    *computed_weights(),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_levels_are_those_of_the_reference_kernels(case):
    check(case, CPU)
