"""The process that tests a device with narrow numbers: an unknown instruction would end it.

The arguments are the index of the device and the trials to run. Each answer is a line on the standard output:
the trial, a tab, and its fault, empty where the device returned the right numbers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.device import list_devices, mapped_errors, open_context
from runtime.delegates.gpu.backends.opencl.program import built
from runtime.delegates.gpu.graph.graph import LANES
from runtime.delegates.gpu.layout.source import kernel_source
from runtime.delegates.gpu.settings.precision import Trial
from runtime.errors import DelegateError, FarmRuntimeError

NO_CONTEXT = 75
"""Exit code of a process that gets no context on the device: EX_TEMPFAIL of sysexits.h."""

# A bfloat16 holds each of them, and each sum and product below is a float32.
_NUMBERS = np.array(
    [0, -0.0, 1, -1, 0.5, 1.5, -2.25, 3, 100, -0.0078125, 250, -7, 0.34375, 12, -31, 63], np.float32
)

_ROUNDS: Final = 1 << 17
"""Turns of a timed loop of eight instructions: 0.2 ms at the rate of float32, as long as a busy machine often
leaves a thread alone."""

_TRIES: Final = 15
"""Runs of each timed loop, by turns; the fastest counts, as other work only adds time."""

_MOST_PACE: Final = 1.5
"""Most times as long as a multiply-add of float32 that a pair of products may take, which replaces two. At 2
nothing is gained; what is below pays for rounding the inputs. Processors seen: 1.0 and 4.1."""


def expected(numbers: NDArray[np.float32]) -> Mapping[Trial, NDArray[np.float32]]:
    """Return the expected result of each trial."""
    half = numbers.astype(np.float16)
    return {
        Trial.FP16_STORAGE: half.astype(np.float32),
        Trial.FP16_ARITHMETIC: (half * half).astype(np.float32),
        Trial.BF16_STORAGE: numbers,
        Trial.BF16_PRODUCTS: 2 * numbers * numbers + numbers,
        # Lane by lane the sums that the comments of `precision_probe.cl` spell out.
        Trial.INT8_PRODUCTS: 100 - 583 * np.array([*range(1, LANES), 0], np.float32),
        Trial.INT16_PRODUCTS: 100 - 581 * np.array([*range(1, LANES), 0], np.float32),
        Trial.BYTE_TABLES: 124 - 7 * np.arange(LANES, dtype=np.float32),
        Trial.BYTE_DOT_PRODUCTS: 100 - 584 * np.array([*range(1, LANES), 0], np.float32),
    }


def run(context: cl.Context, trial: Trial) -> str:
    """Run a trial and return its fault."""
    text = f"#define {trial.value}\n{kernel_source('precision_probe.cl')}"
    try:
        program = built(context, text)
    except DelegateError as error:
        faults = [line for line in str(error).splitlines()[1:] if "error" in line.lower()]
        return f"does not compile: {' '.join((faults or [str(error)])[0].split())}"
    # NaN compares unequal, so a lane that the kernel never writes counts as wrong.
    flags, found = cl.mem_flags, np.full(LANES, np.nan, np.float32)
    if trial is Trial.BF16_PACE:
        return _pace_fault(context, program)
    with mapped_errors("probing narrow numbers"):
        queue = cl.CommandQueue(context)
        source = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=_NUMBERS)
        target, memory = (cl.Buffer(context, flags.READ_WRITE, found.nbytes) for _ in range(2))
        kernel = cl.Kernel(program, "trial")
        kernel.set_args(source, target, memory)
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        cl.enqueue_copy(queue, found, target)
        queue.finish()
    wrong = np.flatnonzero(found != expected(_NUMBERS)[trial])
    return f"{len(wrong)} of {LANES} numbers are wrong" if wrong.size else ""


def _pace_fault(context: cl.Context, program: cl.Program) -> str:
    """Time both loops of the program, and return its fault: that pairs of products gain nothing.

    By the times of events, which begin when the device does: on a busy machine it wakes up late.
    """
    best = {"pairs": np.inf, "floats": np.inf}
    with mapped_errors("timing products of bfloat16"):
        properties = cl.command_queue_properties.PROFILING_ENABLE
        queue = cl.CommandQueue(context, properties=properties)
        memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 8 * _NUMBERS.nbytes)
        cl.enqueue_fill_buffer(queue, memory, np.zeros(1, np.float32), 0, memory.size)
        kernels = {name: cl.Kernel(program, name) for name in best}
        for kernel in kernels.values():
            kernel.set_args(memory, np.int32(_ROUNDS))
        for name in [*kernels, *list(kernels) * _TRIES]:
            event = cl.enqueue_nd_range_kernel(queue, kernels[name], (1,), (1,))
            event.wait()
            best[name] = min(best[name], event.profile.end - event.profile.start)
    pace = best["pairs"] / best["floats"]
    if pace <= _MOST_PACE:
        return ""
    return f"a pair of products takes {pace:.1f} times as long as one of float32, and replaces two"


def main() -> None:
    """Run the trials in order; what follows the one that ends the process has no answer."""
    try:
        context = open_context(list_devices()[int(sys.argv[1])])
    except DelegateError:
        os._exit(NO_CONTEXT)
    for name in sys.argv[2:]:
        try:
            fault = run(context, Trial(name))
        except FarmRuntimeError as error:
            fault = " ".join(str(error).split())
        sys.stdout.write(f"{name}\t{fault}\n")
        sys.stdout.flush()
    # Not by the interpreter's own end: drivers are known to crash in it.
    os._exit(0)


if __name__ == "__main__":
    main()
