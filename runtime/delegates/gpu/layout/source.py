"""Writes the text of kernels from launches. Equal functions appear once.

A layer's row of the table holds the number of its function, the offsets of its pointers in lines of 64 bytes,
and the values of its parameters: a function is called with what its row says, so that it holds no shape.

Each function is a kernel of its own, whose text depends on nothing else in the partition, so that a backend
can keep what its compiler made of it for all models. Where a device calls functions by their addresses
(`Capabilities.shares_one_kernel`), one kernel more, `run_layers`, takes the table, and one enqueue can run
one layer or many.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.parameters import Parameters, type_of
from runtime.delegates.gpu.graph.work_groups import WorkGroup
from runtime.delegates.gpu.lowering.spec import Code, Launch, PackedConstant


@dataclass(frozen=True, slots=True)
class Function:
    """The code that a launch compiles to: launches with equal functions share it.

    `spaces` marks each pointer, the operands of the epilogue at the end: A into the arena, C to constants.
    `parameters` are names with their types in OpenCL C. `work_group` is None for a unit function. `halves`:
    the places of pointers to fp16.
    """

    source: str
    name: str
    defines: tuple[tuple[str, int | str], ...]
    expression: str
    operand_count: int
    spaces: str
    parameters: tuple[tuple[str, str], ...]
    work_group: WorkGroup | None = field(default=None, repr=False)
    halves: tuple[int, ...] = field(default=(), repr=False)

    @property
    def code(self) -> Code:
        """See `Launch.code`."""
        return self.source, self.name, self.defines, self.expression

    @property
    def identity(self) -> str:
        """A text in which two functions differ."""
        more = (self.work_group, self.halves) if self.halves else (self.work_group,)
        return repr(self) if self.work_group is None else repr((self, *more))


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of one kernel, behind a text that many have in `common`.

    `group` and `together` are those of its work-groups. With null pointers it may be run, and does nothing.
    """

    name: str
    text: str
    common: str = ""
    group: tuple[int, ...] = (1,)
    together: int = 0

    @property
    def whole(self) -> str:
        """The text that a compiler gets."""
        return self.common + self.text


@dataclass(frozen=True, slots=True)
class Source:
    """The kernels of a partition by the numbers of their functions.

    `names` tells functions apart in this partition alone, for people who read profiles.
    """

    kernels: Sequence[Kernel]
    names: Mapping[Function, str]
    numbers: Mapping[Function, int]


def function_of(launch: Launch) -> Function:
    """Return the function that a launch calls."""
    pointers = (*launch.args, *launch.epilogue.operands)
    return Function(
        source=launch.instance.source,
        name=launch.instance.name,
        defines=launch.instance.defines,
        expression=launch.epilogue.expression,
        operand_count=len(launch.epilogue.operands),
        spaces="".join("C" if isinstance(pointer, PackedConstant) else "A" for pointer in pointers),
        parameters=tuple((name, type_of(value)) for name, value in parameters_of(launch)),
        work_group=launch.instance.work_group,
        halves=launch.halves,
    )


def parameters_of(launch: Launch) -> Parameters:
    """Return the parameters with which a launch calls its function, in the function's order."""
    units = (("UNITS", launch.units),) if launch.instance.work_group is None else ()
    return (*launch.instance.parameters, *launch.epilogue.parameters, *units)


_POINTER = re.compile(r"\b(?:INPUT|OUTPUT)\((\w+)\)")
"""A pointer of a function of work-groups, in the macros of `kernels/portable_opencl.cl`."""

_SIGNATURE = re.compile(r"\bFUNC\((.*?)PARAMETERS\)", re.DOTALL)
"""The pointers that such a function always has; a macro of its file adds further ones behind them."""

_INLINED = """\
#ifdef {compiler}
#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)
#endif
{text}#ifdef {compiler}
#pragma clang attribute pop
#endif
"""
"""What makes a function of work-groups a part of its kernel at once. PoCL 3.1 gives each of its threads local
memory of its own only where a kernel itself uses it: if its compiler has put the arrays' addresses into a
function too large to be inlined, they stay static, and work-groups on two threads overwrite each other's.
AMD's compiler leaves functions with the largest tiles outside, too, and gives them their sums in memory."""


@cache
def kernel_source(file_name: str) -> str:
    """Read a file of `kernels/`; a `#line` directive makes build errors name the file and its line."""
    text = files("runtime.delegates.gpu").joinpath("kernels", file_name).read_text(encoding="utf-8")
    return f'#line 1 "{file_name}"\n{text}\n'


def _unique_names(functions: Iterable[Function]) -> dict[Function, str]:
    """Name the functions as given; functions that share a name get a digest of their differences."""
    ordered = list(dict.fromkeys(functions))
    counts: dict[str, int] = {}
    for function in ordered:
        counts[function.name] = counts.get(function.name, 0) + 1
    return {
        function: function.name
        if counts[function.name] == 1
        else f"{function.name}_{hashlib.sha256(function.identity.encode()).hexdigest()[:6]}"
        for function in ordered
    }


def _function_text(function: Function, name: str) -> str:
    operands = [f"__global const float *restrict e{i}" for i in range(function.operand_count)]
    arrays = () if function.work_group is None else function.work_group.arrays
    shared = [f"__local {array.type} *{array.name}" for array in arrays]
    values = [f"const {kind} {key}" for key, kind in function.parameters]
    defines = {
        "FUNC": name,
        "EPILOGUE(v, p, c)": function.expression,
        "PARAMETERS": "".join(f", {parameter}" for parameter in (*operands, *shared, *values)),
        **{key: str(value) for key, value in function.defines},
        **(_kinds_of_pointers(function) if function.halves else {}),
    }
    before = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    # Undefined again, because PoCL gets several functions in one program (`compile_child.py`).
    after = "".join(f"#undef {key.split('(')[0]}\n" for key in defines)
    loads = kernel_source("halves.cl") if function.halves else ""
    return before + loads + kernel_source(function.source) + after


def _kinds_of_pointers(function: Function) -> dict[str, str]:
    """Return what each buffer of a function holds, by the name that `kernels/halves.cl` makes of its own."""
    text = kernel_source(function.source)
    # The signature's pointers come first in a call, though
    # a macro that adds more may precede them in the file.
    always = next(iter(_SIGNATURE.findall(text)), "")
    named = tuple(dict.fromkeys(_POINTER.findall(f"{always}\n{text}")))
    given = len(function.spaces) - function.operand_count
    if len(named) < given:
        raise ValueError(f"{function.source} names {len(named)} of its {given} buffers")
    names = (*named[:given], *(f"e{i}" for i in range(function.operand_count)))
    return {f"{name}_IS": "F16" if place in function.halves else "F32" for place, name in enumerate(names)}


def _call_text(function: Function, name: str) -> str:
    """Write the call with the contents of `row`, by the macros of `kernels/common.cl`."""
    kinds = {"A": "ARENA", "C": "CONSTANT", "int": "INTEGER", "float": "REAL"}
    content = (*function.spaces, *(kind for _, kind in function.parameters))
    # Column 0 of a row is the function's number.
    arguments = [f"{kinds[kind]}({place})" for place, kind in enumerate(content, 1)]
    if function.work_group is None:
        return f"{name}({', '.join(['t', 'nt', *arguments])})"
    # Shared arrays follow the pointers, and have no column in the row.
    arguments[len(function.spaces) : len(function.spaces)] = [a.name for a in function.work_group.arrays]
    return f"{name}({', '.join(arguments)})"


def assemble(launches: Iterable[Launch], device: Capabilities) -> Source:
    """Assemble the kernel of every distinct function."""
    return assemble_functions((function_of(launch) for launch in launches), device)


def assemble_functions(functions: Iterable[Function], device: Capabilities) -> Source:
    """Assemble the kernels of functions, each once."""
    names = _unique_names(functions)
    return Source(
        tuple(_kernel(function, device) for function in names),
        names,
        {function: number for number, function in enumerate(names)},
    )


def trial_kernels() -> tuple[Kernel, Kernel]:
    """Return a function that tries calls by address, and `run_layers`, which calls it and all others."""
    call = "double_vectors(t, nt, ARENA(1), ARENA(2), INTEGER(3))"
    text = kernel_source("called_probe.cl") + _entry("called.cl", KERNEL="run_called_probe", CALL=call)
    common = kernel_source("common.cl")
    return Kernel("run_called_probe", text, common), Kernel("run_layers", kernel_source("layers.cl"), common)


def portable_source() -> str:
    """Return the text in front of a function of work-groups in OpenCL C."""
    return kernel_source("portable_opencl.cl") + kernel_source("portable.cl")


def _kernel(function: Function, device: Capabilities) -> Kernel:
    """Return a function with its entry, under a name that no other function of any program has.

    Compilers look for their results by the name, so it must tell two texts of one function apart, too.
    """
    content = function.identity + kernel_source(function.source)
    name = f"{function.name}_{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    entry = {"KERNEL": f"run_{name}", "CALL": _call_text(function, name)}
    text = _function_text(function, name)
    if function.work_group is not None:
        group = function.work_group
        shared = " ".join(f"__local {array.type} {array.name}[{array.elements}];" for array in group.arrays)
        size = (*group.size, 1, 1)[:3]
        text = _INLINED.format(text=text, compiler="__clang__" if device.is_pocl else "__AMDGCN__")
        text += _entry("grouped.cl", **entry, GROUP=", ".join(map(str, size)), LOCALS=shared)
        return Kernel(entry["KERNEL"], text, portable_source(), group.size, group.together)
    text += _entry("called.cl" if device.shares_one_kernel else "enqueued.cl", **entry)
    return Kernel(entry["KERNEL"], text, kernel_source("common.cl"))


def _entry(file_name: str, **defines: str) -> str:
    before = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    after = "".join(f"#undef {key}\n" for key in defines)
    return before + kernel_source(file_name) + after
