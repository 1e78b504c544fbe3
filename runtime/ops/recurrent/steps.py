"""Recurrent operators over time: sequences in either layout, and cells that step through them."""

from typing import Protocol

from runtime.ops.support import Array, Kernel, OpContext, Shape


class Cell(Protocol):
    """A cell bound to its weights, its states and a sequence [time, batch, n]."""

    def begin(self) -> None:
        """Read the sequence, and compute what its inputs add to every step."""

    def step(self, t: int, y: Array) -> None:
        """Compute step `t` of the sequence from the states; write the states and `y` [batch, m]."""


def step_shape(op: OpContext) -> Shape:
    """Return the shape of an input [batch, n]. Raises `ShapeError` for another rank."""
    return _shape(op, 2)


def sequence_shape(op: OpContext) -> Shape:
    """Return the shape of an input [time, batch, n] or [batch, time, n]. Raises `ShapeError`."""
    return _shape(op, 3)


def _shape(op: OpContext, rank: int) -> Shape:
    shape = op.input().shape
    if len(shape) != rank:
        raise op.error(f"an input of shape {list(shape)}, rank {rank} is needed")
    return shape


def two_way_shapes(op: OpContext, forward: int, backward: int) -> tuple[Shape, ...]:
    """Return the output shapes of both directions, side by side where the option merges them."""
    steps = sequence_shape(op)[:2]
    if op.option("merge_outputs"):
        return ((*steps, forward + backward),)
    return ((*steps, forward), (*steps, backward))


def time_first(op: OpContext, array: Array) -> Array:
    """Return a view [time, batch, n] of a sequence in the option's layout."""
    return array if op.option("time_major") else array.swapaxes(0, 1)


def two_way_outputs(op: OpContext, forward: int) -> tuple[Array, Array]:
    """Return the outputs [time, batch, units] of the forward cell, of `forward` units, and of the other."""
    if op.option("merge_outputs"):
        y = time_first(op, op.write())
        return y[..., :forward], y[..., forward:]
    return time_first(op, op.write(0)), time_first(op, op.write(1))


def over_time(cell: Cell, y: Array, *, backwards: bool = False) -> Kernel:
    """Return a kernel that steps through the cell's sequence and writes every step's output to `y`.

    `y` is [time, batch, m]; a cell that goes backwards writes it from the end.
    """
    steps = list(enumerate(y))[:: -1 if backwards else 1]

    def run() -> None:
        cell.begin()
        for t, here in steps:
            cell.step(t, here)

    return run
