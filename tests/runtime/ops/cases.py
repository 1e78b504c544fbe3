"""An operator case as data, and the one comparison: a backend against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from runtime.api.interpreter import Interpreter
from runtime.model.graph import Model, Operator, Subgraph
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.oracle import run_litert
from tests.runtime import kernel_checker
from tests.runtime.models import Arg, Out, one_operator
from tests.runtime.ops.families import RUNS, Family
from tests.runtime.ops.gpu_expectations import LEVELS, expectation

RELATIVE = 1e-5
"""Allowed error, relative to the result and to the typical size of its terms: sums in single precision need
it where their order differs. Larger hides wrong kernels; smaller refuses right ones."""

_QUIET = np.uint32(0x00400000)
"""The bit of a float32's significand that tells a quiet NaN from a signalling one (IEEE 754)."""


@dataclass(frozen=True)
class Backend:
    """`cpu`, or a delegate that must do with each case what the case says.

    `members` are the cases of a file that it takes and runs together, as the `family`.
    """

    name: str
    delegate: Any | None
    family: Family | None = None
    members: tuple[Case, ...] = ()

    @classmethod
    def of(cls, name: str, delegate: Any, members: Sequence[Case]) -> Backend:
        """Return a delegate that runs these cases together, where there are any."""
        family = Family(delegate, [(case.model, case.inputs) for case in members]) if members else None
        return cls(name, delegate, family, tuple(members))

    def outputs(self, case: Case) -> list[np.ndarray] | None:
        """Results of a case that ran with the others of its file; None where it must run by itself."""
        places = [i for i, member in enumerate(self.members) if member is case]
        return self.family.outputs(places[0]) if self.family is not None and places else None


CPU = Backend("cpu", None)


@dataclass(frozen=True)
class Case:
    """A model, mostly of one operator, and its inputs. LiteRT lacks reference kernels for a few: `resolver`.

    `refused`: each operator that the GPU delegate must leave to the CPU path, and the reason it must give.
    """

    name: str
    model: bytes
    inputs: tuple[np.ndarray, ...]
    resolver: str = "BUILTIN_REF"
    refused: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def case(
    name: str,
    opcode: BuiltinOperator,
    args: Sequence[Arg | None],
    outs: Sequence[Out] = (Out(),),
    options: Mapping[str, Any] | None = None,
    version: int = 1,
    resolver: str = "BUILTIN_REF",
) -> Case:
    model = one_operator(opcode, args, outs, options, version)
    inputs = tuple(a.value for a in args if a is not None and not a.constant)
    return Case(name, model, inputs, resolver, expectation(name, opcode, args, outs))


def operators(case: Case) -> frozenset[BuiltinOperator]:
    """Return the operators that a case has, in whichever subgraph."""
    return frozenset(one.opcode for graph in read_model(case.model).subgraphs for one in graph.operators)


def types(case: Case) -> frozenset[TensorType]:
    """Return the types of the tensors that a case has."""
    return frozenset(one.type for graph in read_model(case.model).subgraphs for one in graph.tensors)


def random(*shape: int, seed: int = 0, low: float = -3.0, high: float = 3.0) -> Arg:
    """Return a float32 operand, uniform in [low, high)."""
    return Arg(np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32))


def patterns(*shape: int, seed: int = 0) -> Arg:
    """Return a float32 operand of random bits: NaNs of all kinds, infinities, denormals and both zeros
    too.
    """
    bits = np.random.default_rng(seed).integers(0, 1 << 32, shape, np.uint32)
    special = np.uint32([0x7FC12345, 0xFFC00001, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000, 0, 1])
    flat = bits.reshape(-1)
    flat[::5] = np.resize(special, flat[::5].size)
    return Arg(bits.view(np.float32))


def inside(case: Case) -> Case:
    """Put the case between operators that flip signs: the delegate then moves its padded rows, not the
    host's.
    """
    model = read_model(case.model)
    (graph,) = model.subgraphs
    tensors, before, behind = list(graph.tensors), [], []

    def flip(tensor: int, operators: list[Operator], *, is_input: bool) -> int:
        outer = replace(tensors[tensor], index=len(tensors), name=f"flipped{tensor}")
        tensors.append(outer)
        source, target = (outer.index, tensor) if is_input else (tensor, outer.index)
        operators.append(Operator(0, BuiltinOperator.NEG, 1, (source,), (target,), {}))
        return outer.index

    inputs = tuple(flip(tensor, before, is_input=True) for tensor in graph.inputs)
    outputs = tuple(flip(tensor, behind, is_input=False) for tensor in graph.outputs)
    operators = [replace(o, index=i) for i, o in enumerate((*before, *graph.operators, *behind))]
    whole = Subgraph(0, "inside", tuple(tensors), inputs, outputs, tuple(operators))
    inner = write_model(Model(3, "inside", (whole,)))
    return replace(case, name=f"{case.name}_inside", model=inner)


def levels(*shape: int, seed: int = 0, quantization: Any = None, low: int = -128, high: int = 127) -> Arg:
    """Return an int8 operand over the given levels, bounds included."""
    values = np.random.default_rng(seed).integers(low, high, shape, endpoint=True).astype(np.int8)
    return Arg(values, quantization)


def constant(arg: Arg) -> Arg:
    return Arg(arg.value, arg.quantization, constant=True)


def check(case: Case, backend: Backend) -> None:
    """Check shape, type and values against LiteRT's BUILTIN_REF; integers bit for bit.

    What the delegate refuses is computed by the CPU path and compared all the same.
    """
    expected = run_litert(case.model, case.inputs, case.resolver)
    found = run_ours(case, backend)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        if is_simulated(case, backend):
            compare_levels(ours, theirs)
        else:
            compare(ours, theirs)


def is_simulated(case: Case, backend: Backend) -> bool:
    """Return True if the delegate computes a quantised model with real numbers, instead of as LiteRT does."""
    tensors = read_model(case.model).subgraphs[0].tensors
    quantized = any(t.quantization is not None and t.data is None and t.type in LEVELS for t in tensors)
    return backend.delegate is not None and not case.refused and quantized


def compare_levels(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Quantised results differ by a level at most, and by half of one in the root mean square."""
    if ours.dtype.kind not in "iu":
        compare(ours, theirs)
        return
    difference = ours.astype(np.float64) - theirs
    assert not difference.size or np.abs(difference).max() <= 1
    assert not difference.size or np.mean(difference * difference) <= 0.25


def check_bits(case: Case, backend: Backend) -> None:
    """Check operators that only move elements: every bit is LiteRT's, those of NaNs too."""
    expected = run_litert(case.model, case.inputs, case.resolver)
    found = run_ours(case, backend)
    assert [(y.shape, y.dtype) for y in found] == [(r.shape, r.dtype) for r in expected]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(_bits(ours), _bits(theirs))


def _bits(values: np.ndarray) -> np.ndarray:
    """Bits of values; on the checker's device, whose arithmetic makes signalling NaNs quiet, all NaNs are."""
    bits = values.view(np.uint32)
    return np.where(np.isnan(values), bits | _QUIET, bits) if kernel_checker.wanted() else bits


def compare(ours: np.ndarray, theirs: np.ndarray) -> None:
    if ours.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs)
        return
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[~finite], theirs[~finite])
    r, y = theirs[finite].astype(np.float64), ours[finite].astype(np.float64)
    terms = np.sqrt(np.mean(r * r)) if r.size else 0.0
    excess = np.abs(y - r) - RELATIVE * (np.abs(r) + terms)
    assert not r.size or excess.max() <= 0, f"off by {np.abs(y - r).max():.3g} where {terms:.3g} is typical"


def run_ours(case: Case, backend: Backend, runs: int = RUNS) -> list[np.ndarray]:
    together = backend.outputs(case)
    if together is not None:
        return together
    delegates = None if backend.delegate is None else [backend.delegate]
    interpreter = Interpreter(model_content=case.model, experimental_delegates=delegates)
    interpreter.allocate_tensors()
    # Behind the plan: a partition that does not compile is planned again without the delegate.
    if interpreter.delegation is not None:
        refused = {f.op: f.reason for f in interpreter.delegation.fallbacks}
        assert refused == case.refused, f"{backend.name} refuses {refused}; expected {dict(case.refused)}"
    for details, value in zip(interpreter.get_input_details(), case.inputs, strict=True):
        interpreter.set_tensor(details["index"], value)
    for _ in range(runs):
        interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def ours(model: bytes, *inputs: np.ndarray) -> np.ndarray:
    """Return the sole output of a model on the CPU path."""
    (found,) = run_ours(Case("", model, inputs), CPU)
    return found
