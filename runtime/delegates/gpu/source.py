"""Writes the text of kernels from launches. Equal functions appear once.

A layer's row of the table holds the number of its function, the offsets of its pointers in lines of 64 bytes,
and the values of its parameters: a function is called with what its row says, so that it holds no shape.

Each function is a kernel of its own, whose text depends on nothing else in the partition, so that a backend
can keep what its compiler made of it for all models. Where a device calls functions by their addresses
(`Capabilities.shares_one_kernel`), one kernel more, `run_layers`, takes the table, and one enqueue can run
one layer or many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.lowering.spec import Launch, PackedConstant
from runtime.delegates.gpu.parameters import Parameters, type_of


@dataclass(frozen=True, slots=True)
class Function:
    """What a launch compiles to: launches with equal functions share the compiled code.

    `spaces` marks each pointer, the operands of the epilogue at the end: A into the arena, C to constants.
    `parameters` are names with their types in OpenCL C.
    """

    source: str
    name: str
    defines: tuple[tuple[str, int | str], ...]
    expression: str
    operand_count: int
    spaces: str
    parameters: tuple[tuple[str, str], ...]
    is_unit: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of one kernel. `runs_on_nothing`: with null pointers it may be run, and does nothing."""

    name: str
    text: str
    runs_on_nothing: bool = True


@dataclass(frozen=True, slots=True)
class Source:
    """The kernels of a partition by the numbers of their functions; `common` stands in front of each.

    `names` tells functions apart in this partition alone, for people who read profiles.
    """

    common: str
    kernels: Sequence[Kernel]
    names: Mapping[Function, str]
    numbers: Mapping[Function, int]


def function_of(launch: Launch) -> Function:
    """The function that a launch calls."""
    pointers = (*launch.args, *launch.epilogue.operands)
    return Function(
        source=launch.instance.source,
        name=launch.instance.name,
        defines=launch.instance.defines,
        expression=launch.epilogue.expression,
        operand_count=len(launch.epilogue.operands),
        spaces="".join("C" if isinstance(pointer, PackedConstant) else "A" for pointer in pointers),
        parameters=tuple((name, type_of(value)) for name, value in parameters_of(launch)),
        is_unit=launch.work_size is None,
    )


def parameters_of(launch: Launch) -> Parameters:
    """The parameters with which a launch calls its function, in the function's order."""
    units = (("UNITS", launch.units),) if launch.work_size is None else ()
    return (*launch.instance.parameters, *launch.epilogue.parameters, *units)


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
    operands = [f"__global const float *restrict e{i}" for i in range(function.operand_count)]
    values = [f"const {kind} {key}" for key, kind in function.parameters]
    defines = {
        "FUNC": name,
        "EPILOGUE(v, p, c)": function.expression,
        "PARAMETERS": "".join(f", {parameter}" for parameter in (*operands, *values)),
        **{key: str(value) for key, value in function.defines},
    }
    before = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    after = "".join(f"#undef {key.split('(')[0]}\n" for key in defines)
    return before + kernel_source(function.source) + after


def _call_text(function: Function, name: str) -> str:
    """The call with what stands in `row`, by the macros of `kernels/common.cl`."""
    kinds = {"A": "ARENA", "C": "CONSTANT", "int": "INTEGER", "float": "REAL"}
    content = (*function.spaces, *(kind for _, kind in function.parameters))
    arguments = [f"{kinds[kind]}({place})" for place, kind in enumerate(content, 1)]
    return f"{name}({', '.join([*(['t', 'nt'] if function.is_unit else []), *arguments])})"


def assemble(launches: Iterable[Launch], device: Capabilities) -> Source:
    """The kernel of every distinct function, each complete behind `common.cl`."""
    names = _unique_names(function_of(launch) for launch in launches)
    return Source(
        kernel_source("common.cl"),
        tuple(_kernel(function, device) for function in names),
        names,
        {function: number for number, function in enumerate(names)},
    )


def trial_kernels() -> tuple[Kernel, Kernel]:
    """A function with which calls by address are tried, and `run_layers`, which calls it and all others."""
    call = "double_vectors(t, nt, ARENA(1), ARENA(2), INTEGER(3))"
    text = kernel_source("called_probe.cl") + _entry("called.cl", KERNEL="run_called_probe", CALL=call)
    return Kernel("run_called_probe", text), Kernel("run_layers", kernel_source("layers.cl"))


def _kernel(function: Function, device: Capabilities) -> Kernel:
    """A function with its entry. Its name differs from that of any other function, in whichever program.

    Compilers look for their results by the name, so it must tell two texts of one function apart, too.
    """
    content = repr(function) + kernel_source(function.source)
    name = f"{function.name}_{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    entry = {"KERNEL": f"run_{name}", "CALL": _call_text(function, name)}
    text = _function_text(function, name)
    if device.shares_one_kernel:
        return Kernel(entry["KERNEL"], text + _entry("called.cl", **entry))
    text += _entry("enqueued.cl", **entry, UNIT_FUNCTION=str(int(function.is_unit)))
    return Kernel(entry["KERNEL"], text, function.is_unit)


def _entry(file_name: str, **defines: str) -> str:
    before = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    after = "".join(f"#undef {key}\n" for key in defines)
    return before + kernel_source(file_name) + after
