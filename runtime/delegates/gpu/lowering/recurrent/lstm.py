"""LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM on floats: the basic and the full kernel, step by step.

Each step is one launch; a projection, or the normalisation of gates, is a second or third one. In work-groups
the products of the inputs of all steps are one product ahead of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import GROUP_ITEMS, LocalArray, WorkGroup, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.recurrent.steps import (
    ACTIVATIONS,
    Extent,
    Rows,
    blocks_of,
    extent_of,
    for_lanes,
    matrices_packed,
    step_function,
    step_launch,
    sums_of,
    unsupported_cell,
    vectors_packed,
    whole,
)
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import LSTMKernelType

_X, _STATE, _CELL = 0, 18, 19
_INPUT, _FORGET, _CANDIDATE, _OUTPUT = range(4)
_GATES = (_CANDIDATE, _INPUT, _FORGET, _OUTPUT)
"""The gates in the kernels' order."""

_WEIGHTS, _RECURRENT, _PEEPHOLES, _BIASES, _PROJECTION, _NORMS = 1, 5, 9, 12, 16, 20
"""The first input of each kind in the full kernel, whose gates are in the order input, forget, candidate,
output; the peepholes have no candidate."""

_MOST_INPUTS = 24
"""Inputs of the full kernel with normalised gates; others may lack the last four."""

_FULL_STATES: Mapping[int, int | None] = {_STATE: None, _CELL: None}
"""The states of the full kernel, which has no outputs for them."""

_BASIC_STATES, _BASIC_MATRIX, _BASIC_BIAS = (1, 4), 2, 3
"""The inputs of the basic kernel: previous output and state, one matrix, one bias for all gates."""

_BASIC_GATES = (1, 0, 2, 3)
"""Where the kernels' gates stand in the basic kernel's order, which is input, candidate, forget, output."""


def is_basic(facts: spec.OperatorFacts) -> bool:
    """Return True for the basic kernel."""
    return facts.options.get("kernel_type") == LSTMKernelType.BASIC


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if is_basic(facts):
        return supports_basic(facts)
    weights = [i for i in range(1, _MOST_INPUTS) if i not in (_STATE, _CELL)]
    refused = unsupported_cell(facts, (_STATE, _CELL), weights)
    if refused is not None:
        return refused
    if facts.has_input(_RECURRENT + _OUTPUT) and len(facts.shape(_RECURRENT + _OUTPUT)) == 1:
        return Unsupported("diagonal recurrent weights have no kernel")
    return None


def supports_basic(facts: spec.OperatorFacts) -> Unsupported | None:
    """Return why the basic kernel, on floats or integers, cannot run here, or None."""
    if spec.activation_of(facts) != "TANH":
        return Unsupported("the basic kernel without TANH has no kernel")
    beside = facts.operator.outputs[2:]
    graph = facts.graph.subgraph
    read = {tensor for operator in graph.operators for tensor in operator.inputs} | {*graph.outputs}
    for tensor in beside:
        if tensor in read:
            return Unsupported(f"tensor {tensor}, working memory of the basic kernel, is read")
    return unsupported_cell(facts, _BASIC_STATES, (_BASIC_MATRIX, _BASIC_BIAS))


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Read the inputs by their places in LiteRT's list, absent ones as -1."""
    options = facts.options
    attributes = {
        "basic": is_basic(facts),
        "activate": ACTIVATIONS[spec.activation_of(facts)],
        "cell_clip": float(options.get("cell_clip", 0.0)),
        "proj_clip": float(options.get("proj_clip", 0.0)),
        "time_major": bool(options.get("time_major", False)),
    }
    places = dict(zip(_BASIC_STATES, (0, 1), strict=True)) if is_basic(facts) else _FULL_STATES
    states = {facts.operator.inputs[i]: output for i, output in places.items()}
    inputs = (*facts.operator.inputs, *(-1,) * _MOST_INPUTS)[:_MOST_INPUTS]
    return spec.NodeSpec(inputs, attributes, states=states)


@dataclass(frozen=True, slots=True)
class _Cell:
    """The constants of a cell: one array for each gate in the kernels' order, the input's being absent in
    CIFG; peepholes of input, forget and output gate; `norms` of the gates, and what the projection adds.
    """

    inputs: Sequence[spec.Array]
    recurrent: Sequence[spec.Array]
    biases: Sequence[spec.Array]
    peepholes: Sequence[spec.Array] = ()
    norms: Sequence[spec.Array] = ()
    projection: tuple[spec.Array, spec.Array] | None = None

    @property
    def cells(self) -> int:
        return int(self.inputs[0].shape[0])


def _cell(node: Node, context: spec.Context) -> _Cell:
    def at(i: int) -> spec.Array:
        return context.constant(node.input(i))

    if node.attributes["basic"]:
        matrices, biases = np.split(at(_BASIC_MATRIX), 4), np.split(at(_BASIC_BIAS), 4)
        size = context.value(node.first).channels
        parts = [np.split(matrices[g], [size], axis=1) for g in _BASIC_GATES]
        return _Cell([x for x, _ in parts], [h for _, h in parts], [biases[g] for g in _BASIC_GATES])
    gates = [g for g in _GATES if node.inputs[_WEIGHTS + g] is not None]
    inputs, recurrent = ([at(first + g) for g in gates] for first in (_WEIGHTS, _RECURRENT))
    zeros = np.zeros(len(inputs[0]), np.float32)
    peepholes: list[spec.Array] = []
    if node.inputs[_PEEPHOLES + 2] is not None:
        peepholes = [zeros if node.inputs[i] is None else at(i) for i in range(_PEEPHOLES, _PEEPHOLES + 3)]
    norms = [at(_NORMS + g) for g in gates] if node.inputs[_NORMS + _OUTPUT] is not None else []
    projection = None
    if node.inputs[_PROJECTION] is not None:
        matrix = at(_PROJECTION)
        start = np.zeros(matrix.shape[0], np.float32)
        projection = (matrix, start if node.inputs[_PROJECTION + 1] is None else at(_PROJECTION + 1))
    return _Cell(inputs, recurrent, [at(_BIASES + g) for g in gates], peepholes, norms, projection)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One candidate: the launches of all steps, one step behind the other."""
    steps = _Steps(node, context, _cell(node, context))
    launches = (launch for t in range(steps.extent.time) for launch in steps.at(t))
    return [spec.Candidate("steps", (*steps.sums.ahead, *launches))]


class _Steps:
    """The launches of one node; constants are packed once for all steps."""

    def __init__(self, node: Node, context: spec.Context, cell: _Cell) -> None:
        states = _BASIC_STATES if node.attributes["basic"] else (_STATE, _CELL)
        self.node, self.context, self.cell = node, context, cell
        self.x, self.previous, self.old = (node.input(i) for i in (_X, *states))
        # The basic kernel's output and its new state are operands of the model; the full kernel's are added.
        self.y = node.outputs[0]
        self.state, self.fresh = node.outputs[:2] if node.attributes["basic"] else node.outputs[-2:]
        self.extent: Extent = extent_of(node, context.value(self.x).shape)
        self.gates, self.padded = len(cell.inputs), round_up(cell.cells)
        name = f"lstm{node.id}"
        # Normalised gates get their biases behind the normalisation.
        starts = [np.zeros_like(bias) for bias in cell.biases] if cell.norms else cell.biases
        self.sums = sums_of(node, context, self.extent, cell.inputs, cell.recurrent, starts)
        self.peepholes = (vectors_packed(f"{name}_peepholes", cell.peepholes),) if cell.peepholes else ()
        self.behind = self._packed_behind(name)

    def _packed_behind(self, name: str) -> Mapping[str, spec.PackedConstant]:
        found = {}
        if self.cell.norms:
            found["norms"] = vectors_packed(f"{name}_norms", self.cell.norms)
            found["biases"] = vectors_packed(f"{name}_norm_biases", self.cell.biases)
        if self.cell.projection is not None:
            matrix, bias = self.cell.projection
            found["projection"] = matrices_packed(f"{name}_projection", [matrix])
            found["start"] = vectors_packed(f"{name}_projection_bias", [bias])
        return found

    def at(self, t: int) -> list[spec.Launch]:
        """Return the launches of step `t`: the sums, their results, the projection."""
        y = self.extent.rows(self.context, self.y, t)
        hidden = Rows(spec.Scratch("hidden", self.extent.batch * self.padded), 0, 1, self.padded)
        out = y if self.cell.projection is None else hidden
        found = [self._sums(t, out)]
        if self.cell.norms:
            found.append(self._normalized(t, out))
        if self.cell.projection is not None:
            found.append(self._projected(y, hidden))
        return found

    def _tails(self, t: int) -> tuple[tuple[spec.Argument, ...], dict[str, int | float]]:
        """Return the arguments behind the sums: the pointers behind `out`, the states' parameters."""
        # From the second step on, a step continues from what the one before it wrote.
        before = self.old if t == 0 else self.fresh
        kept = (self.state,) if self._keeps() else ()
        cell = self.context.pointer(before) if t == 0 else before
        strides = {
            "CELL_STRIDE": self.context.layout(before).pixel_stride,
            "NEW_CELL_STRIDE": self.context.layout(self.fresh).pixel_stride,
            "STATE_STRIDE": self.context.layout(self.state).pixel_stride,
        }
        clip = {"CELL_CLIP": self.node.attributes["cell_clip"], "CELLS": self.cell.cells}
        return (*kept, cell, self.fresh, *self.peepholes), {**strides, **clip}

    def _keeps(self) -> bool:
        """Whether a step stores its result twice: as its output, and as the state for the next run."""
        return self.cell.projection is None and self.state != self.y

    def _forms(self, *, sums_only: bool) -> dict[str, int | str]:
        return {
            "GATES": self.gates,
            "PEEPHOLES": bool(self.peepholes) and not sums_only,
            "KEEPS": self._keeps() and not sums_only,
            "ACTIVATE(x)": self.node.attributes["activate"],
        }

    def _sums(self, t: int, out: Rows) -> spec.Launch:
        sums, x = self.sums, self.sums.source(self.extent.rows(self.context, self.x, t))
        before = whole(self.context, self.previous)
        if t > 0:
            before = self.extent.rows(self.context, self.y, t - 1)
        has_norm = bool(self.cell.norms)
        behind, strides = self._tails(t)
        outputs = self.context.value(self.previous).channels
        target: spec.Argument = self._scratch() if has_norm else out.argument
        form = {"SUMS_ONLY": has_norm, "GIVEN": sums.given is not None}
        instance = step_function(
            self.context.device,
            "lstm_sums" if has_norm else "lstm_step",
            spec.joined(self._forms(sums_only=has_norm), form),
            INPUTS=sums.inputs,
            OUTPUTS=outputs,
            **strides,
            **x.parameters("X"),
            **before.parameters("PREVIOUS"),
            **out.parameters("OUT"),
            **divisor("UNIT_BLOCKS", blocks_of(self.cell.cells)),
        )
        pointers = (x.argument, before.argument, sums.weights, *sums.biases, target)
        arguments = pointers if has_norm else (*pointers, *behind)
        work = self.extent.batch * self.gates * self.cell.cells * (sums.inputs + outputs)
        return self._launch(instance, arguments, self.extent.batch * blocks_of(self.cell.cells), work)

    def _normalized(self, t: int, out: Rows) -> spec.Launch:
        behind, strides = self._tails(t)
        file, name, form = "steps_normalized", "lstm_normalized", self._forms(sums_only=False)
        group = None
        if suits_groups(self.context.device):
            file, name = f"{file}_groups", f"groups_{name}"
            group = WorkGroup((GROUP_ITEMS, 1), (LocalArray("partial", "float", GROUP_ITEMS),))
            form["ROW_ITEMS"] = GROUP_ITEMS
        instance = spec.function(
            f"recurrent/{file}.cl",
            f"f32_{name}",
            for_lanes(form, self.context.device),
            group,
            PADDED=self.padded,
            **strides,
            **out.parameters("OUT"),
        )
        arguments = (self._scratch(), self.behind["norms"], self.behind["biases"], out.argument, *behind)
        return self._launch(instance, arguments, self.extent.batch, self.extent.batch * self.cell.cells)

    def _projected(self, y: Rows, hidden: Rows) -> spec.Launch:
        """Return a step of one gate, to which the hidden cells are the input, without a previous output."""
        outputs, clip = self.context.value(self.y).channels, self.node.attributes["proj_clip"]
        form = {
            "GATES": 1,
            "PEEPHOLES": 0,
            "SUMS_ONLY": 0,
            "KEEPS": 1,
            "GIVEN": 0,
            "ACTIVATE(x)": "clamp{lanes}(x, -CLIP, CLIP)" if clip > 0 else "(x)",
        }
        instance = step_function(
            self.context.device,
            "lstm_projection",
            form,
            CELLS=outputs,
            INPUTS=self.cell.cells,
            OUTPUTS=0,
            CLIP=clip,
            STATE_STRIDE=self.context.layout(self.state).pixel_stride,
            **hidden.parameters("X"),
            **hidden.parameters("PREVIOUS"),
            **y.parameters("OUT"),
            **divisor("UNIT_BLOCKS", blocks_of(outputs)),
        )
        matrix, start = self.behind["projection"], self.behind["start"]
        # The second one stands in for the previous output, of which OUTPUTS=0 elements are read.
        arguments = (hidden.argument, hidden.argument, matrix, start, y.argument, self.state)
        work = self.extent.batch * self.cell.cells * outputs
        return self._launch(instance, arguments, self.extent.batch * blocks_of(outputs), work)

    def _scratch(self) -> spec.Scratch:
        return spec.Scratch("sums", self.extent.batch * self.gates * self.padded)

    def _launch(
        self, instance: spec.Instance, arguments: tuple[spec.Argument, ...], units: int, work: int
    ) -> spec.Launch:
        return step_launch(self.node, self.context, instance, arguments, units, work=work)


FAMILY = spec.Family(
    operators=(Op.LSTM, Op.UNIDIRECTIONAL_SEQUENCE_LSTM), read=_read, lower=lower, supports=_supports
)
