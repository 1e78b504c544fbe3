"""LiteRT's messages, as the installed one gives them, with the cause first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.common.litert_errors import cause_of
from runtime.model.schema import BuiltinOperator
from tests.oracle import call_in_litert
from tests.runtime.models import Builder


def message(litert: Any, model: bytes, resolver: str) -> str:
    """Run in LiteRT's process: what it says of a model that it cannot prepare."""
    kind = litert.OpResolverType[resolver]
    try:
        litert.Interpreter(model_content=model, experimental_op_resolver_type=kind).allocate_tensors()
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def custom(name: str) -> bytes:
    b = Builder()
    x = b.input(np.float32, (1, 4))
    half = b.tensor(np.float32, shape=(1, 4))
    b.operator(BuiltinOperator.ABS, [x], [half])
    y = b.tensor(np.float32, shape=(1, 4))
    b.operator(BuiltinOperator.CUSTOM, [half], [y], custom_code=name)
    return b.write([y])


def mismatched() -> bytes:
    b = Builder()
    x, z = b.input(np.float32, (1, 4)), b.input(np.float32, (1, 3))
    y = b.tensor(np.float32, shape=(1, 4))
    b.operator(BuiltinOperator.ADD, [x, z], [y], {})
    return b.write([y])


@pytest.mark.parametrize(
    ("resolver", "node"),
    [
        ("AUTO", "TfLiteXNNPackDelegate (operator 1) failed to prepare: XNNPack delegate failed to reshape"),
        ("BUILTIN_REF", "ADD (operator 0) failed to prepare: "),
    ],
)
def test_a_custom_operator_and_a_node_are_the_cause(resolver: str, node: str) -> None:
    said = call_in_litert("tests.runtime.common.test_litert_errors:message", custom("Ours"), resolver)
    assert "Ours" in said
    assert cause_of(said) == "custom operator Ours: LiteRT has no kernel for it"
    said = call_in_litert("tests.runtime.common.test_litert_errors:message", mismatched(), resolver)
    found = cause_of(f"RuntimeError: {said}")
    assert found.startswith(node)
    assert not {".cc", "Node number", "delegate indexed", "RuntimeError"} & set(found.split())


@pytest.mark.parametrize("text", ["", "x.tflite: not a model", "signal 11"])
def test_what_is_no_message_of_litert_stays(text: str) -> None:
    assert cause_of(text) == text


def test_a_missing_version_of_an_operator_is_named() -> None:
    said = (
        "Didn't find op for builtin opcode 'CONV_2D' version '9'. An older version of this builtin might be "
        "supported. Are you using an old TFLite binary with a newer model?\nRegistration failed.\n"
    )
    assert cause_of(said) == "CONV_2D of version 9: this LiteRT has no kernel for it"
