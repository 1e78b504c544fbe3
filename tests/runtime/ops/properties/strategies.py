"""The strategies of the rows: shapes, operands of a type with its edge values, quantisation parameters.

Hypothesis draws shapes, options and a seed; elements come from numpy by that seed, so that an example is
small and a failing one can be written down in a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.graph import Quantization
from runtime.model.schema import TensorType
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.every_type import DTYPES

_HELD = DTYPES | {
    TensorType.COMPLEX128: np.complex128,
    TensorType.INT4: np.int8,
    TensorType.INT2: np.int8,
}
_FLOAT_EDGES = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3.4e38, -3.4e38, 0.5, 2.5, -1.5)
_WORDS = (b"", b"a", b"edge case", b"\x00\xff")
RANGES = {TensorType.INT8: (-128, 127), TensorType.UINT8: (0, 255), TensorType.INT16: (-32768, 32767)}


class Operands:
    """Makes operands of one type; `edges` is how often an element is one of the type's edge values."""

    def __init__(self, draw: DrawFn, tensor_type: TensorType) -> None:
        self.draw = draw
        self.type = tensor_type
        self.dtype = np.dtype(_HELD[tensor_type])
        self._random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self._edges = draw(st.sampled_from([0.0, 0.1, 0.5]))

    def array(
        self,
        *shape: int,
        finite: bool = False,
        edges: bool = True,
        low: float = -100.0,
        high: float = 100.0,
    ) -> np.ndarray:
        """Elements over the type's whole range; floats in [low, high) and, unless `finite`, its edges.

        Without `edges` none of them, of any type.
        """
        plain = self._plain(shape, low, high)
        extremes = self._edge_values(finite=finite)
        if not edges or not len(extremes):
            return plain
        chosen = extremes[self._random.integers(0, len(extremes), shape)]
        return np.where(self._random.random(shape) < self._edges, chosen, plain).astype(self.dtype)

    def _plain(self, shape: Sequence[int], low: float, high: float) -> np.ndarray:
        kind = self.dtype.kind
        if kind == "b":
            return self._random.integers(0, 2, shape).astype(np.bool_)
        if kind in "iu":
            info = np.iinfo(self.dtype)
            return self._random.integers(info.min, info.max, shape, self.dtype, endpoint=True)
        if kind == "O":
            found = np.empty(shape, object)
            found[...] = b"plain"
            return found
        values = self._random.uniform(low, high, shape)
        return (values * (1 + 1j) if kind == "c" else values).astype(self.dtype)

    def _edge_values(self, *, finite: bool) -> np.ndarray:
        kind = self.dtype.kind
        if kind in "iu":
            info = np.iinfo(self.dtype)
            return np.array([info.min, info.max, 0, 1, info.max - 1], self.dtype)
        if kind == "O":
            words = np.empty(len(_WORDS), object)
            words[:] = _WORDS
            return words
        if kind == "b":
            return np.empty(0, self.dtype)
        with np.errstate(over="ignore"):
            edges = np.array(_FLOAT_EDGES).astype(self.dtype)
        return edges[np.isfinite(edges)] if finite else edges

    def arg(self, *shape: int, quantization: Quantization | None = None, **more: Any) -> Arg:
        """Draw an operand that is fed at run time."""
        return Arg(self.array(*shape, **more), quantization, type=self.type)

    def out(self, quantization: Quantization | None = None) -> Out:
        """Return a result of the type."""
        return Out(self.dtype, quantization, type=self.type)

    @property
    def is_quantized(self) -> bool:
        """Whether elements of the type are levels."""
        return self.type in RANGES

    def quantization(self, least: float = -8, most: float = 0) -> Quantization:
        """Draw a scale of 2^least to 2^most and any zero point of the type (0 for int16)."""
        scale = 2.0 ** self.draw(st.floats(least, most))
        low, high = (0, 0) if self.type is TensorType.INT16 else RANGES[self.type]
        return per_tensor(scale, self.draw(st.integers(low, high)))

    def levels(self, least: float = -8, most: float = 0) -> Quantization | None:
        """`quantization` where elements of the type are levels."""
        return self.quantization(least, most) if self.is_quantized else None


@st.composite
def shapes(draw: DrawFn, least: int = 0, most: int = 4, side: int = 5, smallest: int = 1) -> tuple[int, ...]:
    """Draw a shape of `least`..`most` dimensions of `smallest`..`side`."""
    return tuple(draw(st.lists(st.integers(smallest, side), min_size=least, max_size=most)))


@st.composite
def broadcast_shapes(
    draw: DrawFn, count: int = 2, most: int = 4, side: int = 4
) -> tuple[tuple[int, ...], ...]:
    """Shapes of up to `most` dimensions that broadcast with each other; one has them all."""
    whole = draw(shapes(most=most, side=side))
    found = [whole]
    for _ in range(count - 1):
        kept = [draw(st.sampled_from([d, d, 1])) for d in whole]
        found.append(tuple(kept[draw(st.integers(0, len(kept))) :] if draw(st.booleans()) else kept))
    return tuple(draw(st.permutations(found)))


def fixed_or_fed(draw: DrawFn, values: Any, dtype: Any) -> Arg:
    """Draw an operand that is sometimes a constant and sometimes computed, as shapes and indices may be."""
    return Arg(np.asarray(values, dtype), constant=draw(st.booleans()))


def index_type(draw: DrawFn) -> Any:
    """int32 or int64."""
    return draw(st.sampled_from([np.int32, np.int64]))
