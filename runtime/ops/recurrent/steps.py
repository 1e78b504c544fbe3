"""Recurrent operators over time: sequences in either layout, and cells that step through them."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from runtime.ops.recurrent.gates import present
from runtime.ops.support import Array, Kernel, OpContext, Shape
from runtime.ops.support.blocks import in_turn
from runtime.ops.support.shapes import require_rank


class Cell(Protocol):
    """A cell bound to its weights, its states and a sequence [time, batch, n]."""

    def begin(self) -> object:
        """Read the sequence, and compute what its inputs add to every step."""

    def step(self, t: int, y: Array) -> None:
        """Compute step `t` of the sequence from the states; write the states and `y` [batch, m]."""


Bind: TypeAlias = Callable[[Array, Array | None], Cell]
"""(input, auxiliary input), both [time, batch, n]: returns a cell bound to them."""


def one_way_shape(op: OpContext, rank: int, units: int) -> tuple[Shape, ...]:
    """Return the shape of an input of this rank, one step or a sequence, with so many units at the end."""
    return ((*require_rank(op, 0, rank)[:-1], units),)


def two_way_shapes(op: OpContext, forward: int, backward: int) -> tuple[Shape, ...]:
    """Return the output shapes of both directions, side by side where the option merges them."""
    steps = require_rank(op, 0, 3)[:2]
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


def both_ways(
    op: OpContext,
    forward: Bind,
    backward: Bind,
    units: int,
    auxiliary: int,
    weights: int,
    *,
    alone: bool = True,
) -> Kernel:
    """Return a kernel of two cells, one backwards in time; the forward one has `units`.

    Where the operator has the inputs `auxiliary` and `weights`, the auxiliary input joins both cells' input.
    Without its weights it is the input of the second cell, if that may be (`alone`).
    """
    x = time_first(op, op.read(0))
    aux = time_first(op, op.read(auxiliary)) if present(op, auxiliary) else None
    joined = aux if present(op, weights) else None
    second = aux if aux is not None and joined is None and alone else x
    y, z = two_way_outputs(op, units)
    return in_turn(over_time(forward(x, joined), y), over_time(backward(second, joined), z, backwards=True))


def over_time(cell: Cell, y: Array, *, backwards: bool = False) -> Kernel:
    """Return a kernel that steps through the cell's sequence and writes every step's output to `y`.

    `y` is [time, batch, m]; a cell that goes backwards writes it from the end.
    """
    # The views of all steps are made while planning, as the kernel makes none in a run.
    steps = list(enumerate(y))[:: -1 if backwards else 1]

    def run() -> None:
        cell.begin()
        for t, here in steps:
            cell.step(t, here)

    return run
