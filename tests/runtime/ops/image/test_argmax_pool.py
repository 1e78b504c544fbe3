"""MaxPoolingWithArgmax2D and MaxUnpooling2D: by definition, and one behind the other against XNNPACK."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Builder
from tests.runtime.ops.cases import CPU, Case, check, run_ours
from tests.runtime.ops.gpu_expectations import TAKES

SAME, VALID = 1, 2
NONE, RELU6 = 0, 3


def options(stride, taps, padding=SAME, activation=NONE) -> bytes:
    return struct.pack("<10i", padding, stride[1], stride[0], taps[1], taps[0], activation, 0, 0, 0, 0)


def custom(b: Builder, name: str, inputs, outputs, given: bytes) -> None:
    b.operator(BuiltinOperator.CUSTOM, inputs, outputs, custom_code=name, custom_options=given)


def values(*shape: int, seed: int = 1) -> np.ndarray:
    """Few different numbers, so that windows have several maxima."""
    return np.random.default_rng(seed).integers(-4, 8, shape).astype(np.float32)


def pool(name, x, stride, taps, padding=SAME, activation=NONE) -> Case:
    b = Builder()
    outs = [b.tensor(np.float32), b.tensor(np.float32)] if b.input(np.float32, x.shape) == 0 else []
    custom(b, "MaxPoolingWithArgmax2D", [0], outs, options(stride, taps, padding, activation))
    return Case(name, b.write(outs), (x,), "AUTO", TAKES)


def pooled(x, stride, taps, padding, activation):
    """Apply the definition, window by window."""
    sizes = [
        -(-n // s) if padding == SAME else (n - k + s) // s
        for n, s, k in zip(x.shape[1:3], stride, taps, strict=True)
    ]
    before = [
        max(0, (o - 1) * s + k - n) // 2 for o, s, k, n in zip(sizes, stride, taps, x.shape[1:3], strict=True)
    ]
    y = np.full((x.shape[0], *sizes, x.shape[3]), -np.finfo(np.float32).max, np.float32)
    places = np.zeros(y.shape, np.float32)
    for n, i, j, c in np.ndindex(y.shape):
        for k, m in np.ndindex(*taps):
            row, column = i * stride[0] - before[0] + k, j * stride[1] - before[1] + m
            inside = 0 <= row < x.shape[1] and 0 <= column < x.shape[2]
            if inside and x[n, row, column, c] > y[n, i, j, c]:
                y[n, i, j, c], places[n, i, j, c] = x[n, row, column, c], k * taps[1] + m
    return np.clip(y, 0, 6) if activation == RELU6 else y, places + np.float32(0.1)


SPECIAL = np.where(values(1, 4, 4, 5) < 0, np.float32(np.nan), np.float32(np.inf))
POOLS = [
    ("same", values(2, 5, 7, 3), (2, 2), (2, 2), SAME, NONE),
    ("valid", values(1, 6, 7, 17), (1, 3), (3, 2), VALID, RELU6),
    ("overlap", values(1, 7, 5, 16), (2, 1), (4, 3), SAME, NONE),
    ("special", SPECIAL, (2, 2), (2, 2), VALID, NONE),
]  # fmt: skip


@pytest.mark.parametrize("given", POOLS, ids=lambda given: given[0])
def test_maxima_and_their_places_are_those_of_the_definition(given, backend):
    name, x, stride, taps, padding, activation = given
    found = run_ours(pool(name, x, stride, taps, padding, activation), backend)
    with np.errstate(invalid="ignore"):
        expected = pooled(x, stride, taps, padding, activation)
    np.testing.assert_array_equal(found[0], np.clip(expected[0], None, np.finfo(np.float32).max))
    np.testing.assert_array_equal(found[1], expected[1])


def there_and_back(name, x, size) -> Case:
    b = Builder()
    source = b.input(np.float32, x.shape)
    small = (x.shape[0], x.shape[1] // size[0], x.shape[2] // size[1], x.shape[3])
    tops, places, y = b.tensor(np.float32, small), b.tensor(np.float32, small), b.tensor(np.float32, x.shape)
    custom(b, "MaxPoolingWithArgmax2D", [source], [tops, places], options(size, size, VALID))
    custom(b, "MaxUnpooling2D", [tops, places], [y], options(size, size, VALID))
    return Case(name, b.write([tops, y]), (x,), "AUTO", TAKES)


ROUNDS = [
    there_and_back("2x2", np.random.default_rng(3).random((1, 6, 8, 5), np.float32) + 1, (2, 2)),
    there_and_back("3x2", np.random.default_rng(4).random((2, 6, 4, 16), np.float32) + 1, (3, 2)),
]


@pytest.mark.parametrize("case", ROUNDS, ids=str)
def test_values_that_are_pooled_and_put_back_match_litert(case, backend):
    check(case, backend)


def unpooling(name, x, indices, stride, taps) -> Case:
    b = Builder()
    inputs = [b.input(np.float32, x.shape), b.input(np.float32, indices.shape)]
    y = b.tensor(np.float32)
    custom(b, "MaxUnpooling2D", inputs, [y], options(stride, taps))
    overlap = any(s < t for s, t in zip(stride, taps, strict=True))
    text = "windows of {}x{}, {}x{} apart, overlap: they have no kernel".format(*taps, *stride)
    return Case(name, b.write([y]), (x, indices), "AUTO", {"MaxUnpooling2D": text} if overlap else TAKES)


def put_back(x, indices, stride, taps):
    y = np.zeros((x.shape[0], x.shape[1] * taps[0], x.shape[2] * taps[1], x.shape[3]), np.float32)
    before = [
        max(0, (n - 1) * s + k - n * k) // 2 for n, s, k in zip(x.shape[1:3], stride, taps, strict=True)
    ]
    for n, i, j, c in np.ndindex(x.shape):
        place = int(np.trunc(indices[n, i, j, c]))
        row = i * stride[0] - before[0] + place // taps[1]
        column = j * stride[1] - before[1] + place % taps[1]
        if 0 <= place < taps[0] * taps[1] and 0 <= row < y.shape[1] and 0 <= column < y.shape[2]:
            y[n, row, column, c] = x[n, i, j, c]
    return y


UNPOOLINGS = [
    ("odd", values(2, 3, 4, 5), (2, 2), (2, 2)),
    ("apart", values(1, 3, 3, 17), (3, 4), (2, 3)),
    ("overlapping", values(1, 3, 4, 3), (1, 2), (2, 3)),
]


@pytest.mark.parametrize("given", UNPOOLINGS, ids=lambda given: given[0])
def test_values_go_where_their_indices_say(given, backend):
    """Indices outside of the window, of which there are some, write nothing."""
    name, x, stride, taps = given
    indices = np.random.default_rng(5).integers(-2, taps[0] * taps[1] + 2, x.shape) + np.float32(0.1)
    indices = np.where(indices < 0, np.float32(-7), indices).astype(np.float32)
    (found,) = run_ours(unpooling(name, x, indices, stride, taps), backend)
    np.testing.assert_array_equal(found, put_back(x, indices, stride, taps))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"", "0 bytes of options, 24 are needed"),
        (options((0, 2), (2, 2)), r"padding 1, strides \(0, 2\) and filter \(2, 2\) of its options"),
        (options((2, 2), (2, 2), padding=7), "padding 7"),
        (options((2, 2), (2, 2), activation=99), "activation 99 of its options"),
    ],
)
@pytest.mark.parametrize("name", ["MaxPoolingWithArgmax2D", "MaxUnpooling2D"])
def test_options_that_are_not_right_are_refused(name, given, text):
    b = Builder()
    inputs = [b.input(np.float32, (1, 4, 4, 2)) for _ in range(1 + (name == "MaxUnpooling2D"))]
    outputs = [b.tensor(np.float32) for _ in range(3 - len(inputs))]
    custom(b, name, inputs, outputs, given)
    with pytest.raises(ShapeError, match=text):
        Interpreter(model_content=b.write(outputs)).allocate_tensors()


def test_indices_of_another_shape_are_refused():
    b = Builder()
    inputs, y = [b.input(np.float32, (1, 4, 4, c)) for c in (2, 3)], b.tensor(np.float32)
    custom(b, "MaxUnpooling2D", inputs, [y], options((2, 2), (2, 2)))
    with pytest.raises(ShapeError, match="indices of"):
        run_ours(Case("", b.write([y]), ()), CPU)
