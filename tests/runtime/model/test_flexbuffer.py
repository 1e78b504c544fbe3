"""The FlexBuffer reader, against the reference writer, and against bytes that are none."""

from __future__ import annotations

import random
from typing import Any

import pytest
from flatbuffers import flexbuffers
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.errors import ModelFormatError
from runtime.model.flexbuffer import read_map

KEYS = st.text(st.characters(min_codepoint=1, max_codepoint=0x7F), min_size=1, max_size=12)
SCALARS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(-1e30, 1e30),
    st.booleans(),
    st.none(),
    st.text(st.characters(min_codepoint=1, max_codepoint=0x24F), max_size=12),
    st.binary(max_size=12),
)
MAPS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=4), max_leaves=12
    ),
)


@pytest.mark.slow
@settings(max_examples=200)
@given(MAPS)
def test_reads_what_the_reference_writes(value: dict[str, Any]):
    assert read_map(bytes(flexbuffers.Dumps(value))) == value


def test_typed_vectors_are_read_as_lists():
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Key("ints")
        builder.TypedVectorFromElements([1, -2, 300])
        builder.Key("two")
        builder.FixedTypedVectorFromElements([0.5, 1.5])
    assert read_map(bytes(builder.Finish())) == {"ints": [1, -2, 300], "two": [0.5, 1.5]}


def test_every_mutation_is_a_map_or_a_clean_error():
    good = bytes(
        flexbuffers.Dumps({"a": 1, "b": [1.5, "text", {"c": b"\0\1"}], "num_classes": 90, "d": None})
    )
    rng = random.Random(7)
    refused = 0
    for _ in range(5000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            read_map(bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data))
        except ModelFormatError:
            refused += 1
    assert 1000 < refused < 5000


@pytest.mark.parametrize("data", [b"", b"\0", bytes([0, 0, 3]), bytes(flexbuffers.Dumps([1, 2])), bytes(3)])
def test_what_is_no_map_is_refused(data):
    with pytest.raises(ModelFormatError):
        read_map(data)


def test_a_map_that_holds_itself_is_refused():
    """Its one value is an offset of zero: the map itself."""
    keys = b"k\0" + bytes([1, 3])
    loop = keys + bytes([1, 1, 1, 0, 9 << 2, 2, 9 << 2, 1])
    with pytest.raises(ModelFormatError, match="too deep"):
        read_map(loop)
