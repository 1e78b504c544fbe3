"""Operators whose constants, inputs and options are odd: refused with a reason, or right; never a defect.

Each mutation of a good operator runs on the CPU path and beside the GPU delegate. Both refuse the model, or
both give the same numbers; the report never has a defect of the delegate as a reason.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import FarmRuntimeError, ModelFormatError
from runtime.model.graph import Model, Operator, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from runtime.model.writer import write_model
from tests.runtime.models import TYPES, Arg, Out, const, one_operator

pytestmark = pytest.mark.exhaustive

F32, I32 = np.float32, np.int32
WINDOW = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
DILATED = WINDOW | {"dilation_h_factor": 1, "dilation_w_factor": 1}


def weights(*shape: int) -> Arg:
    return const(np.random.default_rng(4).uniform(-1, 1, shape))


def fed(*shape: int, dtype: Any = F32) -> Arg:
    values = np.random.default_rng(5).uniform(-3, 3, shape)
    return Arg(np.abs(values).astype(dtype) if dtype is I32 else values.astype(dtype))


@dataclass(frozen=True)
class Good:
    """An operator as it should be."""

    opcode: Op
    args: Sequence[Arg]
    options: Mapping[str, Any] = field(default_factory=dict)
    outs: int = 1

    def __str__(self) -> str:
        return self.opcode.name


OPERATORS = [
    Good(Op.CONV_2D, [fed(1, 5, 6, 3), weights(7, 3, 3, 3), weights(7)], DILATED),
    Good(
        Op.DEPTHWISE_CONV_2D,
        [fed(1, 5, 6, 3), weights(1, 3, 3, 6), weights(6)],
        DILATED | {"depth_multiplier": 2},
    ),
    Good(Op.TRANSPOSE_CONV, [const([1, 6, 6, 4], I32), weights(4, 3, 3, 2), fed(1, 3, 3, 2)], {
        "padding": Padding.SAME, "stride_h": 2, "stride_w": 2
    }),
    Good(Op.FULLY_CONNECTED, [fed(2, 5), weights(4, 5), weights(4)]),
    Good(Op.BATCH_MATMUL, [fed(2, 3, 5), weights(2, 5, 4)], {"adj_x": False, "adj_y": False}),
    Good(Op.PRELU, [fed(2, 3, 5), weights(5)]),
    Good(Op.ADD, [fed(2, 3, 5), weights(3, 1)]),
    Good(Op.PAD, [fed(2, 3, 5), const([[0, 1], [2, 0], [1, 1]], I32)]),
    Good(Op.MIRROR_PAD, [fed(4, 3), const([[1, 1], [0, 2]], I32)], {"mode": 0}),
    Good(Op.TRANSPOSE, [fed(2, 3, 5), const([2, 0, 1], I32)]),
    Good(Op.RESHAPE, [fed(2, 3, 5), const([6, -1], I32)]),
    Good(Op.SLICE, [fed(4, 5), const([1, 0], I32), const([2, -1], I32)]),
    Good(
        Op.STRIDED_SLICE, [fed(4, 5), const([1, 0], I32), const([4, 5], I32), const([2, 1], I32)],
        {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0},
    ),
    Good(Op.MEAN, [fed(2, 3, 5), const([1], I32)], {"keep_dims": True}),
    Good(Op.CONCATENATION, [fed(2, 3), weights(2, 3)], {"axis": 1}),
    Good(Op.SPLIT, [const(1, I32), fed(2, 4)], {"num_splits": 2}, outs=2),
    Good(Op.SPLIT_V, [fed(2, 5), const([2, 3], I32), const(1, I32)], {"num_splits": 2}, outs=2),
    Good(Op.TILE, [fed(2, 3), const([2, 1], I32)]),
    Good(Op.GATHER, [fed(4, 5), const([0, 3, 1], I32)], {"axis": 0, "batch_dims": 0}),
    Good(Op.EMBEDDING_LOOKUP, [fed(3, dtype=I32), weights(4, 5)]),
    Good(Op.CUMSUM, [fed(2, 3, 5), const(1, I32)], {"exclusive": False, "reverse": False}),
    Good(Op.REVERSE_V2, [fed(2, 3, 5), const([0, 2], I32)]),
    Good(Op.RESIZE_BILINEAR, [fed(1, 3, 4, 2), const([6, 5], I32)], {"align_corners": False}),
    Good(Op.MAX_POOL_2D, [fed(1, 5, 6, 3)], WINDOW | {"filter_height": 2, "filter_width": 2}),
]  # fmt: skip

ODD_NUMBERS = (-99, -1, 0, 1, 2, 3, 7, 1 << 30)
"""What takes the place of integers in parameters and options."""


def constants(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the constant in other shapes and types, shortened, emptied, and with other integers."""
    dtype = {kind: dtype for dtype, kind in TYPES.items()}[tensor.type]
    assert tensor.data is not None
    values = np.frombuffer(tensor.data, dtype)
    size = values.size
    for shape in sorted({(size,), (1, *tensor.shape), (*tensor.shape, 1), tensor.shape[::-1], (size, 1)}):
        yield replace(tensor, shape=shape)
    for fewer in (values[:1], values[: size // 2], values[:0]):
        yield replace(tensor, shape=(fewer.size,), data=memoryview(fewer.tobytes()))
    for other in (np.float16, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_):
        yield replace(tensor, type=TYPES[np.dtype(other)], data=memoryview(values.astype(other).tobytes()))
    for place in range(size if dtype.kind == "i" else 0):
        for number in ODD_NUMBERS:
            odd = values.copy()
            odd[place] = number
            yield replace(tensor, data=memoryview(odd.tobytes()))


def mutations(model: Model) -> Iterator[Model]:
    (graph,) = model.subgraphs
    (operator,) = graph.operators

    def with_operator(**changed: Any) -> Model:
        return replace(model, subgraphs=(replace(graph, operators=(replace(operator, **changed),)),))

    for tensor in (t for t in graph.tensors if t.is_constant):
        for odd in constants(tensor):
            tensors = (*graph.tensors[: tensor.index], odd, *graph.tensors[tensor.index + 1 :])
            yield replace(model, subgraphs=(replace(graph, tensors=tensors),))
    for place in range(len(operator.inputs)):
        before, after = operator.inputs[:place], operator.inputs[place + 1 :]
        yield with_operator(inputs=before + after)
        yield with_operator(inputs=(*before, -1, *after))
    yield from (with_operator(options=options) for options in odd_options(operator))


def odd_options(operator: Operator) -> Iterator[dict[str, Any]]:
    for name, value in operator.options.items():
        if isinstance(value, int):
            for number in ODD_NUMBERS:
                yield {**operator.options, name: bool(number) if isinstance(value, bool) else number}


def outputs(content: bytes, inputs: Sequence[np.ndarray], *delegates: Any) -> list[np.ndarray] | str:
    """Results, or the kind of the refusal."""
    try:
        interpreter = Interpreter(model_content=content, experimental_delegates=delegates)
        interpreter.allocate_tensors()
        report = interpreter.delegation
        defects = [f.reason for f in report.fallbacks if "defect" in f.reason] if report else []
        assert not defects, defects
        assert report is None or not report.failures, report.failures
        for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(details["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    except FarmRuntimeError as error:
        return "refused" if str(error) else "refused without a word"


@pytest.mark.parametrize("good", OPERATORS, ids=str)
def test_an_odd_operator_is_refused_or_right(good, gpu):
    outs = [Out()] * good.outs
    inputs = [arg.value for arg in good.args if not arg.constant]
    tried = 0
    for model in mutations(read_model(one_operator(good.opcode, good.args, outs, good.options))):
        try:
            content = write_model(model)
            read_model(content)
        except (ModelFormatError, ValueError, struct.error):
            # No file can say this, or the reader refuses it.
            continue
        expected, found = outputs(content, inputs), outputs(content, inputs, gpu.delegate)
        changed = model.subgraphs[0]
        what = f"{changed.operators[0]} {[t.shape for t in changed.tensors]}"
        tried += 1
        if isinstance(expected, str) or isinstance(found, str):
            # The delegate takes constants of fp16 where LiteRT's kernels ask for a DEQUANTIZE before them.
            half = any(t.type.name == "FLOAT16" for t in changed.tensors)
            assert half or (isinstance(expected, str) and expected == found), f"{what}: {expected} {found}"
            continue
        for theirs, ours in zip(expected, found, strict=True):
            assert theirs.shape == ours.shape, what
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4, err_msg=what)
    assert tried > 5
