"""Convolution2DTransposeBias, against LiteRT, which runs it through XNNPACK."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.oracle import run_litert
from tests.runtime.models import Builder

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
    interpreter = Interpreter(model_content=file)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, x)
    interpreter.invoke()
    (expected,) = run_litert(file, [x], resolver="AUTO")
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


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
