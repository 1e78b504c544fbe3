"""Composites of language models, which the delegate takes whole by their decompositions, against LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import call_in_litert
from tests.runtime import scripts
from tests.runtime.graphs import several
from tests.runtime.models import Builder
from tests.runtime.ops.cases import compare

SEQUENCE, HEADS, WIDTH = 7, 2, 20
"""Sizes of the attention: none is a multiple of a vector's 16."""


class Body(Builder):
    """A decomposition; each call is one operator, whose result it returns."""

    def op(self, opcode: Op, inputs: Sequence[int], shape: Sequence[int], **options: object) -> int:
        made = self.tensor(np.float32, shape)
        self.operator(opcode, inputs, [made], options)
        return made

    def numbers(self, *values: int) -> int:
        return self.constant(np.array(values, np.int32))


def rms_norm(b: Body) -> int:
    """x / sqrt(mean(x²) + ε) * weight."""
    shape = (1, SEQUENCE, WIDTH)
    x, weight = b.input(np.float32, shape), b.input(np.float32, (WIDTH,))
    squares = b.op(Op.MUL, [x, x], shape)
    mean = b.op(Op.MEAN, [squares, b.numbers(2)], (1, SEQUENCE, 1), keep_dims=True)
    shifted = b.op(Op.ADD, [mean, b.constant(np.float32(1e-6))], (1, SEQUENCE, 1))
    scale = b.op(Op.RSQRT, [shifted], (1, SEQUENCE, 1))
    return b.op(Op.MUL, [b.op(Op.MUL, [x, scale], shape), weight], shape)


def attention(b: Body) -> int:
    """softmax(q kᵀ / √n + mask) v."""
    shape, square = (1, HEADS, SEQUENCE, WIDTH), (1, HEADS, SEQUENCE, SEQUENCE)
    q, k, v = (b.input(np.float32, shape) for _ in range(3))
    mask = b.input(np.float32, (1, 1, SEQUENCE, SEQUENCE))
    scaled = b.op(Op.MUL, [q, b.constant(np.float32(WIDTH**-0.5))], shape)
    logits = b.op(Op.BATCH_MATMUL, [scaled, k], square, adj_y=True)
    weights = b.op(Op.SOFTMAX, [b.op(Op.ADD, [logits, mask], square)], square, beta=1.0)
    return b.op(Op.BATCH_MATMUL, [weights, v], shape)


def rotary(b: Body) -> int:
    """Build (a cos - b sin, b cos + a sin) of the halves a and b."""
    shape, half = (1, SEQUENCE, HEADS, WIDTH), (1, SEQUENCE, HEADS, WIDTH // 2)
    x = b.input(np.float32, shape)
    cos, sin = (b.input(np.float32, (1, SEQUENCE, 1, WIDTH // 2)) for _ in range(2))
    first, second = (
        b.op(Op.SLICE, [x, b.numbers(0, 0, 0, at), b.numbers(*half)], half) for at in (0, WIDTH // 2)
    )
    left = b.op(Op.SUB, [b.op(Op.MUL, [first, cos], half), b.op(Op.MUL, [second, sin], half)], half)
    right = b.op(Op.ADD, [b.op(Op.MUL, [second, cos], half), b.op(Op.MUL, [first, sin], half)], half)
    return b.op(Op.CONCATENATION, [left, right], shape, axis=3)


def cache_update(b: Body) -> int:
    """Write new keys over the cache at a computed position."""
    cache = b.input(np.float32, (1, SEQUENCE, HEADS, WIDTH))
    fresh = b.input(np.float32, (1, 1, HEADS, WIDTH))
    starts = b.input(np.int32, (4,))
    return b.op(Op.DYNAMIC_UPDATE_SLICE, [cache, fresh, starts], (1, SEQUENCE, HEADS, WIDTH))


def composed(name: str, build: Callable[[Body], int]) -> bytes:
    """ABS of each float operand, the composite, then NEG: it stands inside of a graph."""
    body, outer = Body(), Body()
    result = build(body)
    given = []
    for tensor in (body.tensors[i] for i in body.inputs):
        dtype = np.dtype(tensor.type.name.lower())
        operand = outer.input(dtype, tensor.shape)
        given.append(outer.op(Op.ABS, [operand], tensor.shape) if dtype == np.float32 else operand)
    made = outer.tensor(np.float32, body.tensors[result].shape)
    outer.operator(
        Op.STABLEHLO_COMPOSITE,
        given,
        [made],
        {"name": name, "decomposition_subgraph_index": 1, "version": 1},
    )
    return several((outer, [outer.op(Op.NEG, [made], body.tensors[result].shape)]), (body, [result]))


COMPOSITES = {
    "odml.rms_norm": (rms_norm, 9),
    "odml.scaled_dot_product_attention": (attention, 10),
    "odml.rope": (rotary, 13),
    "odml.update_kv_cache": (cache_update, 4),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_runs_whole_on_the_delegate(name, tmp_path):
    build, operators = COMPOSITES[name]
    model = composed(name, build)
    delegate = load_delegate("gpu", {"tuning": "none", "persistent": "off", "cache_dir": str(tmp_path)})
    interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert (interpreter.delegation.status, interpreter.delegation.delegated_ops) == ("full", operators)
    rng = np.random.default_rng(4)
    feed = [
        rng.normal(size=d["shape"]).astype(d["dtype"])
        if d["dtype"] == np.float32
        else np.array([0, 5, 0, 0], d["dtype"])
        for d in interpreter.get_input_details()
    ]
    (expected,) = call_in_litert("tests.runtime.scripts:invoke_each", model, [feed], "BUILTIN_REF")
    (on_cpu,) = scripts.invoke_each(ours, model, [feed])
    for details, value in zip(interpreter.get_input_details(), feed, strict=True):
        interpreter.set_tensor(details["index"], value)
    for _ in range(2):
        interpreter.invoke()
    (found,) = (interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details())
    compare(found, expected[0])
    compare(on_cpu[0], expected[0])
