"""One model on the reference and on the CPU path: the rule that decides, and the two distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from runtime.api.interpreter import Interpreter
from runtime.model.facts import kind_of
from runtime.model.graph import Model
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from tests.oracle import LiteRtError, OracleDiedError, answer_of_litert

REFERENCE, BUILTIN, XNNPACK = "BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "BUILTIN"
INVOCATIONS = 3
"""A stateful model shows its state only in a row of invocations."""

DRAWS = 6

Outputs = list[np.ndarray]


@dataclass(frozen=True)
class Noise:
    """Some networks amplify rounding beyond any tolerance, and no two ways of adding agree on them better.

    `moved`: how far the reference goes when every input moves by one unit in the last place (the largest of
    five draws); `builtin`: how far LiteRT's own optimised kernels are from its reference ones.
    """

    moved: float
    builtin: float

    def covers(self, ours: float) -> bool:
        """Only where the network amplifies: a well-conditioned one owes the plain rule."""
        return ours <= self.moved or (self.moved > _AMPLIFIES and ours <= self.builtin)

    def __str__(self) -> str:
        return f"one ulp of the inputs moves the reference by {self.moved:.3g}; builtin {self.builtin:.3g}"


_AMPLIFIES = 1e-5


@dataclass(frozen=True)
class Comparison:
    """A comparison of ours with the reference. Distances are relative L2 norms, the largest over the outputs.

    `excess`: where several draws of inputs were needed, by how much ours is further than XNNPACK in the mean,
    less two standard errors.
    """

    rule: str
    reference: str
    ours: float
    xnnpack: float | None
    equal: bool
    close: bool
    noise: Noise | None = None
    excess: float | None = None

    @property
    def passes(self) -> bool:
        if self.rule == "equal":
            return self.equal
        if self.rule == "no further than XNNPACK" and self.xnnpack is not None:
            return self.close or self.ours <= self.xnnpack or (self.excess is not None and self.excess <= 0)
        return self.close or (self.noise is not None and self.noise.covers(self.ours))

    def __str__(self) -> str:
        peer = "-" if self.xnnpack is None else f"{self.xnnpack:.3g}"
        noise = "" if self.noise is None else f"; {self.noise}"
        excess = "" if self.excess is None else f"; means of {DRAWS} draws, excess {self.excess:.3g}"
        return f"{self.rule}; from {self.reference}: ours {self.ours:.3g}, XNNPACK {peer}{noise}{excess}"


def compared_on_random_inputs(data: bytes) -> Comparison:
    """On one draw; where a mixed model fails on that, on the mean of several: rounding that flips one level
    early grows to percents in a deep network, and a single draw then says nothing."""
    first = compared(data, random_rows(data))
    if first.passes or first.xnnpack is None or first.rule == "close":
        return first
    draws = [first, *(compared(data, random_rows(data, seed)) for seed in range(1, DRAWS))]
    ours, peers = np.array([d.ours for d in draws]), np.array([d.xnnpack for d in draws])
    excess = float((ours - peers).mean() - 2 * (ours - peers).std(ddof=1) / np.sqrt(DRAWS))
    return replace(first, ours=float(ours.mean()), xnnpack=float(peers.mean()), excess=excess)


def compared(data: bytes, rows: Sequence[Sequence[np.ndarray]]) -> Comparison:
    """Run every row of inputs, in order, on both. `rows[i][j]`: input j of invocation i."""
    rule = rule_of(read_model(data))
    reference, wanted = _reference(data, rows)
    found = run_ours(data, rows)
    xnnpack = in_litert(data, rows, XNNPACK) if reference != XNNPACK and rule != "equal" else None
    close = all(_close(y, r) for a, b in zip(found, wanted, strict=True) for y, r in zip(a, b, strict=True))
    noise = _noise(data, rows, reference, wanted) if rule == "close" and not close else None
    return Comparison(
        rule,
        reference,
        distance(found, wanted),
        None if xnnpack is None else distance(xnnpack, wanted),
        all(_equal(y, r) for a, b in zip(found, wanted, strict=True) for y, r in zip(a, b, strict=True)),
        close,
        noise,
    )


def _noise(data: bytes, rows: Sequence[Sequence[np.ndarray]], reference: str, wanted: list[Outputs]) -> Noise:
    moved = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        nearby = [[_nudged(value, rng) for value in row] for row in rows]
        moved.append(distance(in_litert(data, nearby, reference), wanted))
    return Noise(max(moved), distance(in_litert(data, rows, BUILTIN), wanted))


def _nudged(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if value.dtype != np.float32:
        return value
    return np.nextafter(value, np.float32(np.inf) * rng.choice(np.array([-1, 1], np.float32), value.shape))


def rule_of(model: Model) -> str:
    """Pure integer models bit for bit; float models closely; what mixes both no worse than the peer."""
    kind = kind_of(model)
    if kind in ("float32", "fp16 weights"):
        return "close"
    makers = {i: o.opcode for s in model.subgraphs for o in s.operators for i in o.outputs}
    pure = kind == "integer" and not any(
        tensor.type is TensorType.FLOAT32
        and makers.get(tensor.index, BuiltinOperator.DEQUANTIZE) is not BuiltinOperator.DEQUANTIZE
        for tensor in model.subgraphs[0].tensors
        if not tensor.is_constant
    )
    return "equal" if pure else "no further than XNNPACK"


def random_rows(data: bytes, seed: int = 0) -> list[list[np.ndarray]]:
    """Rows of random inputs for `INVOCATIONS` invocations: floats in [-1, 1), levels over their whole range,
    masks and indices of 0 and 1, the shape that a transposed convolution asks for as it is."""
    model = read_model(data)
    graph = model.subgraphs[0]
    rng = np.random.default_rng(seed)
    count = INVOCATIONS if _has_state(model) else 1
    return [[_values(graph.tensors[i], graph, rng) for i in graph.inputs] for _ in range(count)]


def _has_state(model: Model) -> bool:
    return any(o.opcode is BuiltinOperator.VAR_HANDLE for s in model.subgraphs for o in s.operators)


def _values(tensor: object, graph: object, rng: np.random.Generator) -> np.ndarray:
    shape = tuple(tensor.shape)
    if tensor.type is TensorType.FLOAT32:
        return rng.uniform(-1, 1, shape).astype(np.float32)
    if tensor.quantization is not None and tensor.quantization.scales:
        bounds = np.iinfo(tensor.type.name.lower())
        return rng.integers(bounds.min, bounds.max, shape, dtype=bounds.dtype, endpoint=True)
    for operator in graph.operators:
        if operator.opcode is BuiltinOperator.TRANSPOSE_CONV and operator.inputs[0] == tensor.index:
            return np.array(graph.tensors[operator.outputs[0]].shape, np.int32)
    return rng.integers(0, 2, shape).astype(tensor.type.name.lower())


def run_ours(data: bytes, rows: Sequence[Sequence[np.ndarray]]) -> list[Outputs]:
    interpreter = Interpreter(model_content=data)
    return run_rows(interpreter, rows)


def run_rows(interpreter: object, rows: Sequence[Sequence[np.ndarray]]) -> list[Outputs]:
    """Make the same calls for LiteRT's interpreter and for ours."""
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    outputs = []
    for row in rows:
        for detail, value in zip(details, row, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        outputs.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    return outputs


def run_rows_in_litert(
    litert: object, data: bytes, rows: list[list[np.ndarray]], resolver: str
) -> list[Outputs]:
    """In the oracle's worker."""
    kind = litert.OpResolverType[resolver]
    interpreter = litert.Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kind)
    return run_rows(interpreter, rows)


def in_litert(data: bytes, rows: Sequence[Sequence[np.ndarray]], resolver: str) -> list[Outputs]:
    """Return the outputs of each invocation in LiteRT with the kernels of `resolver`, on one thread."""
    function = "tests.models.comparison:run_rows_in_litert"
    return answer_of_litert(function, data, [list(row) for row in rows], resolver)


def _reference(data: bytes, rows: Sequence[Sequence[np.ndarray]]) -> tuple[str, list[Outputs]]:
    """Return the outputs of the reference kernels; of XNNPACK if those refuse the model."""
    try:
        return REFERENCE, in_litert(data, rows, REFERENCE)
    except (LiteRtError, OracleDiedError):
        return XNNPACK, in_litert(data, rows, XNNPACK)


def distance(found: list[Outputs], wanted: list[Outputs]) -> float:
    """Return the largest relative L2 distance of any output."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        for y, r in zip(a, b, strict=True):
            size = float(np.linalg.norm(r.astype(np.float64)))
            worst = max(
                worst, float(np.linalg.norm(y.astype(np.float64) - r.astype(np.float64))) / (size or 1.0)
            )
    return worst


def _equal(y: np.ndarray, r: np.ndarray) -> bool:
    return y.dtype == r.dtype and y.shape == r.shape and np.array_equal(y, r, equal_nan=y.dtype.kind == "f")


def _close(y: np.ndarray, r: np.ndarray) -> bool:
    """||y - r|| <= 1e-5 ||r|| + 1e-6 sqrt(n), special values at the same places."""
    if y.dtype != r.dtype or y.shape != r.shape:
        return False
    if y.dtype.kind != "f":
        return bool(np.array_equal(y, r))
    finite = np.isfinite(r)
    if not np.array_equal(y[~finite], r[~finite], equal_nan=True) or not np.isfinite(y[finite]).all():
        return False
    a, b = y[finite].astype(np.float64), r[finite].astype(np.float64)
    return bool(np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b) + 1e-6 * np.sqrt(r.size))
