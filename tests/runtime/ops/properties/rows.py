"""A row: one operator, a strategy for its options, the types that LiteRT takes, and how results compare.

To add an operator, put a module `rows_<family>.py` here with a list `ROWS`; everything else follows.
Every type in `types` is a row of its own: its share of the seeded examples, and 200 in the exhaustive suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, one_operator
from tests.runtime.ops.properties.examples import Compare, Example, fed
from tests.runtime.ops.properties.strategies import Operands

REFERENCE = "BUILTIN_REF"
# Where the reference resolver lacks the operator or this version of it.
PLAIN = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"

Built: TypeAlias = "tuple[Sequence[Arg | None], Sequence[Out], Mapping[str, Any]]"


def same_bits(ours: np.ndarray, theirs: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Equal elements, NaN where the other has NaN."""
    del inputs
    np.testing.assert_array_equal(ours, theirs)


def within(units: float = 4.0, absolute: float = 1e-7) -> Compare:
    """|y - r| <= units ulp |r| + absolute, NaN and infinities in the same places; integers bit for bit."""

    def compare(ours: np.ndarray, theirs: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
        if theirs.dtype.kind not in "fc":
            same_bits(ours, theirs, inputs)
            return
        rtol = units * float(np.finfo(theirs.dtype).eps)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=absolute, equal_nan=True)

    return compare


def of_terms(
    terms: Callable[[Sequence[np.ndarray]], np.ndarray | float], share: float = 1e-5, half: float = 1e-3
) -> Compare:
    """|y - r| <= share (|r| + sum of |terms|), the sum computed from the inputs; integers bit for bit.

    `half`: the share for float16.
    """

    def compare(ours: np.ndarray, theirs: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
        if theirs.dtype.kind != "f":
            same_bits(ours, theirs, inputs)
            return
        finite = np.isfinite(theirs)
        np.testing.assert_array_equal(ours[~finite], theirs[~finite])
        y, r = ours[finite].astype(np.float64), theirs[finite].astype(np.float64)
        sums = np.broadcast_to(terms(inputs), theirs.shape)[finite]
        part = half if theirs.dtype == np.float16 else share
        assert (np.abs(y - r) <= part * (np.abs(r) + sums) + 1e-37).all(), f"off by {np.abs(y - r).max()}"

    return compare


@dataclass(frozen=True)
class Row:
    """`build` draws operands, results and options of one valid example for a type in `types`.

    Or it draws an `Example`, which has a model of its own and may have a comparison of its own.
    `refusals`: the share of examples that LiteRT may refuse, where what it takes is not known beforehand.
    """

    name: str
    opcode: BuiltinOperator
    types: tuple[TensorType, ...]
    build: Callable[[DrawFn, Operands], Built | Example]
    compare: Compare = same_bits
    version: int = 1
    resolver: str = REFERENCE
    refusals: float = 0.0

    def __str__(self) -> str:
        return f"{self.opcode.name}-{self.name}"

    def example(self, draw: DrawFn, tensor_type: TensorType) -> Example:
        """One example with the comparison that judges it."""
        built = self.build(draw, Operands(draw, tensor_type))
        if isinstance(built, Example):
            return built if built.compare is not None else replace(built, compare=self.compare)
        args, outs, options = built
        values = tuple(a.value for a in args if a is not None)

        def compare(ours: np.ndarray, theirs: np.ndarray, _inputs: Sequence[np.ndarray]) -> None:
            self.compare(ours, theirs, values)

        return Example(one_operator(self.opcode, args, outs, options, self.version), fed(args), compare)


def all_rows() -> list[Row]:
    """Return the rows of every `rows_*.py` beside this file."""
    found: list[Row] = []
    for file in sorted(Path(__file__).parent.glob("rows_*.py")):
        found += import_module(f"tests.runtime.ops.properties.{file.stem}").ROWS
    return found
