"""Builds OpenCL programs from source or from the driver's binaries, and probes a driver's compiler."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.device import mapped_errors, open_context
from runtime.delegates.gpu.graph.graph import LANES
from runtime.delegates.gpu.layout.source import kernel_source
from runtime.errors import DelegateError, DeviceError

BUILD_OPTIONS = ("-cl-std=CL1.2",)
"""OpenCL C 1.2 is what every driver has. No fast-math option: with -cl-fast-relaxed-math the own exp of
`kernels/common.cl` was slower, and results would differ between drivers."""


def binary_of(program: cl.Program) -> bytes:
    """Return the driver's binary for the program's only device."""
    binaries: list[bytes] = program.get_info(cl.program_info.BINARIES)  # type: ignore[assignment]  # typed as object
    return bytes(binaries[0])


def from_binary(context: cl.Context, binary: bytes) -> cl.Program | None:
    """Load a driver's binary; None where the driver rejects it."""
    try:
        program = cl.Program(context, context.devices, [binary])
        program.build()
    except cl.Error:
        return None
    return program


def largest_group(program: cl.Program, name: str) -> int:
    """Return how many work-items the driver lets a group of a kernel have."""
    device = program.get_info(cl.program_info.DEVICES)[0]  # type: ignore[index]  # typed as object
    with mapped_errors(f"asking for the limits of {name}"):
        most = cl.Kernel(program, name).get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device)
    return int(most)


def built(context: cl.Context, text: str) -> cl.Program:
    """Build from source.

    Raises:
        DelegateError: the device and the first error with `.cl` file and line, then the compiler's whole log.
    """
    try:
        program = cl.Program(context, text)
        program.build(list(BUILD_OPTIONS), cache_dir=False)  # type: ignore[arg-type]  # False: no second cache
    except cl.Error as error:
        device = context.devices[0].name.strip()
        raise DelegateError(
            f"gpu delegate: the OpenCL compiler of {device} failed: {_first_fault(str(error))}\n{error}"
        ) from error
    return program


def _first_fault(said: str) -> str:
    """Return the first error that names a file and its line, else any, else the compiler's first words."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    log = [line for line in lines if line and not line.startswith(_FRAME)]
    errors = [line for line in log if "error" in line]
    named = [line for line in errors if ".cl:" in line]
    return [*named, *errors, *log, *lines][0]


_FRAME = ("clBuildProgram failed", "Build on <", "(options:")
"""Beginnings of the lines that pyopencl adds in front of a compiler's log and behind it."""


@dataclass(frozen=True, slots=True)
class CompilerProbe:
    """The result of compiling the smallest kernel: why it failed, if it did, and the seconds it took."""

    fault: str | None
    seconds: float


def probe_compiler(device: cl.Device) -> CompilerProbe:
    """Build and run the smallest kernel on a device.

    A driver may list a device that its compiler does not know, and some compile only what is run.
    """
    start = perf_counter()
    try:
        context = open_context(device)
        program = built(context, kernel_source("common.cl") + kernel_source("probe.cl"))
        with mapped_errors("running the smallest kernel"):
            queue = cl.CommandQueue(context)
            buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * LANES)
            kernel = cl.Kernel(program, "probe")
            kernel.set_args(buffer)
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
            queue.finish()
    except (DelegateError, DeviceError) as error:
        return CompilerProbe(_first_fault(str(error.__cause__)), perf_counter() - start)
    return CompilerProbe(None, perf_counter() - start)
