"""Compares each operator of a delegate with the CPU path, on the device that the delegate has opened."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from runtime.api.interpreter import Interpreter
from runtime.delegates.abilities import Checkable, Conformance
from runtime.delegates.base import Array, PartitionDelegate
from runtime.delegates.registry import load_delegate
from runtime.errors import DelegateError, FarmRuntimeError, UnsupportedPrecisionError
from runtime.judge.agreement import Expected, OutputFacts, judge
from runtime.judge.rules import Arithmetic, rule_for
from runtime.tools.operator_check.matrix import matrix
from runtime.tools.operator_check.rows import Row, model_of

PRECISIONS: Final = ("fp32", "tf32", "fp16", "bf16")
"""The precisions in which every operator is compared; one that the device cannot do is left out."""

_PLAIN: Final = {
    "conformance": "ignored",
    "tuning": "none",
    "persistent": "off",
    "cost_aware_partitioning": False,
    "max_delegated_partitions": 1000,
}
"""What is asked is whether kernels are right: not whether they are worth it, nor which is the fastest."""

_RUNS: Final = 2
"""The second run works on memory that the first has left, which shows what a kernel forgets to write. More
would repeat it."""

_Outputs = Sequence[Sequence[Array]]


def check_device(
    delegate: str,
    options: Mapping[str, Any],
    rows: Sequence[Row] | None = None,
    precisions: Sequence[str] = PRECISIONS,
) -> Conformance:
    """Check the operators of a delegate on the device that `options` choose, and let the delegate keep it.

    `rows`: those of the matrix by default; what is kept speaks of these alone. Raises `DelegateError` for a
    delegate that keeps no findings or lacks the options of the check, and `DeviceError` where the device
    cannot be opened.
    """
    found, checked = Conformance(), None
    for precision in precisions:
        try:
            loaded = load_delegate(delegate, {**options, **_PLAIN, "precision": precision})
        except UnsupportedPrecisionError:
            # The device has no such precision, so that no kernel of it can ever run there.
            continue
        if not (isinstance(loaded, PartitionDelegate) and isinstance(loaded, Checkable)):
            raise DelegateError(f"{delegate}: its operators cannot be checked: it keeps no findings")
        found = _joined(found, compared(loaded, precision, matrix() if rows is None else rows))
        checked = loaded
    if checked is None:
        raise DelegateError(f"{delegate}: none of the precisions {', '.join(precisions)} can be used")
    checked.keep_conformance(found)
    return found


def compared(delegate: PartitionDelegate, precision: str, rows: Sequence[Row]) -> Conformance:
    """Compare the rows on the delegate with the CPU path; rows that it refuses are in neither part.

    All rows are one model, whose kernels are compiled at once; where that does not run, each is its own.
    """
    # A refused row would run on the CPU path, and agree with itself.
    taken = [row for row in rows if not _refused(delegate, row)]
    try:
        outputs = _delegated(delegate, taken)
    except FarmRuntimeError:
        return _one_by_one(delegate, precision, taken)
    return _judged(taken, outputs, precision)


def _one_by_one(delegate: PartitionDelegate, precision: str, rows: Sequence[Row]) -> Conformance:
    found = Conformance()
    for row in rows:
        try:
            found = _joined(found, _judged([row], _delegated(delegate, [row]), precision))
        except FarmRuntimeError as error:
            found = _joined(found, Conformance((), {row.title: str(error).splitlines()[0]}))
    return found


def _joined(first: Conformance, second: Conformance) -> Conformance:
    """Join two results: an operator is right if all its rows are; the first difference is kept."""
    wrong = {**second.wrong, **first.wrong}
    agreed = dict.fromkeys((*first.agreed, *second.agreed))
    return Conformance(tuple(name for name in agreed if name not in wrong), wrong)


def _judged(rows: Sequence[Row], outputs: _Outputs, precision: str) -> Conformance:
    found, references = Conformance(), _outputs(Interpreter(model_content=model_of(rows)), rows)
    for row, ours, theirs in zip(rows, outputs, references, strict=True):
        difference = next(_differences(ours, theirs, precision), None)
        one = Conformance((row.title,)) if difference is None else Conformance((), {row.title: difference})
        found = _joined(found, one)
    return found


def _differences(ours: Sequence[Array], theirs: Sequence[Array], precision: str) -> Iterator[str]:
    for number, (y, r) in enumerate(zip(ours, theirs, strict=True)):
        is_real = np.issubdtype(r.dtype, np.inexact)
        arithmetic = Arithmetic.FLOAT if is_real else Arithmetic.INTEGER
        rule = rule_for(arithmetic, integer_path=True, precision=precision)
        # Complex numbers as pairs of real ones, which the rule knows.
        parts = [value.view(np.float32) if np.iscomplexobj(value) else value for value in (r, y)]
        found = judge(Expected([[parts[0]]], [OutputFacts(f"output {number}")]), [[parts[1]]], rule)
        if found.verdict == "fail":
            yield f"{precision}: {found.note}"


def _refused(delegate: PartitionDelegate, row: Row) -> bool:
    report = Interpreter(model_content=model_of([row]), experimental_delegates=[delegate]).delegation
    return report is None or bool(report.fallbacks)


def _delegated(delegate: PartitionDelegate, rows: Sequence[Row]) -> _Outputs:
    """Return the outputs of each row. Raises `DelegateError` if a part of them ran on the CPU."""
    interpreter = Interpreter(model_content=model_of(rows), experimental_delegates=[delegate])
    try:
        outputs, report = _outputs(interpreter, rows), interpreter.delegation
    finally:
        interpreter.close()
    # Behind the runs: a partition that does not compile is planned again without the delegate.
    if report is None or report.fallbacks:
        raise DelegateError(report.fallbacks[0].reason if report is not None else "nothing was delegated")
    return outputs


def _outputs(interpreter: Interpreter, rows: Sequence[Row]) -> _Outputs:
    values = [value for row in rows for value in row.inputs]
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    for _ in range(_RUNS):
        interpreter.invoke()
    found = iter(interpreter.get_output_details())
    return [[interpreter.get_tensor(next(found)["index"]) for _ in row.results] for row in rows]
