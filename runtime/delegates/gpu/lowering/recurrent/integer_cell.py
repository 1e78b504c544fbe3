"""The launches of an LSTM's step on integers, and the order in which they find their constants."""

from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import GROUP_ITEMS, LocalArray, WorkGroup, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.recurrent.steps import Rows
from runtime.ops.recurrent.fixed_point import sigmoid_table, tanh_table
from runtime.ops.recurrent.integer_cell import IntegerCell, Scaling

I8, U8, I16, I32 = ElementType.I8, ElementType.U8, ElementType.I16, ElementType.I32
_CANDIDATE_BITS = 3
"""Integer bits of the sums of gates (`lstm_eval.cc`)."""


def shares_cells(device: Capabilities) -> bool:
    """Return True for work-groups of OpenCL: kernels of integers are no part of the portable subset."""
    return suits_groups(device) and device.runs_units


def _gates_apart(array: spec.Array, gates: int) -> spec.Array:
    """Return rows of gates, side by side, with each gate padded to whole blocks of 16."""
    parts = np.split(array, gates)
    padding = [(0, round_up(len(parts[0])) - len(parts[0]))] + [(0, 0)] * (array.ndim - 1)
    return np.concatenate([np.pad(part, padding) for part in parts])


def weights_packed(name: str, matrix: spec.Array, gates: int, element: ElementType) -> spec.PackedConstant:
    """Pack rows [results, n] as [block of 16][n][16]."""
    rows, depth = matrix.shape
    padded = gates * round_up(rows // gates)

    def make() -> spec.Array:
        blocks = _gates_apart(matrix, gates).reshape(padded // LANES, LANES, depth)
        return np.ascontiguousarray(blocks.transpose(0, 2, 1))

    return spec.PackedConstant(name, padded * depth, make, element)


def stages_packed(name: str, scaling: Scaling, rows: int, gates: int) -> spec.PackedConstant:
    """Pack biases, multipliers, left and right shifts as [block of 16][4][16]."""
    padded = gates * round_up(rows // gates)

    def make() -> spec.Array:
        shifts = np.broadcast_to(scaling.shifts, rows)
        numbers = (scaling.bias, np.broadcast_to(scaling.multipliers, rows))
        both = [*numbers, np.maximum(shifts, 0), np.maximum(-shifts, 0)]
        apart = np.stack([_gates_apart(one, gates) for one in both])
        return apart.reshape(4, padded // LANES, LANES).transpose(1, 0, 2)

    return spec.PackedConstant(name, 4 * padded, make, I32)


def _table(name: str, values: spec.Array) -> spec.PackedConstant:
    return spec.PackedConstant(name, values.size, lambda: values, I16)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of levels with packed weights: `rows` results, of `gates` parts, between `low` and `high`."""

    node: Node
    name: str
    weights: spec.PackedConstant
    stages: spec.PackedConstant
    rows: int
    gates: int
    types: tuple[ElementType, ElementType, ElementType]
    zero: int = 0
    bounds: tuple[int, int] = (-32768, 32767)
    ties_up: bool = False
    in_groups: bool = False

    @property
    def padded(self) -> int:
        """Results with each part padded to whole blocks of 16."""
        return self.gates * round_up(self.rows // self.gates)

    def launch(
        self,
        source: Rows,
        inputs: int,
        target: Rows,
        batch: int,
        *,
        previous: tuple[Rows, int] | None = None,
        added: Rows | None = None,
        state: Rows | None = None,
    ) -> spec.Launch:
        """Return the launch for `batch` rows; `previous` is a second input with its size."""
        given, weight, made = (one.opencl for one in self.types)
        numbers = {**source.parameters("IN"), **target.parameters("OUT"), "INPUTS": inputs}
        pointers: list[spec.Argument] = [source.argument]
        if previous is not None:
            pointers.append(previous[0].argument)
            numbers |= {**previous[0].parameters("PREVIOUS"), "OUTPUTS": previous[1]}
        pointers += [self.weights, self.stages]
        if added is not None:
            pointers.append(added.argument)
            numbers |= added.parameters("ADDED")
        pointers.append(target.argument)
        if state is not None:
            pointers.append(state.argument)
            numbers["STATE_STRIDE"] = state.stride
        form: dict[str, int | str] = {
            "IN": given,
            "WEIGHT": weight,
            "OUT": made,
            "JOINED": previous is not None,
            "ADDS": added is not None,
            "KEEPS": state is not None,
            "TIES_UP": self.ties_up,
        }
        low, high = self.bounds
        file, name, group = "steps_levels", "lstm_levels", None
        if self.in_groups:
            file, name = f"{file}_groups", f"groups_{name}"
            group = WorkGroup((LANES, GROUP_ITEMS // LANES), (LocalArray("partial", "int", GROUP_ITEMS),))
        instance = spec.function(
            f"recurrent/{file}.cl",
            f"f32_{name}",
            form,
            group,
            **numbers,
            ZERO=self.zero,
            LOW=low,
            HIGH=high,
            **divisor("UNIT_BLOCKS", self.padded // LANES),
        )
        depth = inputs + (0 if previous is None else previous[1])
        units = batch * self.padded // LANES
        return spec.Launch(
            instance,
            tuple(pointers),
            units=units,
            label=f"{self.node.op.name} {self.name}",
            sources=self.node.sources,
            flops=2 * batch * self.rows * depth,
            bytes=self.weights.bytes,
            groups=(units, 1) if self.in_groups else (),
        )


@dataclass(frozen=True, slots=True)
class Cells:
    """The launch behind the sums of a step, but for its rows: tables, completions and numbers."""

    node: Node
    gates: int
    cells: int
    batch: int
    tables: tuple[spec.PackedConstant, ...]
    completions: tuple[spec.PackedConstant, ...]
    has_norms: bool
    element: ElementType
    numbers: dict[str, int]

    def launch(
        self, context: spec.Context, sums: spec.Argument, out: Rows, state: int | None, old: int, fresh: int
    ) -> spec.Launch:
        """Return the launch of a step that reads the values `sums` and `old`, and writes the others."""
        kept = () if state is None else (state,)
        strides = {
            "CELL_STRIDE": context.layout(old).pixel_stride,
            "NEW_CELL_STRIDE": context.layout(fresh).pixel_stride,
            "STATE_STRIDE": 0 if state is None else context.layout(state).pixel_stride,
        }
        cell = context.pointer(old)
        in_groups = shares_cells(context.device)
        # In 64 bits: the work-items share sums of squares of levels of 16 bits.
        group = WorkGroup((GROUP_ITEMS, 1), (LocalArray("partial", "long", GROUP_ITEMS),))
        return spec.Launch(
            spec.function(
                "recurrent/steps_levels_cells.cl",
                f"f32_{'groups_' if in_groups else ''}lstm_levels_cells",
                {
                    "ROW_ITEMS": GROUP_ITEMS if in_groups else 0,
                    "GATES": self.gates,
                    "COMPLETED": bool(self.completions),
                    "NORMS": self.has_norms,
                    "BASIC": self.element is U8,
                    "OUT": self.element.opencl,
                    "KEEPS": state is not None,
                },
                group if in_groups else None,
                CELLS=self.cells,
                PADDED=round_up(self.cells),
                BATCH=self.batch,
                **out.parameters("OUT"),
                **strides,
                **self.numbers,
            ),
            (sums, *self.tables, *self.completions, out.argument, *kept, cell, fresh),
            units=self.batch,
            label=f"{self.node.op.name} cells",
            sources=self.node.sources,
            flops=20 * self.batch * self.cells,
            groups=(self.batch, 1) if in_groups else (),
        )


def tables(cell_bits: int) -> tuple[spec.PackedConstant, ...]:
    """Return the sigmoid of sums of gates, their tanh, and that of a cell with so many integer bits."""
    return (
        _table("sigmoid_levels", sigmoid_table()),
        _table(f"tanh_levels_{_CANDIDATE_BITS}", tanh_table(_CANDIDATE_BITS)),
        _table(f"tanh_levels_{cell_bits}", tanh_table(cell_bits)),
    )


def completions_packed(
    name: str, cell: IntegerCell, batch: int, cells: int
) -> tuple[spec.PackedConstant, ...]:
    """Pack peepholes, norms, biases of norms, and the numbers of each gate; nothing where there are none."""
    if not any((*cell.peepholes, *cell.norms)):
        return ()
    gates, padded = len(cell.order), round_up(cells)
    peepholes, norms = np.zeros((gates, batch, padded)), np.zeros((gates, padded))
    # Of each gate the factors of peephole and norm, three numbers each, the least variance, and a gap.
    biases, numbers = np.zeros((gates, padded)), np.zeros((gates, 8))
    for gate, (peephole, norm) in enumerate(zip(cell.peepholes, cell.norms, strict=True)):
        if peephole is not None:
            peepholes[gate, :, :cells] = peephole.weights
            numbers[gate, :3] = factor(peephole.scale)
        if norm is not None:
            norms[gate, :cells], biases[gate, :cells] = norm.weights, norm.bias
            # The reference's levels have 12 fractional bits more than what is normalised.
            numbers[gate, 3:6] = factor((norm.scale[0], norm.scale[1] + 12))
            numbers[gate, 6] = norm.least_variance
    return (
        spec.PackedConstant(f"{name}_peepholes", peepholes.size, lambda: peepholes, I16),
        spec.PackedConstant(f"{name}_norms", norms.size, lambda: norms, I16),
        spec.PackedConstant(f"{name}_norm_biases", biases.size, lambda: biases, I32),
        spec.PackedConstant(f"{name}_numbers", numbers.size, lambda: numbers, I32),
    )


def factor(scale: tuple[int, int]) -> tuple[int, int, int]:
    """Return multiplier, left and right shift of a quantised multiplier."""
    multiplier, shift = scale
    return multiplier, max(shift, 0), max(-shift, 0)
