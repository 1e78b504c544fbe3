"""EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE and HASHTABLE_LOOKUP against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.graph import BlockQuantization, Quantization
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import CombinerType, TensorType
from tests.oracle import run_litert
from tests.runtime.models import Arg, Builder, Out, const, per_channel, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, random, run_ours
from tests.runtime.ops.every_type import fed

TABLE = np.random.default_rng(1).integers(-128, 127, (6, 8)).astype(np.int8)
NARROW = (TABLE >> 4).astype(np.int8)
ROW_SCALES = per_channel([0.1 * (i + 1) for i in range(6)])


def rows(name, table, out=None, quantization=None, tensor_type=None, version=1) -> Case:
    held = Arg(table, quantization, constant=True, type=tensor_type)
    return case(
        name, Op.EMBEDDING_LOOKUP, [fed([4, 0, 4, 5]), held], [out or Out(table.dtype)], version=version
    )


def combined(combiner) -> Case:
    args = [
        fed([1, 3, 0, 1, 2]),
        fed([[0, 0], [0, 1], [1, 0], [3, 2], [3, 3]]),
        const([5, 4], np.int32),
        fed([2.0, 0.5, 1.0, 3.0, -1.5], np.float32),
        random(4, 2, 3),
    ]
    return case(
        f"combined_{combiner.name}", Op.EMBEDDING_LOOKUP_SPARSE, args, [Out()], {"combiner": combiner}
    )


KEYS = const([-4, 0, 3, 9, 20], np.int32)
WORDS = np.array([b"a", b"", b"see", b"d", b"e"], object)


CASES = [
    rows("float", np.arange(12, dtype=np.float32).reshape(3, 4)[[0, 1, 2, 0, 1, 2]]),
    rows("three_axes", np.arange(24, dtype=np.float32).reshape(6, 2, 2)),
    rows("int8_as_it_is", TABLE, Out(np.int8, per_tensor(0.1)), per_tensor(0.1)),
    rows("int8", TABLE, Out(), per_tensor(0.1), version=3),
    rows("int8_rows", TABLE, Out(), ROW_SCALES, version=3),
    rows("uint8", TABLE.view(np.uint8), Out(), per_tensor(0.1)),
    rows("int4_rows", NARROW, Out(), ROW_SCALES, TensorType.INT4, version=4),
    rows("int2", (TABLE >> 6).astype(np.int8), Out(), per_tensor(0.3), TensorType.INT2, version=5),
    rows("to_float16", TABLE, Out(np.float16), ROW_SCALES, version=5),
    *(combined(c) for c in CombinerType),
    case("hashtable", Op.HASHTABLE_LOOKUP, [fed([3, 4, 20, -4]), KEYS, random(5, 2)], [Out(), Out(np.uint8)]),
    case(
        "hashtable_words",
        Op.HASHTABLE_LOOKUP,
        [fed([3, 4, 20]), KEYS, Arg(WORDS)],
        [Out(object), Out(np.uint8)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_of_tables_match_litert(case):
    check(case, CPU)


LOOKED_UP = [
    rows("float_rows", random(6, 5).value),
    rows("float_images", random(6, 3, 2, 17).value),
    rows("int64_rows", np.arange(42, dtype=np.int64).reshape(6, 7), Out(np.int64)),
    case("computed_table", Op.EMBEDDING_LOOKUP, [fed([1, 1, 0]), random(2, 255)]),
    rows("dense_int8_rows", TABLE, Out(), ROW_SCALES, version=3),
    rows("int8_table", np.tile(TABLE, 2), Out(), per_tensor(0.1), version=3),
    rows("int8_table_by_row", np.tile(TABLE, 2), Out(), ROW_SCALES, version=3),
    rows("int4_table_by_row", np.tile(NARROW, 2), Out(), ROW_SCALES, TensorType.INT4, version=4),
]


@pytest.mark.parametrize("case", LOOKED_UP, ids=str)
def test_rows_of_tables_match_litert_on_every_backend(case, backend):
    check(case, backend)


def test_blockwise_rows_are_dequantised_by_their_blocks():
    scales = np.linspace(0.5, 2, 12).astype(np.float16).reshape(6, 2)
    builder = Builder()
    ids = builder.input(np.int32, (4,))
    held = builder.constant(scales)
    table = builder.constant(
        NARROW,
        Quantization((), (), blocks=BlockQuantization(scales=held, zero_points=-1, block_size=4)),
        type=TensorType.INT4,
    )
    y = builder.tensor(np.float32)
    builder.operator(Op.EMBEDDING_LOOKUP, [ids, table], [y], version=4)
    model = builder.write([y])
    wanted = np.array([5, 0, 3, 3], np.int32)
    (ours,) = run_ours(Case("blocks", model, (wanted,)), CPU)
    expected = (NARROW * np.repeat(scales.astype(np.float32), 4, axis=1))[wanted]
    np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(run_litert(model, [wanted])[0], expected)
