"""REDUCE_WINDOW and STABLEHLO_REDUCE_WINDOW: the elements under a sliding window, reduced to one."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.model.schema import ReduceWindowFunction
from runtime.ops.support import REAL_NUMBERS, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import spread

_JOINS = {
    Op.ADD: np.add,
    Op.STABLEHLO_ADD: np.add,
    Op.MUL: np.multiply,
    Op.STABLEHLO_MULTIPLY: np.multiply,
    Op.MAXIMUM: np.maximum,
    Op.STABLEHLO_MAXIMUM: np.maximum,
    Op.MINIMUM: np.minimum,
    Op.STABLEHLO_MINIMUM: np.minimum,
    Op.LOGICAL_AND: np.logical_and,
    Op.STABLEHLO_AND: np.logical_and,
    Op.LOGICAL_OR: np.logical_or,
    Op.STABLEHLO_OR: np.logical_or,
}
_FUNCTIONS = {
    ReduceWindowFunction.ADD: np.add,
    ReduceWindowFunction.MUL: np.multiply,
    ReduceWindowFunction.MINIMUM: np.minimum,
    ReduceWindowFunction.MAXIMUM: np.maximum,
    ReduceWindowFunction.ALL: np.logical_and,
    ReduceWindowFunction.ANY: np.logical_or,
}


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis: the dilated, padded extent, and the window that slides over it."""

    low: int
    step: int
    extent: int
    window: int
    stride: int
    dilation: int

    @property
    def positions(self) -> int:
        reach = (self.window - 1) * self.dilation + 1
        return 0 if self.extent < reach else (self.extent - reach) // self.stride + 1


@dataclass(frozen=True, slots=True)
class _Window:
    """Sizes for each axis; `padding` holds low and high in turn."""

    sizes: list[int]
    strides: list[int]
    base: list[int]
    dilations: list[int]
    padding: list[int]


def _window(op: OpContext, rank: int) -> _Window:
    ones = [1] * rank
    if op.operator.opcode is Op.REDUCE_WINDOW:
        for i in (2, 3, 4):
            op.require(TensorType.INT64, i=i)
        inputs = ((2, "window shape"), (3, "window strides"), (4, "window dilations"))
        sizes, strides, dilations = (list(op.integers(i, what)) for i, what in inputs)
        return _Window(sizes, strides, ones, dilations, [0] * (2 * rank))
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    sizes, strides, base, dilations = ([int(v) for v in op.option(n)] for n in names)
    padding = [int(v) for v in op.option("padding")]
    return _Window(sizes, strides or ones, base or ones, dilations or ones, padding or [0] * (2 * rank))


def _axes(op: OpContext) -> list[_Axis]:
    shape = op.input().shape
    w = _window(op, len(shape))
    # Divided as a real number, so that an odd count of paddings is equal to no rank.
    lengths = {len(v) for v in (w.sizes, w.strides, w.base, w.dilations)} | {len(w.padding) / 2}
    if not shape or lengths != {len(shape)} or min(*w.sizes, *w.strides, *w.base, *w.dilations) < 1:
        raise op.error(f"a window of {w.sizes} in steps of {w.strides} over {list(shape)}")
    axes = []
    for i, dim in enumerate(shape):
        low, high = w.padding[2 * i : 2 * i + 2]
        extent = ((dim - 1) * w.base[i] + 1 if dim else 0) + low + high
        # Negative padding crops, and may crop more than there is.
        axes.append(_Axis(low, w.base[i], max(extent, 0), w.sizes[i], w.strides[i], w.dilations[i]))
    return axes


def reduce_window_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return, for each padded axis, how many positions the dilated window has."""
    return (tuple(a.positions for a in _axes(op)),)


def _join(op: OpContext) -> np.ufunc:
    if op.operator.opcode is Op.REDUCE_WINDOW:
        function = op.option("reduce_function")
        if function not in _FUNCTIONS:
            raise op.unsupported("a reduce function that is not named")
        return _FUNCTIONS[function]
    try:
        body = op.services.operators_of(op.option("body_subgraph_index"))
    except IndexError:
        raise op.error("its body is not a subgraph of the model") from None
    if len(body) != 1 or body[0].opcode not in _JOINS:
        names = ", ".join(o.name for o in body) or "nothing"
        raise op.unsupported(f"a body of {names}: one add, multiply, maximum, minimum, and, or is needed")
    return _JOINS[body[0].opcode]


@operator(Op.REDUCE_WINDOW, Op.STABLEHLO_REDUCE_WINDOW, infer=reduce_window_shape, types=REAL_NUMBERS)
def reduce_window(op: OpContext) -> Kernel:
    """Reduce the start value and the window's elements in row-major order; padding is the start value too."""
    op.require_same_type(0, 1)
    x, start, y, join, axes = op.read(0), op.read(1).reshape(-1), op.write(), _join(op), _axes(op)
    padded = op.temporary(tuple(a.extent for a in axes), x.dtype)
    pairs = [spread(a.low, a.step, a.extent, d) for a, d in zip(axes, x.shape, strict=True)]
    target, source = padded[tuple(t for t, _ in pairs)], x[tuple(s for _, s in pairs)]
    # One strided view for each place in the window: as many passes over the output as the window has places.
    views = [padded[_under(axes, place)] for place in np.ndindex(*(a.window for a in axes))]
    logical = join in (np.logical_and, np.logical_or)
    # Logical functions give bools, which numpy stores into a tensor of numbers only when it is told to.
    casting: dict[str, Any] = {"casting": "unsafe"} if logical else {}

    def run() -> None:
        # In every run: it is scratch memory, which other operators write to in between.
        np.copyto(padded, start[:1])
        np.copyto(target, source)
        np.copyto(y, start[:1])
        for view in views:
            join(y, view, out=y, **casting)

    return run


def _under(axes: list[_Axis], place: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the index of what lies under one place of the window at all of its positions."""
    found = []
    for axis, i in zip(axes, place, strict=True):
        begin = i * axis.dilation
        found.append(slice(begin, begin + (axis.positions - 1) * axis.stride + 1, axis.stride))
    return tuple(found)
