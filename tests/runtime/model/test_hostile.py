"""Files made to do harm: a clean error, in bounded time and memory, and nothing else."""

from __future__ import annotations

import contextlib
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError, ModelFormatError
from runtime.model.flatbuffer import MAX_TABLES
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator
from runtime.model.writer import write_model
from tests.runtime.model.test_reader import rich_model
from tests.runtime.models import Builder

RICH = write_model(rich_model())
WORDS = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFC]


def runnable() -> bytes:
    """Build a small chain of operators that a mutation may turn into something else."""
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, 3))
    w = b.constant(np.ones((4, 3, 3, 3), np.float32))
    bias = b.constant(np.zeros(4, np.float32))
    conv, pooled, flat, soft = (b.tensor(np.float32) for _ in range(4))
    stride = {"stride_w": 1, "stride_h": 1}
    b.operator(BuiltinOperator.CONV_2D, [x, w, bias], [conv], stride)
    b.operator(
        BuiltinOperator.MAX_POOL_2D,
        [conv],
        [pooled],
        {"filter_width": 2, "filter_height": 2, "stride_w": 2, "stride_h": 2},
    )
    b.operator(BuiltinOperator.RESHAPE, [pooled, b.constant(np.array([1, -1], np.int32))], [flat])
    b.operator(BuiltinOperator.SOFTMAX, [flat], [soft], {"beta": 1.0})
    return b.write([soft])


RUNNABLE = runnable()

mutations = st.lists(
    st.tuples(st.integers(0, 10_000), st.one_of(st.integers(0, 255), st.sampled_from(WORDS))),
    min_size=1,
    max_size=6,
)


def mutated(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    out = bytearray(data)
    for position, value in changes:
        at = position % (len(out) - 4)
        if value < 256:
            out[at] = value
        else:
            struct.pack_into("<I", out, at, value)
    return bytes(out)


def read_or_refuse(data: bytes) -> None:
    with contextlib.suppress(ModelFormatError):
        read_model(data)


@settings(max_examples=600)
@given(mutations)
def test_mutated_files_are_read_or_refused(changes):
    read_or_refuse(mutated(RICH, changes))


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_random_bytes_are_refused(data):
    with pytest.raises(ModelFormatError):
        read_model(data)


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_random_bytes_behind_the_identifier_are_read_or_refused(data):
    read_or_refuse(b"\x10\0\0\0TFL3" + data)


def test_every_truncation_is_refused():
    for length in range(len(RICH)):
        with pytest.raises(ModelFormatError):
            read_model(RICH[:length])


@settings(max_examples=300)
@given(mutations)
def test_mutated_models_are_planned_or_refused(changes):
    data = mutated(RUNNABLE, changes)
    with contextlib.suppress(ModelError):
        Interpreter(model_content=data).allocate_tensors()


@pytest.mark.exhaustive
@settings(max_examples=20_000, derandomize=False)
@given(mutations)
def test_many_mutated_models_are_planned_or_refused(changes):
    test_mutated_models_are_planned_or_refused.hypothesis.inner_test(changes)


def shared_subgraph(entries: int, tensors: int) -> bytes:
    """`entries` subgraphs that are one table, whose `tensors` tensors are one: small, but huge when read."""
    out = bytearray(8)

    def table(fields: dict[int, int]) -> int:
        slots = max(fields) + 1
        start = len(out)
        offsets = [4 + 4 * sorted(fields).index(s) if s in fields else 0 for s in range(slots)]
        out.extend(struct.pack(f"<HH{slots}H", 4 + 2 * slots, 4 + 4 * len(fields), *offsets))
        out.extend(bytes(-len(out) % 4))
        position = len(out)
        out.extend(struct.pack("<i", position - start))
        for slot in sorted(fields):
            out.extend(struct.pack("<I", fields[slot]))
        return position

    def refer(field: int, target: int) -> None:
        struct.pack_into("<I", out, field, target - field)

    root = table({0: 3, 2: 0})
    out[0:8] = struct.pack("<I", root) + b"TFL3"
    subgraphs = len(out)
    out.extend(struct.pack("<I", entries) + bytes(4 * entries))
    refer(root + 8, subgraphs)
    graph = table({0: 0})
    for i in range(entries):
        refer(subgraphs + 4 + 4 * i, graph)
    vector = len(out)
    out.extend(struct.pack("<I", tensors) + bytes(4 * tensors))
    refer(graph + 4, vector)
    tensor = table({1: 0})
    for i in range(tensors):
        refer(vector + 4 + 4 * i, tensor)
    return bytes(out)


def test_the_shared_tables_are_a_valid_file_where_they_are_few():
    model = read_model(shared_subgraph(2, 3))
    assert [len(s.tensors) for s in model.subgraphs] == [3, 3]


def test_shared_tables_cannot_multiply():
    data = shared_subgraph(20_000, 20_000)
    start = time.process_time()
    with pytest.raises(ModelFormatError, match="more tables than it can hold"):
        read_model(data)
    assert time.process_time() - start < 60
    assert len(data) // 4 < MAX_TABLES


def test_an_output_too_large_to_plan_is_refused():
    b = Builder()
    x = b.input(np.float32, (1, 1000))
    y = b.tensor(np.float32)
    b.operator(BuiltinOperator.PAD, [x, b.constant(np.array([[0, 2_000_000], [0, 0]], np.int32))], [y])
    with pytest.raises(ModelError, match=r"operator 0 PAD: an output of shape .* is too large"):
        Interpreter(model_content=b.write([y])).allocate_tensors()


def test_a_filter_of_two_thousand_million_is_no_loop():
    b = Builder()
    x = b.input(np.float32, (1, 4, 4, 1))
    y = b.tensor(np.float32)
    size = 2**30
    options = {"filter_width": size, "filter_height": size, "stride_w": 1, "stride_h": 1}
    b.operator(BuiltinOperator.MAX_POOL_2D, [x], [y], options)
    interpreter = Interpreter(model_content=b.write([y]))
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.get_output_details()[0]["shape"].tolist() == [1, 4, 4, 1]
