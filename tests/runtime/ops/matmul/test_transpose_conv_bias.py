"""Convolution2DTransposeBias, against LiteRT, which runs it through XNNPACK."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Builder
from tests.runtime.ops.cases import CPU, Case, check
from tests.runtime.ops.gpu_expectations import TAKES

SAME, VALID = 1, 2


def model(size, taps, stride, padding, channels=(3, 2), batch=1, options: bytes | None = None) -> bytes:
    rng = np.random.default_rng(1)
    b = Builder()
    x = b.input(np.float32, (batch, *size, channels[0]))
    weights = b.constant(rng.standard_normal((channels[1], *taps, channels[0])).astype(np.float32))
    bias = b.constant(rng.standard_normal(channels[1]).astype(np.float32))
    whole = [
        n * s if padding == SAME else (n - 1) * s + k for n, s, k in zip(size, stride, taps, strict=True)
    ]
    y = b.tensor(np.float32, (batch, *whole, channels[1]))
    given = struct.pack("<5i", padding, stride[1], stride[0], 0, 0) if options is None else options
    b.operator(
        BuiltinOperator.CUSTOM,
        [x, weights, bias],
        [y],
        custom_code="Convolution2DTransposeBias",
        custom_options=given,
    )
    return b.write([y])


@pytest.mark.parametrize("padding", [SAME, VALID], ids=["same", "valid"])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 2)], ids=str)
@pytest.mark.parametrize("taps", [(2, 2), (3, 3), (4, 5)], ids=str)
@pytest.mark.parametrize("batch", [1, 2])
def test_matches_litert(padding, stride, taps, batch):
    file = model((4, 5), taps, stride, padding, batch=batch)
    x = np.random.default_rng(2).standard_normal((batch, 4, 5, 3)).astype(np.float32)
    check(Case("", file, (x,), "AUTO"), CPU)


def on_the_gpu(name, size, taps, stride, padding, channels, batch=1) -> Case:
    x = np.random.default_rng(2).standard_normal((batch, *size, channels[0])).astype(np.float32)
    return Case(name, model(size, taps, stride, padding, channels, batch), (x,), "AUTO", TAKES)


GPU_CASES = [
    on_the_gpu("same_2x2", (4, 5), (2, 2), (2, 2), SAME, (3, 2), 4),
    on_the_gpu("same_4x5", (4, 5), (4, 5), (1, 2), SAME, (7, 5)),
    on_the_gpu("valid_3x3", (4, 5), (3, 3), (3, 2), VALID, (5, 255), 2),
    on_the_gpu("no_overlap", (3, 3), (3, 3), (3, 3), SAME, (16, 33)),
    on_the_gpu("one_channel", (6, 4), (3, 2), (2, 1), VALID, (1, 1)),
]


@pytest.mark.parametrize("case", GPU_CASES, ids=str)
def test_every_backend_matches_litert(case, backend):
    check(case, backend)


def test_a_computed_filter_is_left_to_the_cpu(gpu):
    b = Builder()
    tensors = [b.input(np.float32, shape) for shape in ((1, 4, 5, 3), (2, 2, 2, 3), (2,))]
    y = b.tensor(np.float32, (1, 8, 10, 2))
    code = {"custom_code": "Convolution2DTransposeBias", "custom_options": struct.pack("<3i", SAME, 2, 2)}
    b.operator(BuiltinOperator.CUSTOM, tensors, [y], **code)
    interpreter = Interpreter(model_content=b.write([y]), experimental_delegates=[gpu.delegate])
    assert [f.reason for f in interpreter.delegation.fallbacks] == ["the filter must be constant"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (b"\1\0\0\0", "4 bytes of options, 12 are needed"),
        (struct.pack("<3i", 3, 1, 1), "padding 3"),
        (struct.pack("<3i", 1, 0, 1), "strides 1x0"),
    ],
    ids=lambda v: str(v)[:24],
)
def test_options_that_do_not_fit_are_refused(options, text):
    with pytest.raises(ShapeError, match=text):
        Interpreter(model_content=model((4, 5), (2, 2), (1, 1), SAME, options=options)).allocate_tensors()
