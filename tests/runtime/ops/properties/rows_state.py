"""Control flow, variables, hash tables, sparse weights, detection: models of several operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flatbuffers import flexbuffers
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.graphs import several
from tests.runtime.models import Builder
from tests.runtime.ops.movement.sparse_matrices import Stored, block_sparse, sparse_constant
from tests.runtime.ops.properties import types as t
from tests.runtime.ops.properties.examples import Example
from tests.runtime.ops.properties.rows import PLAIN, Row, of_terms, within
from tests.runtime.ops.properties.strategies import Operands, shapes

Op = BuiltinOperator
T = TensorType
# Floats, and integers whose sums wrap.
SUMMED = (T.FLOAT32, T.INT32, T.INT64)


def _branch(o: Operands, shape: tuple[int, ...]) -> tuple[Builder, list[int]]:
    """x + constant."""
    b = Builder()
    x, y = b.input(o.dtype, shape), b.tensor(o.dtype, shape)
    b.operator(Op.ADD, [x, b.constant(o.array(*shape, finite=True))], [y])
    return b, [y]


def conditional(draw: DrawFn, o: Operands) -> Example:
    shape = draw(shapes(1, 3, 4))
    b = Builder()
    condition, x, y = b.input(np.bool_, (1,)), b.input(o.dtype, shape), b.tensor(o.dtype, shape)
    b.operator(Op.IF, [condition, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    fed = (np.array([draw(st.booleans())]), o.array(*shape, finite=True))
    return Example(several((b, [y]), _branch(o, shape), _branch(o, shape)), fed)


def case(draw: DrawFn, o: Operands) -> Example:
    """One of several branches; any index that there is none for means the last."""
    shape, count = draw(shapes(1, 3, 4)), draw(st.integers(1, 4))
    b = Builder()
    index, x, y = b.input(np.int32, (1,)), b.input(o.dtype, shape), b.tensor(o.dtype, shape)
    b.operator(Op.STABLEHLO_CASE, [index, x], [y], {"branch_subgraph_indices": tuple(range(1, count + 1))})
    fed = (np.array([draw(st.integers(-2, 6))], np.int32), o.array(*shape, finite=True))
    return Example(several((b, [y]), *(_branch(o, shape) for _ in range(count))), fed)


def composite(draw: DrawFn, o: Operands) -> Example:
    """Its decomposition, between two operators."""
    shape = draw(shapes(1, 3, 4))
    b = Builder()
    x, before, inside, after = (b.input(o.dtype, shape), *(b.tensor(o.dtype, shape) for _ in range(3)))
    options = {"name": "a.composite", "decomposition_subgraph_index": 1, "version": 1}
    b.operator(Op.ADD, [x, b.constant(_whole(o, shape))], [before])
    b.operator(Op.STABLEHLO_COMPOSITE, [before], [inside], options)
    b.operator(Op.ADD, [inside, before], [after])
    return Example(several((b, [after]), _branch(o, shape)), (_whole(o, shape),))


def called_once(draw: DrawFn, o: Operands) -> Example:
    """Build a first invocation that fills a variable, to which each one adds its input."""
    shape, (b, first) = draw(shapes(1, 3, 4)), (Builder(), Builder())
    x, before, after = b.input(o.dtype, shape), b.tensor(o.dtype, shape), b.tensor(o.dtype, shape)
    b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    handle = _handle(b)
    b.operator(Op.READ_VARIABLE, [handle], [before])
    b.operator(Op.ADD, [before, x], [after])
    b.operator(Op.ASSIGN_VARIABLE, [handle, after], [])
    first.operator(Op.ASSIGN_VARIABLE, [_handle(first), first.constant(_whole(o, shape))], [])
    return Example(several((b, [before, after]), (first, [])), (_whole(o, shape),), runs=1)


def loop(draw: DrawFn, o: Operands) -> Example:
    """Build a loop that counts, and adds a constant in every round."""
    shape, limit = draw(shapes(1, 3, 4)), draw(st.integers(0, 6))
    b, condition, body = Builder(), Builder(), Builder()
    given = [b.input(np.int32, (1,)), b.input(o.dtype, shape)]
    made = [b.tensor(np.int32, (1,)), b.tensor(o.dtype, shape)]
    b.operator(Op.WHILE, given, made, {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    counter = condition.input(np.int32, (1,))
    condition.input(o.dtype, shape)
    goes_on = condition.tensor(np.bool_, (1,))
    condition.operator(Op.LESS, [counter, condition.constant(np.array([limit], np.int32))], [goes_on])
    before, x = body.input(np.int32, (1,)), body.input(o.dtype, shape)
    after, y = body.tensor(np.int32, (1,)), body.tensor(o.dtype, shape)
    body.operator(Op.ADD, [before, body.constant(np.array([1], np.int32))], [after])
    body.operator(Op.ADD, [x, body.constant(_whole(o, shape))], [y])
    fed = (np.array([draw(st.integers(-2, 7))], np.int32), _whole(o, shape))
    return Example(several((b, made), (condition, [goes_on]), (body, [after, y])), fed)


def _whole(o: Operands, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(o.draw(st.integers(0, 2**32 - 1)))
    return rng.integers(-100, 100, shape).astype(o.dtype)


def _handle(b: Builder) -> int:
    handle = b.tensor(np.int32, (1,), type=T.RESOURCE)
    b.operator(Op.VAR_HANDLE, [], [handle], {"container": "", "shared_name": "v"})
    return handle


def variable(draw: DrawFn, o: Operands) -> Example:
    """Build a variable that two operators assign; it is read in between and afterwards."""
    shape = draw(shapes(1, 3, 4))
    b = Builder()
    x, z = b.input(o.dtype, shape), b.input(o.dtype, shape)
    first, second = b.tensor(o.dtype, shape), b.tensor(o.dtype, shape)
    handle = _handle(b)
    b.operator(Op.ASSIGN_VARIABLE, [handle, x], [])
    b.operator(Op.READ_VARIABLE, [handle], [first])
    b.operator(Op.ASSIGN_VARIABLE, [handle, z], [])
    b.operator(Op.READ_VARIABLE, [handle], [second])
    return Example(b.write([first, second]), (o.array(*shape), o.array(*shape)))


def hash_table(draw: DrawFn, o: Operands) -> Example:
    """Build a table that is filled once from constants, then queried."""
    words = np.array([f"key {i}".encode() for i in range(draw(st.integers(1, 6)))], object)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = rng.permutation(20)[: len(words)].astype(np.int64)
    keys, values = (words, counts) if o.type is T.STRING else (counts, words)
    asked = keys[rng.integers(0, len(keys), draw(st.integers(1, 6)))]
    absent = np.array([b"absent"], object) if keys is words else np.array([-1], np.int64)
    asked = np.concatenate([asked, absent])
    kinds = [T.STRING if a.dtype == object else T.INT64 for a in (keys, values)]
    options = {"table_id": 3, "key_dtype": kinds[0], "value_dtype": kinds[1]}
    b, first = Builder(), Builder()
    query = b.input(keys.dtype, asked.shape)
    found, size = b.tensor(values.dtype, asked.shape), b.tensor(np.int64, (1,))
    b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    handle, target = (p.tensor(np.int32, (1,), type=T.RESOURCE) for p in (b, first))
    b.operator(Op.HASHTABLE, [], [handle], options)
    default = np.array([b"none"], object) if values is words else np.array([-9], np.int64)
    b.operator(Op.HASHTABLE_FIND, [handle, query, b.constant(default)], [found])
    b.operator(Op.HASHTABLE_SIZE, [handle], [size])
    first.operator(Op.HASHTABLE, [], [target], options)
    first.operator(Op.HASHTABLE_IMPORT, [target, first.constant(keys), first.constant(values)], [])
    return Example(several((b, [found, size]), (first, [])), (asked,))


def _stored(draw: DrawFn) -> Stored:
    block = [draw(st.integers(1, 4)) for _ in range(2)]
    shape = [n * draw(st.integers(1, 5)) for n in block]
    density = draw(st.sampled_from([0.2, 0.6, 1.0]))
    return block_sparse(shape, block, np.float32, density, draw(st.integers(0, 2**32 - 1)), most=9)


def densify(draw: DrawFn, _: Operands) -> Example:
    stored, b = _stored(draw), Builder()
    shape = stored.dense.shape
    x, y, total = b.input(np.float32, shape), b.tensor(np.float32, shape), b.tensor(np.float32)
    b.operator(Op.DENSIFY, [sparse_constant(b, stored)], [y])
    b.operator(Op.ADD, [x, y], [total])
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Example(b.write([total]), (rng.integers(-9, 9, shape).astype(np.float32),))


def sparse_layer(draw: DrawFn, _: Operands) -> Example:
    """Whole numbers, so that the order of a sum does not matter."""
    stored, b = _stored(draw), Builder()
    shape = (draw(st.integers(1, 3)), stored.dense.shape[1])
    x, weights = b.input(np.float32, shape), sparse_constant(b, stored)
    bias, y = b.constant(np.arange(len(stored.dense), dtype=np.float32)), b.tensor(np.float32)
    b.operator(Op.FULLY_CONNECTED, [x, weights, bias], [y], {}, 8)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Example(b.write([y]), (rng.integers(-9, 9, shape).astype(np.float32),))


class Detections:
    """Compares the count, which comes first, and as many slots: LiteRT leaves the others as they were."""

    count = 0

    def __call__(self, ours: np.ndarray, theirs: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
        if theirs.ndim > 1:
            within()(ours[:, : self.count], theirs[:, : self.count], inputs)
            return
        np.testing.assert_array_equal(ours, theirs)
        self.count = int(theirs[0])


def detection(draw: DrawFn, _: Operands) -> Example:
    rng, count, classes = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(1, 30)), 4
    most, each = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    options = {
        "max_detections": most,
        "max_classes_per_detection": each,
        "detections_per_class": draw(st.integers(1, 9)),
        "use_regular_nms": draw(st.booleans()),
        "nms_score_threshold": draw(st.sampled_from([0.0, 0.3, 0.7])),
        "nms_iou_threshold": draw(st.sampled_from([0.2, 0.5, 0.8])),
        "num_classes": classes,
        **dict.fromkeys(("y_scale", "x_scale"), 10.0),
        **dict.fromkeys(("h_scale", "w_scale"), 5.0),
    }
    prior = np.hstack([rng.uniform(0, 1, (count, 2)), rng.uniform(0.1, 0.5, (count, 2))]).astype(np.float32)
    b = Builder()
    inputs = [b.input(np.float32, (1, count, n)) for n in (4, classes + draw(st.integers(0, 1)))]
    slots = most * each
    made = [b.tensor(np.float32, s) for s in ((1, slots, 4), (1, slots), (1, slots), (1,))]
    b.operator(
        Op.CUSTOM,
        [*inputs, b.constant(prior)],
        made,
        custom_code="TFLite_Detection_PostProcess",
        custom_options=bytes(flexbuffers.Dumps(options)),
    )
    scores = rng.uniform(0, 1, b.tensors[inputs[1]].shape).astype(np.float32)
    encoded = rng.normal(0, 3, (1, count, 4)).astype(np.float32)
    return Example(b.write([made[3], *made[:3]]), (encoded, scores), Detections())


EXACT = of_terms(lambda _: 0.0)

ROWS = [
    Row("sums", Op.IF, SUMMED, conditional),
    Row("sums", Op.STABLEHLO_CASE, SUMMED, case, resolver=PLAIN),
    Row("sums", Op.STABLEHLO_COMPOSITE, SUMMED, composite),
    Row("sums", Op.CALL_ONCE, SUMMED, called_once),
    Row("counts", Op.WHILE, SUMMED, loop),
    Row("twice", Op.ASSIGN_VARIABLE, t.FIXED_SIZE, variable, resolver=PLAIN),
    Row("both_ways", Op.HASHTABLE_FIND, (T.STRING, T.INT64), hash_table, resolver=PLAIN),
    Row("blocks", Op.DENSIFY, (T.FLOAT32,), densify),
    Row("blocks", Op.FULLY_CONNECTED, (T.FLOAT32,), sparse_layer, EXACT),
    Row("TFLite_Detection_PostProcess", Op.CUSTOM, (T.FLOAT32,), detection),
]
