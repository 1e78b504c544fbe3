"""Our tables against the schema that LiteRT's wheel carries."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.model import schema
from runtime.model.options import operator_options, options_table, table_names
from runtime.model.schema import BuiltinOperator
from tests.oracle import call_in_litert

ENUMS = [
    "ActivationFunctionType", "BuiltinOperator", "CombinerType", "CustomOptionsFormat", "DimensionType",
    "FullyConnectedOptionsWeightsFormat", "LSHProjectionType", "LSTMKernelType", "MirrorPadMode", "Padding",
    "ReduceWindowFunction", "RngAlgorithm", "StablehloComparisonDirection", "StablehloComparisonType",
    "StablehloPrecisionConfig", "TensorType",
]  # fmt: skip


def enum_values(litert: Any, name: str) -> dict[str, int]:
    from ai_edge_litert import schema_py_generated as generated

    return {k: v for k, v in vars(getattr(generated, name)).items() if isinstance(v, int)}


def options_facts(litert: Any, name: str, fields: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the union's value and, for each field, the contents of a file that sets only this field."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as generated

    table = getattr(generated, f"{name}T")
    empty = table()
    unions = (generated.BuiltinOptions, generated.BuiltinOptions2)
    facts: dict[str, Any] = {"union": next(getattr(u, name) for u in unions if hasattr(u, name))}
    facts["attributes"] = sorted(vars(empty))
    for attribute, kind in fields:
        filled = table()
        default = getattr(empty, attribute)
        setattr(filled, attribute, probe_value(kind, default))
        builder = flatbuffers.Builder(64)
        builder.Finish(filled.Pack(builder))
        facts[attribute] = (default, bytes(builder.Output()))
    return facts


def probe_value(kind: str, default: Any) -> Any:
    if kind == "string":
        return "probe"
    if kind == "vector":
        return [1]
    if kind == "float":
        return 1.5
    return not default if kind == "bool" else 1 if default != 1 else 2


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@pytest.mark.parametrize("name", ENUMS)
def test_enum_has_the_names_and_values_of_the_schema(name):
    ours = {member.name: int(member) for member in getattr(schema, name)}
    assert ours == call_in_litert("tests.runtime.model.test_schema:enum_values", name)


@pytest.mark.parametrize("name", table_names())
def test_options_table_has_the_slots_and_defaults_of_the_schema(name):
    table = options_table(name)
    kinds = {"s": "string", "f": "float", "?": "bool"}
    fields = [(camel(f.name), "vector" if f.is_vector else kinds.get(f.code, "int")) for f in table.fields]
    facts = call_in_litert("tests.runtime.model.test_schema:options_facts", name, fields)
    assert facts["union"] == table.union_value
    assert facts["attributes"] == sorted(attribute for attribute, _ in fields)
    for field, (attribute, kind) in zip(table.fields, fields, strict=True):
        default, data = facts[attribute]
        if kind in ("int", "float", "bool"):
            assert field.default == default
        assert _only_slot(data) == field.slot


def _only_slot(data: bytes) -> int:
    """Return the set slot of the root table's vtable, read with nothing but the format's definition."""
    root = int.from_bytes(data[:4], "little")
    vtable = root - int.from_bytes(data[root : root + 4], "little", signed=True)
    count = (int.from_bytes(data[vtable : vtable + 2], "little") - 4) // 2
    entries = [int.from_bytes(data[vtable + 4 + 2 * i :][:2], "little") for i in range(count)]
    (slot,) = [i for i, offset in enumerate(entries) if offset]
    return slot


def test_operators_name_their_options():
    expected = {
        "CONV_2D": "Conv2DOptions",
        "MEAN": "ReducerOptions",
        "STABLEHLO_CASE": "StablehloCaseOptions",
    }
    for operator, table in expected.items():
        found = operator_options(BuiltinOperator[operator])
        assert found is not None
        assert found.name == table
    assert operator_options(BuiltinOperator.PAD) is None
