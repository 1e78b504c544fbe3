"""`num_threads` shares rows out; integer results do not depend on it, whatever ran before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.cpu import CPU
from runtime.measure.loading import Opener
from runtime.model.schema import BuiltinOperator, Padding
from runtime.ops.support import parallel
from tests.runtime.models import Arg, Out, const, one_operator, per_channel, per_tensor

COUNTS = (1, 2, 3, 4)
_WINDOW = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}


def levels(rng: np.random.Generator, *shape: int, dtype: type = np.int8) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max, shape, dtype=dtype, endpoint=True)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def conv(rng: np.random.Generator, kind: str) -> tuple[bytes, np.ndarray]:
    """CONV_2D of 34x34x24 to 48 channels, 3x3: 12 million multiplications."""
    shape, filters = (1, 34, 34, 24), (48, 3, 3, 24)
    return _windowed(BuiltinOperator.CONV_2D, rng, kind, shape, filters, 0)


def depthwise(rng: np.random.Generator, kind: str) -> tuple[bytes, np.ndarray]:
    """DEPTHWISE_CONV_2D of 80x80x96, 3x3: 5 million multiplications."""
    shape, filters = (2, 80, 80, 96), (1, 3, 3, 96)
    return _windowed(BuiltinOperator.DEPTHWISE_CONV_2D, rng, kind, shape, filters, 3)


def _windowed(
    opcode: BuiltinOperator,
    rng: np.random.Generator,
    kind: str,
    shape: tuple[int, ...],
    filters: tuple[int, ...],
    axis: int,
) -> tuple[bytes, np.ndarray]:
    channels = filters[axis]
    options = dict(_WINDOW)
    if opcode is BuiltinOperator.DEPTHWISE_CONV_2D:
        options["depth_multiplier"] = 1
    scales = per_channel(rng.uniform(0.001, 0.01, channels), axis)
    bias = rng.integers(-9999, 9999, channels)
    if kind == "float32":
        x, args = floats(rng, *shape), [const(floats(rng, *filters)), const(floats(rng, channels))]
        return one_operator(opcode, [Arg(x), *args], [Out()], options), x
    weights = const(levels(rng, *filters), np.int8, scales)
    if kind == "hybrid":
        x = floats(rng, *shape)
        return one_operator(opcode, [Arg(x), weights, const(floats(rng, channels))], [Out()], options), x
    if kind == "int16":
        x = levels(rng, *shape, dtype=np.int16)
        args = [Arg(x, per_tensor(0.001)), weights, const(bias, np.int64)]
        return one_operator(opcode, args, [Out(np.int16, per_tensor(0.01))], options), x
    x = levels(rng, *shape)
    args = [Arg(x, per_tensor(0.05, 3)), weights, const(bias, np.int32)]
    return one_operator(opcode, args, [Out(np.int8, per_tensor(0.2, -7))], options), x


def fully_connected(rng: np.random.Generator, kind: str) -> tuple[bytes, np.ndarray]:
    """FULLY_CONNECTED of 40 rows of 512 to 500: 10 million multiplications, a filter widened in pieces."""
    opcode, shape, filters = BuiltinOperator.FULLY_CONNECTED, (40, 512), (500, 512)
    bias = rng.integers(-9999, 9999, filters[0])
    if kind == "float32":
        x = floats(rng, *shape)
        args = [Arg(x), const(floats(rng, *filters)), const(floats(rng, filters[0]))]
        return one_operator(opcode, args), x
    weights = const(levels(rng, *filters), np.int8, per_tensor(0.004))
    if kind == "hybrid":
        x = floats(rng, *shape)
        return one_operator(opcode, [Arg(x), weights, const(floats(rng, filters[0]))]), x
    if kind == "int16":
        x = levels(rng, *shape, dtype=np.int16)
        args = [Arg(x, per_tensor(0.001)), weights, const(bias, np.int64)]
        return one_operator(opcode, args, [Out(np.int16, per_tensor(0.01))]), x
    x = levels(rng, *shape)
    args = [Arg(x, per_tensor(0.05, 3)), weights, const(bias, np.int32)]
    return one_operator(opcode, args, [Out(np.int8, per_tensor(0.2, -7))]), x


def one_row(rng: np.random.Generator, kind: str) -> tuple[bytes, np.ndarray]:
    """FULLY_CONNECTED of one row, whose output channels are shared out: 4 million multiplications."""
    x = floats(rng, 1, 2048)
    args = [Arg(x), const(floats(rng, 2048, 2048)), const(floats(rng, 2048))]
    return one_operator(BuiltinOperator.FULLY_CONNECTED, args), x


def products(rng: np.random.Generator, kind: str) -> tuple[bytes, np.ndarray]:
    """BATCH_MATMUL, [6, 128, 96] by a constant [96, 128]: 9 million multiplications."""
    x = floats(rng, 6, 128, 96)
    return one_operator(BuiltinOperator.BATCH_MATMUL, [Arg(x), const(floats(rng, 96, 128))]), x


CASES: list[tuple[Callable[..., tuple[bytes, np.ndarray]], str]] = [
    *((make, kind) for make in (conv, depthwise, fully_connected) for kind in ("float32", "hybrid")),
    *((make, kind) for make in (conv, depthwise, fully_connected) for kind in ("int8", "int16")),
    (one_row, "float32"),
    (products, "float32"),
]


@pytest.mark.parametrize(("make", "kind"), CASES, ids=[f"{m.__name__}-{k}" for m, k in CASES])
def test_results_do_not_depend_on_the_number_of_threads(make, kind, monkeypatch):
    lanes: list[int] = []
    counted = parallel.lane_count
    for module in ("conv", "depthwise_conv", "fully_connected", "batch_matmul"):
        monkeypatch.setattr(
            f"runtime.ops.matmul.{module}.lane_count",
            lambda op, work: lanes.append(counted(op, work)) or lanes[-1],
        )
    model, x = make(np.random.default_rng(17), kind)
    loaded = {count: Interpreter(model_content=model, num_threads=count) for count in COUNTS}
    for interpreter in loaded.values():
        interpreter.allocate_tensors()
    assert max(lanes) == max(COUNTS), "the case is too small to be shared out"
    outputs = [_invoked(loaded[count], x) for count in (*COUNTS, 4, 1, 3, 2)]
    first = outputs[0]
    for found in outputs[1:]:
        if kind in ("int8", "int16"):
            assert found.tobytes() == first.tobytes()
        else:
            np.testing.assert_allclose(found, first, rtol=1e-5, atol=1e-4)


def test_the_farms_option_reaches_the_kernels(tmp_path, monkeypatch):
    asked: list[int] = []
    counted = parallel.lane_count
    monkeypatch.setattr(
        "runtime.ops.matmul.conv.lane_count",
        lambda op, work: asked.append(op.num_threads) or counted(op, work),
    )
    path = tmp_path / "model.tflite"
    path.write_bytes(conv(np.random.default_rng(0), "float32")[0])
    for options in ({"threads": 2}, {}):
        Opener.prepare(CPU, options).open(str(path))
    assert asked == [2, 1]


def _invoked(interpreter: Interpreter, x: np.ndarray) -> np.ndarray:
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_an_error_of_one_lane_reaches_the_caller_after_all_have_ended():
    ended: list[int] = []

    def fails() -> None:
        raise ValueError("lane 1")

    run = parallel.together([lambda: ended.append(0), fails, lambda: ended.append(2)])
    with pytest.raises(ValueError, match="lane 1"):
        run()
    assert sorted(ended) == [0, 2]


def test_shares_and_blocks_cover_every_row_once():
    for count, lanes, most in ((10, 3, 2), (1, 4, 8), (0, 2, 1), (7, 7, 1)):
        blocks = [b for lane in parallel.row_blocks(count, lanes, most) for b in lane]
        assert [i for b in blocks for i in range(b.start, b.stop)] == list(range(count))
        assert all(0 < b.stop - b.start <= most for b in blocks)
