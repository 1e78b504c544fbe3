"""Writes `docs/operators.md` from the registries: every operator, its types, and its runners.

python -m runtime.tools.operator_table docs/operators.md     writes the file
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.delegates.registry import delegate_descriptor, delegate_factory
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.registry import CUSTOM_SPECS, SPECS, OpSpec

_COLUMNS = (
    TensorType.FLOAT32,
    TensorType.FLOAT16,
    TensorType.FLOAT64,
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.BOOL,
)
_NOT_OPERATORS = (
    BuiltinOperator.CUSTOM,
    BuiltinOperator.DELEGATE,
    BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES,
)

_HEAD = """# Operators

Written by `python -m runtime.tools.operator_table docs/operators.md` from the registries; a test fails when
this file is stale.

A column is a type of the operator's data (its activations); **c** is the CPU path, **g** the `gpu` delegate.
The number is the newest version of the operator that the CPU path takes. Constant weights, indices and shapes
may have further types: the notes name those that matter.
"""

_CUSTOM_HEAD = """
## Custom operators

Registered with `custom_operator` (`runtime/ops/support/registry.py`); any other ends `unsupported`, with its
name.
"""

_ABSENT_HEAD = """
## Builtin operators without a kernel

LiteRT's own resolvers register no kernel for these either: the schema lists them for converters, or their
kernels were removed.
"""


def operator_table(gpu: Mapping[BuiltinOperator | str, Sequence[TensorType]]) -> str:
    """Return the whole file; `gpu` holds the types that the delegate's kernels support, by operator."""
    lines = [_HEAD, *_table(gpu), _CUSTOM_HEAD]
    for name, spec in sorted(CUSTOM_SPECS.items()):
        lines.append(f"- `{name}`{' (also the `gpu` delegate)' if name in gpu else ''}{_after(spec)}")
    absent = sorted(o.name for o in BuiltinOperator if o not in SPECS and o not in _NOT_OPERATORS)
    return "\n".join([*lines, _ABSENT_HEAD, ", ".join(absent)]) + "\n"


def _after(spec: OpSpec) -> str:
    return f": {spec.note}" if spec.note else ""


def _table(gpu: Mapping[BuiltinOperator | str, Sequence[TensorType]]) -> Iterable[str]:
    names = [t.name.lower() for t in _COLUMNS]
    yield "| operator | version | " + " | ".join(names) + " | further types | notes |"
    yield "|---|---|" + "---|" * (len(names) + 2)
    for opcode in sorted(SPECS, key=lambda o: o.name):
        spec = SPECS[opcode]
        cells = [_cell(t, spec.types, gpu.get(opcode, ())) for t in _COLUMNS]
        further = ", ".join(t.name.lower() for t in spec.types if t not in _COLUMNS)
        yield f"| {opcode.name} | {spec.max_version} | {' | '.join(cells)} | {further} | {spec.note} |"


def _cell(column: TensorType, cpu: Sequence[TensorType], gpu: Sequence[TensorType]) -> str:
    # A type that the CPU path lacks is in no model that runs at all.
    return " ".join(mark for mark, types in (("c", cpu), ("g", gpu)) if column in types and column in cpu)


def gpu_types() -> Mapping[BuiltinOperator | str, Sequence[TensorType]]:
    """Return what the `gpu` delegate has kernels for. Raises `DelegateError` where its package is missing."""
    # The registry knows the delegate's class as a callable only.
    factory: Any = delegate_factory(delegate_descriptor("gpu"))
    found: Mapping[BuiltinOperator | str, Sequence[TensorType]] = factory.operator_types()
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the table to the file in `arguments`; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m runtime.tools.operator_table FILE\n")
        return 2
    Path(arguments[0]).write_text(operator_table(gpu_types()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
