"""Writes a program's text from launches. Equal functions appear once.

Where a device runs all functions behind one kernel (`Capabilities.shares_one_kernel`), that kernel,
`run_layers`, takes a table of (function, offsets): the compiler then optimises each function once, and one
enqueue can run one layer or many. On other devices each function is a kernel of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.lowering.spec import Launch, PackedConstant

TABLE_ROW = 24
"""Integers in a row of the layer table, `ROW` of `kernels/layers.cl`: the function's number, then one offset
for each pointer, in lines of 64 bytes. A function with more pointers would not fit."""

GPU_ARGUMENTS = 16
"""Most pointers of a function on a GPU: their offsets travel in one argument of the type int16, a vector of
16 integers."""


@dataclass(frozen=True, slots=True)
class Function:
    """What a launch compiles to: launches with equal functions share the compiled code."""

    source: str
    name: str
    defines: tuple[tuple[str, int | str], ...]
    expression: str
    operand_count: int
    spaces: str
    is_unit: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A program's text, and the unique name of each function; the position is the function's number."""

    text: str
    names: Mapping[Function, str]
    numbers: Mapping[Function, int]


def function_of(launch: Launch) -> Function:
    """The function that a launch calls; `spaces` marks each pointer: A into the arena, C to constants."""
    pointers = (*launch.args, *launch.epilogue.operands)
    return Function(
        source=launch.instance.source,
        name=launch.instance.name,
        defines=(*launch.instance.defines, *launch.epilogue.defines, ("UNITS", launch.units)),
        expression=launch.epilogue.expression,
        operand_count=len(launch.epilogue.operands),
        spaces="".join("C" if isinstance(pointer, PackedConstant) else "A" for pointer in pointers),
        is_unit=launch.work_size is None,
    )


@cache
def kernel_source(file_name: str) -> str:
    """The text of a file of `kernels/`; a `#line` directive makes build errors name the file and its line."""
    text = files("runtime.delegates.gpu").joinpath("kernels", file_name).read_text(encoding="utf-8")
    return f'#line 1 "{file_name}"\n{text}\n'


def _unique_names(functions: Iterable[Function]) -> dict[Function, str]:
    """The given names; functions that share one get a digest of their differences."""
    ordered = list(dict.fromkeys(functions))
    counts: dict[str, int] = {}
    for function in ordered:
        counts[function.name] = counts.get(function.name, 0) + 1
    return {
        function: function.name
        if counts[function.name] == 1
        else f"{function.name}_{hashlib.sha256(repr(function).encode()).hexdigest()[:6]}"
        for function in ordered
    }


def _function_text(function: Function, name: str) -> str:
    defines = {
        "FUNC": name,
        "EPILOGUE(v, p, c)": function.expression,
        "EPILOGUE_PARAMS": f"EPILOGUE_PARAMS_{function.operand_count}",
        **{key: str(value) for key, value in function.defines},
    }
    before = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    after = "".join(f"#undef {key.split('(')[0]}\n" for key in defines)
    return before + kernel_source(function.source) + after


def _pointers(function: Function, first: int) -> list[str]:
    kinds = {"A": "ARENA", "C": "CONSTANT"}
    numbers = [f"{i + first:x}" if first == 0 else str(i + first) for i in range(len(function.spaces))]
    return [f"{kinds[space]}({number})" for space, number in zip(function.spaces, numbers, strict=True)]


def assemble(launches: Iterable[Launch], device: Capabilities) -> Source:
    """Join `common.cl`, every distinct function, and its entry: one for all on PoCL's CPU devices."""
    names = _unique_names(function_of(launch) for launch in launches)
    parts = [kernel_source("common.cl")]
    cases = []
    for number, (function, name) in enumerate(names.items()):
        parts.append(_function_text(function, name))
        if not device.shares_one_kernel:
            parts.append(_kernel_text(function, name))
        else:
            call = f"{name}({', '.join(['t', 'nt', *_pointers(function, 1)])})"
            cases.append(f"CASE({number}, {call})")
    if device.shares_one_kernel:
        parts.append(f"#define LAYER_CASES {' '.join(cases)}\n{kernel_source('layers.cl')}")
    return Source("".join(parts), names, {function: number for number, function in enumerate(names)})


def _kernel_text(function: Function, name: str) -> str:
    workers = ["t", "nt"] if function.is_unit else []
    call = f"{name}({', '.join([*workers, *_pointers(function, 0)])})"
    defines = {"KERNEL": f"run_{name}", "CALL": call, "UNIT_FUNCTION": str(int(function.is_unit))}
    before = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    after = "".join(f"#undef {key}\n" for key in defines)
    return before + kernel_source("enqueued.cl") + after
