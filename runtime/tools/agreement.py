"""The rule by which a result agrees with its reference, with all tolerances (described in docs/measuring.md).

r = reference output, y = output, n = elements, each output of each input set on its own:

* float models: ||y - r|| <= tol * ||r|| + 1e-6 * sqrt(n), tol = 1e-4 in fp32, 2e-2 in fp16
* pure integer models on `cpu` or on a delegate's integer path, against the reference kernels: bit-equal
* every other pairing with quantised activations or hybrid weights: cosine of the dequantised outputs >= 0.98
* always: a NaN or Inf where the reference has none, a wrong shape or a wrong dtype fails
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from runtime.delegates.base import Array
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType

FP32_TOLERANCE = 1e-4
"""Largest ||y - r|| / ||r|| of a float model in fp32. Chosen: over a thousand roundings of 6e-8, so that
another order of summation passes in a deep network; a wrong kernel is off by far more."""

FP16_TOLERANCE = 2e-2
"""The same in fp16, whose rounding of 5e-4 is about 8000 times as coarse; not scaled by it, as a result must
stay useful."""

ABSOLUTE_FLOOR = 1e-6
"""Difference allowed per element beside the relative bound (times sqrt(n) in the norm): outputs almost zero
have no meaningful relative error."""

MIN_COSINE = 0.98
"""Smallest cosine of dequantised outputs without exact equality. Chosen: kernels that requantise otherwise
differ by a few quantisation steps in each layer, and keep the direction."""

_FLOATS = {TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64, TensorType.BFLOAT16}
_SMALL_INTEGERS = {TensorType.INT4, TensorType.INT8, TensorType.UINT8, TensorType.INT16}


class Arithmetic(StrEnum):
    """The arithmetic of a model, by which its rule is chosen."""

    FLOAT = "float"
    INTEGER = "integer"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Rule:
    """How outputs are compared. `tolerance` is tol, the smallest cosine, or 0 for bit-equal."""

    kind: Literal["norm", "cosine", "bit_equal"]
    tolerance: float
    text: str


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """Name and affine quantisation of one output; scale 0 means it is not quantised."""

    name: str
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The worst figures over all outputs and sets, and the verdict. None: not defined (note says why)."""

    max_abs: float | None
    rel_l2: float | None
    cosine: float | None
    verdict: Literal["pass", "fail"]
    rule: str
    note: str = ""


def arithmetic_of(model: Model) -> Arithmetic:
    """Return whether a model computes in floats, in integers only, or in both (hybrid weights included).

    A leading QUANTIZE and a trailing DEQUANTIZE do not make an integer model mixed.
    """
    quantised = any(_is_quantised_activation(t) for t in model.subgraphs[0].tensors)
    if not quantised and not any(_is_hybrid(model.subgraphs[0], op) for op in model.subgraphs[0].operators):
        return Arithmetic.FLOAT
    if quantised and not _has_float_arithmetic(model.subgraphs[0]):
        return Arithmetic.INTEGER
    return Arithmetic.MIXED


def _is_quantised_activation(tensor: Tensor) -> bool:
    return not tensor.is_constant and tensor.type in _SMALL_INTEGERS and _has_scale(tensor)


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


def rule_for(
    arithmetic: Arithmetic, *, integer_path: bool, precision: str, exact_reference: bool = True
) -> Rule:
    """Return the rule for one pairing of a model and a delegate.

    `integer_path`: the delegate computes integer models in integers (`cpu` does). `precision`: "fp32" or
    "fp16". `exact_reference`: the reference was made by reference kernels, not by another fast path.
    """
    if arithmetic is Arithmetic.FLOAT:
        tolerance = FP16_TOLERANCE if precision == "fp16" else FP32_TOLERANCE
        return Rule(
            "norm", tolerance, f"|y-r| <= {tolerance:g}*|r| + {ABSOLUTE_FLOOR:g}*sqrt(n) ({precision})"
        )
    if arithmetic is Arithmetic.INTEGER and integer_path and exact_reference:
        return Rule("bit_equal", 0.0, "bit-equal to the reference kernels (pure integer model)")
    return Rule(
        "cosine", MIN_COSINE, f"cosine of dequantised outputs >= {MIN_COSINE:g} (quantised or hybrid)"
    )


def judge(
    references: Sequence[Sequence[Array]],
    outputs: Sequence[Sequence[Array]],
    facts: Sequence[OutputFacts],
    rule: Rule,
) -> Judgement:
    """Compare output sets, where `references[k][i]` is output i for input set k.

    The note of a failure is that of the first output that fails.
    """
    if len(outputs) != len(references) or any(len(y) != len(facts) for y in (*outputs, *references)):
        return Judgement(None, None, None, "fail", rule.text, "the number of outputs differs")
    comparisons = [
        _compare(r, y, fact, rule, k)
        for k, (rs, ys) in enumerate(zip(references, outputs, strict=True))
        for r, y, fact in zip(rs, ys, facts, strict=True)
    ]
    notes = [c.note for c in comparisons if c.verdict == "fail"]
    return Judgement(
        max_abs=_worst(max, (c.max_abs for c in comparisons)),
        rel_l2=_worst(max, (c.rel_l2 for c in comparisons)),
        cosine=_worst(min, (c.cosine for c in comparisons)),
        verdict="fail" if notes else "pass",
        rule=rule.text,
        note=notes[0] if notes else "",
    )


def worst(judgements: Sequence[Judgement]) -> Judgement:
    """Join the judgements of several processes: fail if any fails, with the worst figure of each kind."""
    failed = [j for j in judgements if j.verdict == "fail"]
    return Judgement(
        max_abs=_worst(max, (j.max_abs for j in judgements)),
        rel_l2=_worst(max, (j.rel_l2 for j in judgements)),
        cosine=_worst(min, (j.cosine for j in judgements)),
        verdict="fail" if failed else "pass",
        rule=judgements[0].rule,
        note=failed[0].note if failed else "",
    )


def _worst(pick: Any, values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return pick(known) if known else None


def _compare(r: Array, y: Array, fact: OutputFacts, rule: Rule, k: int) -> Judgement:
    """Judge one output of one input set. Positions where the reference is not finite do not count."""
    where = f"output {fact.name!r} of input set {k}"
    if y.dtype != r.dtype or y.shape != r.shape:
        note = f"{where}: {y.dtype}{list(y.shape)}, the reference has {r.dtype}{list(r.shape)}"
        return Judgement(None, None, None, "fail", rule.text, note)
    real_r, real_y = _real(r, fact), _real(y, fact)
    comparable = np.isfinite(real_r)
    wild = comparable & ~np.isfinite(real_y)
    if wild.any():
        note = f"{where}: {int(wild.sum())} values are NaN or Inf where the reference has none"
        return Judgement(None, None, None, "fail", rule.text, note)
    figures = _figures(real_r[comparable], real_y[comparable])
    passed, note = _decide(rule, figures, r, y)
    return Judgement(
        max_abs=figures.max_abs,
        rel_l2=figures.rel_l2,
        cosine=figures.cosine,
        verdict="pass" if passed else "fail",
        rule=rule.text,
        note="" if passed else f"{where}: {note}",
    )


@dataclass(frozen=True, slots=True)
class _Figures:
    count: int
    max_abs: float
    error: float
    norm: float
    cosine: float

    @property
    def rel_l2(self) -> float | None:
        """The relative error ||y - r|| / ||r||; 0 where both are zero, None where only r is."""
        if self.norm > 0.0:
            return self.error / self.norm
        return 0.0 if self.error == 0.0 else None


def _figures(r: Array, y: Array) -> _Figures:
    """Return the error measures of two flat float64 arrays."""
    difference = y - r
    norm_r, norm_y = float(np.linalg.norm(r)), float(np.linalg.norm(y))
    if norm_r > 0.0 and norm_y > 0.0:
        # Divided first: the product of two large norms could overflow. Rounding may give a little over 1.
        cosine = min(1.0, float(np.dot(r / norm_r, y / norm_y)))
    else:
        cosine = 1.0 if norm_r == norm_y else 0.0
    return _Figures(
        count=r.size,
        max_abs=float(np.abs(difference).max(initial=0.0)),
        error=float(np.linalg.norm(difference)),
        norm=norm_r,
        cosine=cosine,
    )


def _decide(rule: Rule, figures: _Figures, r: Array, y: Array) -> tuple[bool, str]:
    if rule.kind == "bit_equal":
        same = (r == y) | ((r != r) & (y != y))  # NaN equals NaN here
        different = int(r.size - np.count_nonzero(same))
        return different == 0, f"{different} of {r.size} values differ, largest by {figures.max_abs:g}"
    if rule.kind == "cosine":
        return figures.cosine >= rule.tolerance, f"cosine {figures.cosine:.6f} < {rule.tolerance:g}"
    bound = rule.tolerance * figures.norm + ABSOLUTE_FLOOR * math.sqrt(figures.count)
    return figures.error <= bound, f"|y-r| = {figures.error:.3g} > {bound:.3g}"


def _real(values: Array, fact: OutputFacts) -> Array:
    """Return an output as flat float64, dequantised where it is quantised."""
    flat = values.reshape(-1).astype(np.float64)
    return flat if fact.scale == 0.0 else fact.scale * (flat - fact.zero_point)
