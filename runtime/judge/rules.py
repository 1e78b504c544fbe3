"""The rule by which a pairing of a model and a delegate is judged, and what it allows in any case.

The model's arithmetic and its state decide how its outputs can be judged.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

import numpy as np

from runtime.judge.bounds import FACTORS, MAX_RELATIVE, MIN_CENTRED_COSINE, Floor
from runtime.judge.figures import Reals, root_mean_square
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType

_FLOATS = {TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64, TensorType.BFLOAT16}
_SMALL_INTEGERS = {TensorType.INT4, TensorType.INT8, TensorType.UINT8, TensorType.INT16}


_STATEFUL = {
    BuiltinOperator.VAR_HANDLE,
    BuiltinOperator.RANDOM_UNIFORM,
    BuiltinOperator.RANDOM_STANDARD_NORMAL,
    BuiltinOperator.MULTINOMIAL,
}
"""Operators behind which an equal input may give another output; RNNs and LSTMs have variable tensors."""


class Arithmetic(StrEnum):
    """The arithmetic of a model, by which its rule is chosen."""

    FLOAT = "float"
    INTEGER = "integer"
    MIXED = "mixed"


def arithmetic_of(model: Model) -> Arithmetic:
    """Return whether a model computes in floats, in integers only, or in both (hybrid weights included).

    A leading QUANTIZE and a trailing DEQUANTIZE do not make an integer model mixed.
    """
    activations = (tensor for tensor in model.subgraphs[0].tensors if not tensor.is_constant)
    quantised = any(tensor.type in _SMALL_INTEGERS and _has_scale(tensor) for tensor in activations)
    if not quantised and not any(_is_hybrid(model.subgraphs[0], op) for op in model.subgraphs[0].operators):
        return Arithmetic.FLOAT
    if quantised and not _has_float_arithmetic(model.subgraphs[0]):
        return Arithmetic.INTEGER
    return Arithmetic.MIXED


def _has_scale(tensor: Tensor) -> bool:
    return tensor.quantization is not None and len(tensor.quantization.scales) > 0


def _is_hybrid(graph: Subgraph, op: Operator) -> bool:
    """Return whether an operator multiplies float activations by stored integers.

    DEQUANTIZE does not: its constant is unpacked once.
    """
    if op.opcode == BuiltinOperator.DEQUANTIZE:
        return False
    inputs = [graph.tensors[i] for i in op.inputs if i >= 0]
    stored = any(t.is_constant and t.type in _SMALL_INTEGERS and _has_scale(t) for t in inputs)
    return stored and any(not t.is_constant and t.type in _FLOATS for t in inputs)


def _has_float_arithmetic(graph: Subgraph) -> bool:
    """Return whether any operator but QUANTIZE and DEQUANTIZE reads or writes a float activation."""
    conversions = (BuiltinOperator.QUANTIZE, BuiltinOperator.DEQUANTIZE)
    return any(
        graph.tensors[i].type in _FLOATS and not graph.tensors[i].is_constant
        for op in graph.operators
        if op.opcode not in conversions
        for i in (*op.inputs, *op.outputs)
        if i >= 0
    )


def keeps_state(model: Model) -> bool:
    """Return whether an output may depend on earlier invokes: the model has variables or draws numbers."""
    return any(
        any(tensor.is_variable for tensor in graph.tensors)
        or any(op.opcode in _STATEFUL for op in graph.operators)
        for graph in model.subgraphs
    )


FP32_TOLERANCE: Final = 1e-4
"""Largest ||y - r|| / ||r|| of a float model in fp32 beside what honest runs differ by. Chosen: over a
thousand roundings of 6e-8, so that another order of summation passes in a deep network; a wrong kernel is off
by more."""

REDUCED_TOLERANCE: Final = 2e-2
"""The same in those of `REDUCED` where no run with rounded weights tells what rounding explains."""

ABSOLUTE_FLOOR: Final = 1e-6
"""Difference allowed per element beside the relative bound (times sqrt(n) in the norm): outputs almost zero
have no meaningful relative error."""

REDUCED: Final[Mapping[str, str]] = {"tf32": "fp16", "fp16": "fp16", "bf16": "bf16"}
"""Precisions whose rounding is coarser than fp32's → the type of the runs whose rounded weights explain it:
TF32 has the 11 significant bits of fp16."""

BOTH_OPERANDS: Final = math.sqrt(2.0)
"""Error of a delegate in such a precision over that of a draw: it may round both operands of a product, by
independent errors, and a draw rounds the weights alone. Without it a right transformer in bf16 is off by 1.01
bounds."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The way in which outputs are compared.

    `floats` and `quantised` are judged by every figure; of a `norm` the norm alone counts, of a `cosine` the
    two figures named there. `tolerance` is that of the norm, the smallest cosine, or 0. `draws`: the honest
    runs that count. `spread`: how many times a draw's error an honest one is expected to be.
    """

    kind: Literal["floats", "quantised", "norm", "cosine", "bit_equal"]
    tolerance: float
    text: str
    draws: tuple[str, ...] = ()
    spread: float = 1.0

    def floor(self, reference: Reals, quantum: float) -> Floor:
        """Return what is allowed of an output besides `bounds.FACTORS` times what honest runs differ by.

        `quantum` is its step.
        """
        if self.kind == "quantised":
            # A quarter of the values rounded the other way, one quantum each; none of those that are clamped.
            free = float(np.mean((reference > reference.min()) & (reference < reference.max())))
            norm, deviation = 0.5 * quantum * math.sqrt(free + 1.0 / reference.size), float(reference.std())
            slope = 0.4 * norm / deviation if deviation > 0.0 else 0.0
            return Floor(norm, 1.5 * quantum, 0.4 * norm, slope, quantum)
        share = self.tolerance * root_mean_square(reference)
        unit = share + ABSOLUTE_FLOOR
        return Floor(unit, 10.0 * unit, 0.3 * share + ABSOLUTE_FLOOR, 0.3 * self.tolerance, 3.0 * unit)


def score_bound(rule: Rule, values: Reals, quantum: float, honest: float) -> float:
    """Return what a single one of `values` may be off by. `honest`: the largest error of an honest run."""
    if rule.kind == "cosine":
        return max(2.0 * quantum, MAX_RELATIVE * root_mean_square(values)) + ABSOLUTE_FLOOR
    floor = rule.floor(values, quantum).largest if values.size else 0.0
    return floor + FACTORS["largest"] * rule.spread * honest + ABSOLUTE_FLOOR


def rule_for(
    arithmetic: Arithmetic,
    *,
    integer_path: bool,
    precision: str,
    exact_reference: bool = True,
    draws: Collection[str] = (),
) -> Rule:
    """Return the rule for one pairing of a model and a delegate.

    `integer_path`: the delegate computes integer models in integers (`cpu` does). `precision`: "fp32"
    or one of `REDUCED`. `exact_reference`: the reference was made by reference kernels, not by another fast
    path. `draws`: the honest runs that there are, by the values of `ReferenceKind`.
    """
    rounded, own = tuple(REDUCED.values()), REDUCED.get(precision, precision)
    # Of the runs with rounded weights, only those of the delegate's own type.
    known = tuple(name for name in draws if not name.startswith(rounded) or name.startswith(own))
    if arithmetic is Arithmetic.FLOAT:
        return _float_rule(precision, known)
    if arithmetic is Arithmetic.INTEGER and integer_path and exact_reference:
        return Rule("bit_equal", 0.0, "bit-equal to the reference kernels (pure integer model)")
    if known and exact_reference:
        text = f"within what {len(known)} honest runs and a part of a quantum explain (quantised or hybrid)"
        return Rule("quantised", 0.0, text, known)
    return Rule(
        "cosine",
        MIN_CENTRED_COSINE,
        f"centred cosine >= {MIN_CENTRED_COSINE:g} and |y-r| <= {MAX_RELATIVE:g}*|r| (quantised or hybrid)",
    )


def _float_rule(precision: str, draws: tuple[str, ...]) -> Rule:
    if precision in REDUCED and not any(name.startswith(REDUCED[precision]) for name in draws):
        text = f"|y-r| <= {REDUCED_TOLERANCE:g}*|r| + {ABSOLUTE_FLOOR:g}*sqrt(n) ({precision})"
        return Rule("norm", REDUCED_TOLERANCE, text)
    runs = f" and what {len(draws)} honest runs explain" if draws else ""
    text = f"within {FP32_TOLERANCE:g} of |r|{runs} ({precision})"
    return Rule("floats", FP32_TOLERANCE, text, draws, BOTH_OPERANDS if precision in REDUCED else 1.0)
