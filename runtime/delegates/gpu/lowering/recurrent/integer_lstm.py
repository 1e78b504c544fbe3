"""LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM on integers: int8 with an int16 cell, the basic kernel on uint8.

The products of the input are one launch for all steps; each step then is the products of the state, what
follows from them, and the projection if there is one. Functions of 16 bits are the CPU path's own tables.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.recurrent.integer_cell import (
    I8,
    I16,
    I32,
    U8,
    Cells,
    Product,
    completions_packed,
    factor,
    shares_cells,
    stages_packed,
    tables,
    weights_packed,
)
from runtime.delegates.gpu.lowering.recurrent.lstm import is_basic, supports_basic
from runtime.delegates.gpu.lowering.recurrent.steps import (
    Rows,
    extent_of,
    mixed_types,
    unsupported_cell,
    whole,
)
from runtime.errors import FarmRuntimeError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from runtime.ops.recurrent.basic_lstm import STATE_BITS, BasicScaling, basic_scaling
from runtime.ops.recurrent.float_lstm import LstmSlots
from runtime.ops.recurrent.integer_cell import IntegerCell, Scaling, integer_cell
from runtime.ops.support import OpContext
from runtime.ops.support.quantization import RANGES
from runtime.ops.support.value import Value

_SLOTS = LstmSlots()
_STATES, _BASIC_STATES = (_SLOTS.state, _SLOTS.cell), (1, 4)
_BASIC_MATRIX, _BASIC_BIAS = 2, 3
_BASIC_ORDER = (1, 0, 2, 3)
"""Where the kernels' gates, candidate, input, forget and output, stand in the basic kernel's matrix."""

_FULL = (I8,) * 9 + (I16,) * 3 + (I32,) * 4 + (I8, I32, I8, I16) + (I16,) * 4
"""The types of the inputs of the full kernel, in LiteRT's order."""

_BASIC = (U8, U8, U8, I32, I16)
"""The same of the basic kernel."""


def _context(facts: spec.OperatorFacts) -> OpContext:
    """Return the operator as the CPU path's readers of cells see it."""
    graph = facts.graph

    def value(tensor: int) -> Value:
        known, constant = graph.subgraph.tensors[tensor], graph.constants.get(tensor)
        form = (tensor, known.name, known.type, graph.shapes[tensor], known.quantization, constant)
        return Value(*form, stored=known)

    operator = facts.operator
    inputs = tuple(value(t) if t >= 0 else None for t in operator.inputs)
    return OpContext(operator, inputs, tuple(value(t) for t in operator.outputs))


def _cell(facts: spec.OperatorFacts) -> IntegerCell | BasicScaling:
    op, tensors = _context(facts), facts.graph.subgraph.tensors
    if is_basic(facts):
        return basic_scaling(op)
    shape = facts.shape(0)
    batch = shape[1] if len(shape) == 3 and facts.options.get("time_major") else shape[0]
    return integer_cell(op, _SLOTS, batch, lambda i: tensors[i].quantization)


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    wanted, states = (_BASIC, _BASIC_STATES) if is_basic(facts) else (_FULL, _STATES)
    if (mixed := mixed_types(facts, wanted)) is not None:
        return mixed
    weights = [i for i in range(1, len(wanted)) if i not in states]
    refused = supports_basic(facts) if is_basic(facts) else unsupported_cell(facts, states, weights)
    if refused is not None:
        return refused
    try:
        _cell(facts)
    except FarmRuntimeError as error:
        return Unsupported(str(error))
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    attributes = {"cell": _cell(facts), "time_major": bool(facts.options.get("time_major", False))}
    places = zip(_BASIC_STATES, (0, 1), strict=True) if is_basic(facts) else ((i, None) for i in _STATES)
    states = {facts.operator.inputs[i]: output for i, output in places}
    # A file may leave out the last inputs, which are optional.
    inputs = (*facts.operator.inputs, *(-1,) * len(_FULL))[: len(_FULL)]
    return spec.NodeSpec(inputs, attributes, states=states)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One candidate: the launches of all steps, one step behind the other."""
    if isinstance(node.attributes["cell"], BasicScaling):
        return [spec.Candidate("steps", tuple(_basic_launches(node, context)))]
    steps = _Steps(node, context)
    launches = [steps.given(), *(launch for t in range(steps.extent.time) for launch in steps.at(t))]
    return [spec.Candidate("steps", tuple(launches))]


class _Steps:
    """The launches of a node of the full kernel; constants are packed once for all steps."""

    def __init__(self, node: Node, context: spec.Context) -> None:
        cell: IntegerCell = node.attributes["cell"]
        self.node, self.context = node, context
        self.x, self.previous, self.old = (node.input(i) for i in (0, *_STATES))
        self.y, (self.state, self.fresh) = node.outputs[0], node.outputs[-2:]
        self.extent = extent_of(node, context.value(self.x).shape)
        self.give = self._product("input", [_SLOTS.inputs[g] for g in cell.order], cell.given)
        self.recur = self._product("recurrent", [_SLOTS.recurrent[g] for g in cell.order], cell.recurrent)
        self.cells, batch = self.give.rows // self.give.gates, self.extent.batch
        self.behind = self._behind(cell)
        scratch = spec.Scratch("given", self.extent.time * batch * self.give.padded, I16)
        self.of_inputs = Rows(scratch, 0, 1, self.give.padded)
        self.sums = Rows(spec.Scratch("sums", batch * self.give.padded, I16), 0, 1, self.give.padded)
        padded = round_up(self.cells)
        self.hidden = Rows(spec.Scratch("hidden", batch * padded, I8), 0, 1, padded)
        self.project: Product | None = None
        if cell.projection is not None:
            # A clip of 0 means none.
            clip = cell.clips[1] or -RANGES[TensorType.INT8][0]
            bounds = (max(RANGES[TensorType.INT8][0], -clip), min(RANGES[TensorType.INT8][1], clip))
            project = self._product("projection", [_SLOTS.projection[0]], cell.projection)
            self.project = replace(project, types=(I8, I8, I8), zero=cell.state_zero, bounds=bounds)

    def _product(self, part: str, slots: Sequence[int], scaling: Scaling) -> Product:
        name, count = f"lstm{self.node.id}_{part}", len(slots)
        matrix = np.concatenate([self.context.constant(self.node.input(i)) for i in slots])
        weights = weights_packed(name, matrix, count, I8)
        stages = stages_packed(f"{name}_stages", scaling, len(matrix), count)
        shared = shares_cells(self.context.device)
        types = (I8, I8, I16)
        return Product(self.node, part, weights, stages, len(matrix), count, types, in_groups=shared)

    def _behind(self, cell: IntegerCell) -> Cells:
        names = ("MULTIPLIER", "LEFT", "RIGHT", "ZERO", "CELL_SHIFT", "CELL_CLIP")
        values = (*factor(cell.to_hidden), cell.hidden_zero, 30 + cell.cell_bits, cell.clips[0])
        batch = self.extent.batch
        return Cells(
            self.node,
            self.give.gates,
            self.cells,
            batch,
            tables(15 + cell.cell_bits),
            completions_packed(f"lstm{self.node.id}", cell, batch, self.cells),
            any(norm is not None for norm in cell.norms),
            I8,
            dict(zip(names, values, strict=True)),
        )

    def given(self) -> spec.Launch:
        """Return the products of the input, for all steps."""
        every, size = whole(self.context, self.x), self.context.value(self.x).channels
        return self.give.launch(every, size, self.of_inputs, self.extent.time * self.extent.batch)

    def at(self, t: int) -> list[spec.Launch]:
        """Return the launches of step `t`: the state's products, what follows, the projection."""
        context, batch = self.context, self.extent.batch
        y = self.extent.rows(context, self.y, t)
        before = whole(context, self.previous) if t == 0 else self.extent.rows(context, self.y, t - 1)
        # The products lie row by row as the pixels of the input do, whose order is the output's.
        added = replace(self.of_inputs, first=y.first, step=y.step)
        size, old = context.value(self.previous).channels, self.old if t == 0 else self.fresh
        sums = self.recur.launch(before, size, self.sums, batch, added=added)
        if self.project is None:
            return [sums, self.behind.launch(context, self.sums.argument, y, self.state, old, self.fresh)]
        cells = self.behind.launch(context, self.sums.argument, self.hidden, None, old, self.fresh)
        kept = whole(context, self.state)
        return [sums, cells, self.project.launch(self.hidden, self.cells, y, batch, state=kept)]


def _basic_launches(node: Node, context: spec.Context) -> list[spec.Launch]:
    scaling: BasicScaling = node.attributes["cell"]
    x, previous, old = (node.input(i) for i in (0, *_BASIC_STATES))
    y, fresh = node.outputs[:2]
    batch, cells = context.value(previous).pixels, context.value(previous).channels
    name, size = f"lstm{node.id}", context.value(x).channels
    matrix = context.constant(node.input(_BASIC_MATRIX)).astype(np.int16) - np.int16(scaling.weight_zero)
    bias = context.constant(node.input(_BASIC_BIAS)).astype(np.int64)
    # Takes off what the input's zero point brings into each sum.
    bias = bias - scaling.input_zero * matrix.sum(axis=1, dtype=np.int64)
    rows = np.concatenate([np.arange(g * cells, (g + 1) * cells) for g in _BASIC_ORDER])
    stages = Scaling(bias[rows], np.array([scaling.multiplier]), np.array([scaling.shift]))
    product = Product(
        node,
        "gates",
        weights_packed(f"{name}_weights", matrix[rows], 4, I16),
        stages_packed(f"{name}_stages", stages, 4 * cells, 4),
        4 * cells,
        4,
        (U8, I16, I16),
        ties_up=True,
        in_groups=shares_cells(context.device),
    )
    sums = Rows(spec.Scratch("sums", batch * product.padded, I16), 0, 1, product.padded)
    numbers = {"ZERO": scaling.input_zero, "CELL_SHIFT": STATE_BITS, "CELL_CLIP": 0}
    numbers |= {"MULTIPLIER": 0, "LEFT": 0, "RIGHT": 0}
    behind = Cells(node, 4, cells, batch, tables(STATE_BITS), (), False, U8, numbers)
    joined = (whole(context, previous), cells)
    return [
        product.launch(whole(context, x), size, sums, batch, previous=joined),
        behind.launch(context, sums.argument, whole(context, y), None, old, fresh),
    ]


_SEQUENCE = tuple((one,) for one in _FULL)
# At each place the full kernel's type, and the basic kernel's where it has the place; equal ones once.
_STEP = tuple(tuple(dict.fromkeys((one, *_BASIC[i : i + 1]))) for i, one in enumerate(_FULL))
FAMILY = spec.Family(
    operators=(Op.LSTM, Op.UNIDIRECTIONAL_SEQUENCE_LSTM),
    read=_read,
    lower=lower,
    supports=_supports,
    types={
        Op.LSTM: spec.Types(_STEP, ((I8, U8), (I16,), (U8,), (I16,))),
        Op.UNIDIRECTIONAL_SEQUENCE_LSTM: spec.Types(_SEQUENCE, ((I8,),)),
    },
)
