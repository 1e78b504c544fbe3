"""An example that brings a model of its own, and perhaps a comparison of its own.

Most rows draw operands and options of one operator. A row builds an `Example` itself where its model holds
more than one operator, or where the comparison depends on the options that were drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from runtime.model.schema import ActivationFunctionType, BuiltinOperator
from tests.oracle import run_litert
from tests.runtime.models import Arg, Out, one_operator

Compare: TypeAlias = "Callable[[np.ndarray, np.ndarray, Sequence[np.ndarray]], None]"

# Of the result and of the sum of the magnitudes of its terms.
SHARE = 1e-5
_ABSOLUTE = 1e-37


@dataclass(frozen=True)
class Example:
    """A model with the inputs of one run; `compare` None: the row's.

    `runs`: how often ours runs before it is asked. Twice shows what a second run forgets; once is for models
    that remember.
    """

    model: bytes
    inputs: tuple[np.ndarray, ...]
    compare: Compare | None = None
    runs: int = 2


def fed(args: Sequence[Arg | None]) -> tuple[np.ndarray, ...]:
    """Return the values of the model's inputs."""
    return tuple(a.value for a in args if a is not None and not a.constant)


def linear(
    opcode: BuiltinOperator,
    args: Sequence[Arg | None],
    out: Out,
    options: Mapping[str, Any],
    version: int,
    resolver: str,
) -> Example:
    """Build a sum of products: floats are judged by the sum of the magnitudes of their terms, levels bit for
    bit.

    That sum is what LiteRT's same operator makes of the magnitudes of its operands.
    """
    model = one_operator(opcode, args, [out], options, version)
    if np.dtype(out.dtype).kind != "f":
        return Example(model, fed(args))
    sizes = [None if a is None else replace(a, value=_magnitude(a.value), type=None) for a in args]
    plain = {k: v for k, v in options.items() if k != "fused_activation_function"}
    if "fused_activation_function" in options:
        plain["fused_activation_function"] = ActivationFunctionType.NONE
    other = one_operator(opcode, sizes, [out], plain, version)

    def compare(ours: np.ndarray, theirs: np.ndarray, _inputs: Sequence[np.ndarray]) -> None:
        sums = run_litert(other, fed(sizes), resolver)[0].astype(np.float64)
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
        finite = np.isfinite(theirs)
        np.testing.assert_array_equal(ours[~finite], theirs[~finite])
        y, r = ours[finite].astype(np.float64), theirs[finite].astype(np.float64)
        excess = np.abs(y - r) - SHARE * (np.abs(r) + sums[finite]) - _ABSOLUTE
        assert not (excess > 0).any(), (
            f"off by {np.abs(y - r).max()}: {y[excess > 0][:4]}, {r[excess > 0][:4]}"
        )

    return Example(model, fed(args), compare)


def _magnitude(values: np.ndarray) -> np.ndarray:
    """|values| of floats (not finite: 0, so that other terms keep their bound) and of signed levels."""
    if values.dtype.kind == "f":
        return np.where(np.isfinite(values), np.abs(values), 0).astype(values.dtype)
    return np.abs(np.maximum(values, -np.iinfo(values.dtype).max)) if values.dtype.kind == "i" else values
