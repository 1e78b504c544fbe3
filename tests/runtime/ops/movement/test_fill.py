"""RANGE, BROADCAST_ARGS, BUCKETIZE, BITCAST and quantised borders against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import InvocationError, ShapeError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, levels

PLAIN = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"


def ranged(name, start, limit, delta, dtype, fed=False) -> Case:
    args = [Arg(np.array(v, dtype), constant=not fed) for v in (start, limit, delta)]
    return case(name, Op.RANGE, args, [Out(dtype)])


def buckets(name, values, dtype, boundaries) -> Case:
    return case(
        name, Op.BUCKETIZE, [Arg(np.array(values, dtype))], [Out(np.int32)], {"boundaries": boundaries}
    )


def cast(name, values, dtype) -> Case:
    return case(name, Op.BITCAST, [Arg(values)], [Out(dtype)])


def shapes(left, right, dtype=np.int32) -> Case:
    args = [Arg(np.array(v, dtype)) for v in (left, right)]
    return case(f"args_{left}_{right}", Op.BROADCAST_ARGS, args, [Out(dtype)])


WORDS = np.arange(-12, 12, dtype=np.int32).reshape(2, 3, 4) * 70_000_001

CASES = [
    ranged("up", 2, 11, 3, np.int32),
    ranged("down", 9, -4, -5, np.int64),
    ranged("computed", 1, 9, 2, np.int32, fed=True),
    ranged("tenths", 0.1, 7.3, 0.1, np.float32),
    ranged("thirds_down", 5.0, -1.0, -1 / 3, np.float32, fed=True),
    shapes([3, 1], [2, 3, 4]),
    shapes([5], [1]),
    shapes([7, 1, 5], [1, 4, 5], np.int64),
    shapes([], [2, 2]),
    buckets("float32", [-1, 0.5, 2, 2.5, 9, np.nan, np.inf], np.float32, [0.0, 2.0, 2.5]),
    buckets("float64", [-1, 0.1, 2, 2.5, 9], np.float64, [0.1, 2.0, 2.5]),
    buckets("int32", [-1, 2**24 + 1, 3], np.int32, [0.0, 2.0, 2.0**24]),
    buckets("int64", [-1, 2**40, 3], np.int64, [0.0, 2.0]),
    buckets("no_boundaries", [1, 2], np.float32, []),
    cast("same_width", WORDS, np.float32),
    cast("to_bytes", WORDS, np.uint8),
    cast("from_bytes", WORDS.view(np.uint8).reshape(2, 3, 4, 4), np.int32),
    cast("halves", WORDS, np.int16),
    cast("doubles", np.arange(6, dtype=np.int64).reshape(3, 2), np.float64),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_made_as_litert_does(case):
    check(case, CPU)


Q = per_tensor(0.05, -7)
U = per_tensor(0.02, 130)
BORDERS = [
    case("pad", Op.PAD, [levels(2, 3, quantization=Q), const([[1, 0], [2, 1]], np.int32)], [Out(np.int8, Q)]),
    case(
        "padv2",
        Op.PADV2,
        [levels(2, 3, quantization=Q), const([[1, 0], [2, 1]], np.int32), const(9, np.int8, Q)],
        [Out(np.int8, Q)],
    ),
    case(
        "space_to_batch",
        Op.SPACE_TO_BATCH_ND,
        [
            levels(1, 3, 3, 2, quantization=Q),
            const([2, 2], np.int32),
            const([[0, 1], [1, 0]], np.int32),
        ],
        [Out(np.int8, Q)],
    ),
    case(
        "concatenation_rescaled",
        Op.CONCATENATION,
        [
            Arg(np.arange(256, dtype=np.uint8).reshape(2, 128), per_tensor(0.013, 97)),
            Arg(np.arange(256, dtype=np.uint8).reshape(2, 128), U),
            Arg(np.arange(256, dtype=np.uint8).reshape(2, 128), per_tensor(0.031, 3)),
        ],
        [Out(np.uint8, U)],
        {"axis": 1},
    ),
    case(
        "concatenation_int16",
        Op.CONCATENATION,
        [Arg(np.arange(9, dtype=np.int16).reshape(3, 3), per_tensor(s)) for s in (0.1, 0.2)],
        [Out(np.int16, per_tensor(0.1))],
        {"axis": 0},
    ),
]


@pytest.mark.parametrize("case", BORDERS, ids=str)
def test_quantised_as_litert_does(case):
    check(case, CPU)


REFUSED = [
    ("zero_step", Op.RANGE, [const(v, np.int32) for v in (0, 3, 0)], {}, "in steps of 0"),
    ("wrong_way", Op.RANGE, [const(v, np.int32) for v in (0, 3, -1)], {}, "do not lead"),
    ("broadcast", Op.BROADCAST_TO, [levels(3), const([2, 2], np.int32)], {}, "do not broadcast"),
    ("multiples", Op.TILE, [levels(3), const([1, 2], np.int32)], {}, "multiples"),
    ("mirror", Op.MIRROR_PAD, [levels(3), const([[3, 0]], np.int32)], {"mode": 0}, "mirror more"),
    ("blocks", Op.SPACE_TO_DEPTH, [levels(1, 3, 4, 1)], {"block_size": 2}, "no blocks of 2"),
    ("bomb", Op.FILL, [const([1 << 20] * 4, np.int64), const(1, np.int8)], {}, "too large"),
    ("diagonal", Op.MATRIX_SET_DIAG, [levels(2, 3), levels(3)], {}, "a diagonal of"),
    ("k", Op.TOPK_V2, [levels(3), const(4, np.int32)], {}, "the first"),
    ("bits", Op.BITCAST, [levels(3)], {}, "does not fill"),
]


@pytest.mark.parametrize(
    ("opcode", "args", "options", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_what_does_not_fit_is_refused(opcode, args, options, text):
    outs = [Out(np.float32 if opcode is Op.BITCAST else args[-1].value.dtype)] * (1 + (opcode is Op.TOPK_V2))
    model = one_operator(opcode, args, outs, options)
    with pytest.raises(ShapeError, match=text):
        Interpreter(model_content=model).allocate_tensors()


def fed(*values: int) -> Arg:
    return Arg(np.array(values, np.int32))


LATE = [
    ("gather_nd", Op.GATHER_ND, [levels(3, 2), Arg(np.array([[3]], np.int32))], "an index is outside"),
    (
        "scatter_nd",
        Op.SCATTER_ND,
        [Arg(np.array([[-1]], np.int32)), levels(1), const([4], np.int32)],
        "outside",
    ),
    ("slice", Op.SLICE, [levels(4), fed(3), const([2], np.int32)], "leave shape"),
    ("args", Op.BROADCAST_ARGS, [fed(2), fed(3)], "do not broadcast"),
    ("segment", Op.UNSORTED_SEGMENT_SUM, [levels(2), fed(0, 2), const(2, np.int32)], "segment 2"),
]


@pytest.mark.parametrize(("opcode", "args", "text"), [r[1:] for r in LATE], ids=[r[0] for r in LATE])
def test_a_wrong_value_at_run_time_is_an_error(opcode, args, text):
    dtype = args[0].value.dtype if opcode is not Op.SCATTER_ND else np.int8
    interpreter = Interpreter(model_content=one_operator(opcode, args, [Out(dtype)]))
    interpreter.allocate_tensors()
    fed = [a for a in args if not a.constant]
    for details, arg in zip(interpreter.get_input_details(), fed, strict=True):
        interpreter.set_tensor(details["index"], arg.value)
    with pytest.raises(InvocationError, match=text):
        interpreter.invoke()
