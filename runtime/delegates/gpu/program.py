"""Makes a program of launches. Equal functions are compiled once; drivers' binaries are kept on disk.

On PoCL's CPU devices all functions of a program sit behind one kernel, `run_layers`, that takes a table of
(function, offsets): PoCL then optimises each function once, and one enqueue can run one layer or many. On
other devices each function is a kernel of its own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from runtime.delegates.gpu.device import Capabilities, mapped_errors, open_context
from runtime.delegates.gpu.graph import LANES
from runtime.delegates.gpu.lowering.spec import Launch, PackedConstant
from runtime.errors import DelegateError, DeviceError

if TYPE_CHECKING:
    import pyopencl

BUILD_OPTIONS = ("-cl-std=CL1.2",)
"""OpenCL C 1.2 is what every driver has. No fast-math option: with -cl-fast-relaxed-math the own exp of
`kernels/common.cl` was slower, and results would differ between drivers."""

TABLE_ROW = 24
"""Integers in a row of the layer table, `ROW` of `kernels/layers.cl`: the function's number, then one offset
for each pointer. A function with more pointers would not fit."""

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


class ProgramCache:
    """Driver binaries on disk, by a hash of source, options, device and driver; without a folder, nothing.

    PoCL keeps the kernels that it compiles by itself (`POCL_CACHE_DIR`); asked for a program's binary, it
    would compile every kernel a second time. `build_program` therefore leaves PoCL alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def path(self, key: str) -> Path | None:
        """Where the binary of `key` lies."""
        return None if self._folder is None else self._folder / "programs" / f"{key}.bin"

    def read(self, key: str) -> bytes | None:
        """The binary of `key`, or None."""
        path = self.path(key)
        try:
            return path.read_bytes() if path is not None else None
        except OSError:
            return None

    def write(self, key: str, binary: bytes) -> None:
        """Keep a binary; readers see all of it or nothing."""
        path = self.path(key)
        if path is not None:
            write_atomically(path, binary)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, then rename, so that other processes see all of the content or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def program_key(text: str, options: Sequence[str], device: Capabilities) -> str:
    """Cache key of a program: a hash of its source, the build options, the device and its driver."""
    return hashlib.sha256("\0".join((text, *options, device.key)).encode()).hexdigest()


def build_program(
    context: pyopencl.Context, device: Capabilities, text: str, cache: ProgramCache
) -> pyopencl.Program:
    """Build from the cached binary, else from source.

    Raises:
        DelegateError: the device and the first error with `.cl` file and line, then the compiler's whole log.
    """
    key = program_key(text, BUILD_OPTIONS, device)
    if device.is_pocl:
        return _compiled(context, text)
    binary = cache.read(key)
    program = _from_binary(context, binary) if binary is not None else None
    if program is None:
        program = _compiled(context, text)
        cache.write(key, binary_of(program))
    return program


def binary_of(program: pyopencl.Program) -> bytes:
    """The driver's binary for the program's only device."""
    import pyopencl as cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

    binaries: list[bytes] = program.get_info(cl.program_info.BINARIES)  # type: ignore[assignment]  # typed as object
    return bytes(binaries[0])


def _from_binary(context: pyopencl.Context, binary: bytes) -> pyopencl.Program | None:
    """None where the driver rejects the binary: it is then rebuilt and replaced."""
    import pyopencl as cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

    try:
        program = cl.Program(context, context.devices, [binary])
        program.build()
    except cl.Error:
        return None
    return program


def _compiled(context: pyopencl.Context, text: str) -> pyopencl.Program:
    import pyopencl as cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

    try:
        program = cl.Program(context, text)
        program.build(list(BUILD_OPTIONS), cache_dir=False)  # type: ignore[arg-type]  # False: no second cache
    except cl.Error as error:
        device = context.devices[0].name.strip()
        raise DelegateError(
            f"gpu delegate: the OpenCL compiler of {device} failed: {_first_fault(str(error))}\n{error}"
        ) from error
    return program


def _first_fault(log: str) -> str:
    """The first error that names a file of `kernels/` and its line, wherever the driver puts the word."""
    lines = (" ".join(line.split()) for line in log.splitlines())
    return next((line for line in lines if "error" in line and ".cl:" in line), "its log names no kernel")


@dataclass(frozen=True, slots=True)
class CompilerProbe:
    """What a driver did with the smallest kernel: why it failed (else None), and the seconds that it took."""

    fault: str | None
    seconds: float


def probe_compiler(device: pyopencl.Device) -> CompilerProbe:
    """Build and run the smallest kernel on a device.

    A driver may list a device that its compiler does not know (a processor newer than its LLVM), and some
    compile only what is run.
    """
    import pyopencl as cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

    start = perf_counter()
    try:
        context = open_context(device)
        program = _compiled(context, kernel_source("common.cl") + kernel_source("probe.cl"))
        with mapped_errors("running the smallest kernel"):
            queue = cl.CommandQueue(context)
            buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * LANES)
            kernel = cl.Kernel(program, "probe")
            kernel.set_args(buffer)
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
            queue.finish()
    except (DelegateError, DeviceError) as error:
        log = str(error).partition(">:")[2].partition("(options:")[0]
        return CompilerProbe(" ".join((log.strip() or str(error)).split()), perf_counter() - start)
    return CompilerProbe(None, perf_counter() - start)
