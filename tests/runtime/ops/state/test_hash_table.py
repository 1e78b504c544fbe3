"""Static hash tables, against LiteRT, whose reference resolver leaves them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError, UnsupportedOperatorError
from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.graphs import check_invocations, several
from tests.runtime.models import Builder

Op = BuiltinOperator


def text(*items: bytes) -> np.ndarray:
    values = np.empty(len(items), object)
    values[:] = items
    return values


def int64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def table(keys: np.ndarray, values: np.ndarray, asked: int, default: Any, filled: bool = True) -> bytes:
    """CALL_ONCE fills the table; the model looks `asked` keys up and counts the entries."""
    kinds = [TensorType.STRING if a.dtype == object else TensorType.INT64 for a in (keys, values)]
    options = {"table_id": 3, "key_dtype": kinds[0], "value_dtype": kinds[1]}

    def handle_of(b: Builder) -> int:
        handle = b.tensor(np.int32, (1,), type=TensorType.RESOURCE)
        b.operator(Op.HASHTABLE, [], [handle], options)
        return handle

    b, first = Builder(), Builder()
    query = b.input(keys.dtype, (asked,))
    found, size = b.tensor(values.dtype, (asked,)), b.tensor(np.int64, (1,))
    if filled:
        b.operator(Op.CALL_ONCE, [], [], {"init_subgraph_index": 1})
    handle = handle_of(b)
    b.operator(Op.HASHTABLE_FIND, [handle, query, b.constant(default)], [found])
    b.operator(Op.HASHTABLE_SIZE, [handle], [size])
    target = handle_of(first)
    for offset in (0, 1):
        later = values if offset == 0 else values[::-1]
        inputs = [target, first.constant(keys), first.constant(later)]
        first.operator(Op.HASHTABLE_IMPORT, inputs, [])
    return several((b, [found, size]), (first, []))


def test_a_table_from_strings_to_numbers_finds_what_litert_finds():
    model = table(text(b"a", b"", b"long key"), int64(1, -2, 1 << 40), 4, int64(-1))
    feeds = [[text(b"", b"long key", b"b", b"a")], [text(b"a", b"a", b"x", b"")]]
    found = check_invocations(model, feeds, resolver="BUILTIN")
    assert found[0][0].tolist() == [-2, 1 << 40, -1, 1]
    assert found[0][1].tolist() == [3]


def test_a_table_from_numbers_to_strings_finds_what_litert_finds():
    model = table(int64(7, 8, 7), text(b"seven", b"eight", b"again"), 3, text(b"unknown"))
    found = check_invocations(model, [[int64(8, 9, 7)]], resolver="BUILTIN")
    assert found[0][0].tolist() == [b"eight", b"unknown", b"seven"]


def test_a_table_that_was_never_filled_is_an_error():
    interpreter = Interpreter(model_content=table(int64(1), text(b"x"), 1, text(b""), filled=False))
    interpreter.allocate_tensors()
    with pytest.raises(InvocationError, match="HASHTABLE_FIND: the hash table was never filled"):
        interpreter.invoke()


def test_other_kinds_of_tables_are_refused():
    with pytest.raises(UnsupportedOperatorError, match="a table from INT64 to INT64 is not defined"):
        Interpreter(model_content=table(int64(1), int64(1), 1, int64(0))).allocate_tensors()
