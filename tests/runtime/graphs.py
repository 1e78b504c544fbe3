"""Models of several subgraphs, and the comparison of a series of invocations with LiteRT's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runtime.api import interpreter as ours
from runtime.model.graph import Model, Signature, Subgraph
from runtime.model.writer import write_model
from tests.oracle import call_in_litert
from tests.runtime import scripts
from tests.runtime.models import Builder


def several(*parts: tuple[Builder, Sequence[int]], signatures: Sequence[Signature] = ()) -> bytes:
    """One file of the builders' subgraphs, each with its outputs; the first is the primary one."""
    subgraphs: list[Subgraph] = []
    for index, (builder, outputs) in enumerate(parts):
        (subgraph,) = builder.model(outputs).subgraphs
        subgraphs.append(replace(subgraph, index=index, name=f"part{index}"))
    return write_model(Model(3, "test", tuple(subgraphs), tuple(signatures)))


def check_invocations(
    model: bytes, feeds: list[list[np.ndarray]], resolver: str = "BUILTIN_REF"
) -> list[list[np.ndarray]]:
    """Check that both interpreters have the same outputs, invocation by invocation; return ours."""
    expected = call_in_litert("tests.runtime.scripts:invoke_each", model, feeds, resolver)
    found = scripts.invoke_each(ours, model, feeds)
    for mine, theirs in zip(found, expected, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            np.testing.assert_array_equal(a, b)
    return found
