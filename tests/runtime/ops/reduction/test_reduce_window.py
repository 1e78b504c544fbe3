"""REDUCE_WINDOW and STABLEHLO_REDUCE_WINDOW, whose body is a subgraph, against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import ReduceWindowFunction
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.bodies import numbers, with_body
from tests.runtime.ops.cases import CPU, Case, case, check
from tests.runtime.ops.every_type import fed


def window(name, x, body, dims, strides=None, base=None, dilations=None, padding=None) -> Case:
    rank = x.value.ndim
    options = {
        "window_dimensions": dims,
        "window_strides": strides or [1] * rank,
        "base_dilations": base or [1] * rank,
        "window_dilations": dilations or [1] * rank,
        "padding": padding or [0] * (2 * rank),
        "body_subgraph_index": 1,
    }
    start = Arg(np.array(1, x.value.dtype))
    return with_body(name, Op.STABLEHLO_REDUCE_WINDOW, [x, start], options, body, x.value.dtype)


PLANE = numbers(6, 7)
WINDOWS = [
    *(window(b.name, PLANE, b, [2, 3]) for b in (Op.ADD, Op.MUL, Op.MAXIMUM, Op.MINIMUM, Op.STABLEHLO_ADD)),
    window("strides", PLANE, Op.ADD, [2, 2], strides=[2, 3]),
    window("dilated_window", PLANE, Op.MAXIMUM, [2, 3], dilations=[3, 2]),
    window("dilated_operand", PLANE, Op.ADD, [3, 2], base=[2, 3]),
    window("padded", PLANE, Op.ADD, [3, 3], padding=[1, 1, 0, 2]),
    window("cropped", PLANE, Op.ADD, [2, 2], padding=[-1, 1, 0, -2], base=[2, 1]),
    window("int8_wraps", numbers(6, 7, dtype=np.int8), Op.MUL, [2, 2]),
    window("int32", numbers(3, 4, 5, dtype=np.int32), Op.ADD, [2, 1, 3], strides=[1, 2, 2]),
]


def plain_window(function, dtype=np.float32, dims=(2, 3), strides=(1, 1), dilations=(1, 1)) -> Case:
    lists = [const(v, np.int64) for v in (dims, strides, dilations)]
    args = [numbers(6, 7, dtype=dtype), fed(1, dtype), *lists]
    name = f"{function.name}_{np.dtype(dtype).name}_{dims}_{strides}_{dilations}"
    return case(name, Op.REDUCE_WINDOW, args, [Out(dtype)], {"reduce_function": function})


WINDOWS += [
    plain_window(f, d) for f in list(ReduceWindowFunction)[1:] for d in (np.float32, np.int32, np.uint8)
]
WINDOWS += [
    plain_window(ReduceWindowFunction.ADD, strides=(2, 3)),
    plain_window(ReduceWindowFunction.MAXIMUM, dims=(3, 2), strides=(3, 2), dilations=(2, 3)),
]


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_are_joined_as_in_litert(case):
    check(case, CPU)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (window("body", PLANE, Op.SUB, [2, 2]), "a body of SUB"),
        (window("zero", PLANE, Op.ADD, [2, 2], strides=[0, 1]), "a window of"),
    ],
    ids=lambda v: str(v) if isinstance(v, Case) else "",
)
def test_windows_that_cannot_be_are_refused(broken, text):
    with pytest.raises(ModelError, match=text):
        Interpreter(model_content=broken.model).allocate_tensors()
