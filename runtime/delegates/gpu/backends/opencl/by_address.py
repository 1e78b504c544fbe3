"""Calls functions of PoCL by their addresses: loads their machine code, and tries whether a driver allows it.

PoCL makes of every kernel a shared library that exports `_pocl_kernel_<name>`, a C function of the kernel's
arguments. One kernel, `run_layers`, calls such functions through a table of addresses (`kernels/layers.cl`).
None of this is promised by OpenCL, so a device is only used this way where `try_addresses` has succeeded.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Sequence
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.program import binary_of, built
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import LANES, LINE
from runtime.errors import DelegateError

_MACHINES: Final = frozenset({"x86_64", "AMD64"})
"""Processors, by the names of `platform.machine`, whose calling convention `kernels/layers.cl` knows."""

_UNITS: Final = 7
"""Vectors that the trial computes: odd, so that two workers get unlike shares."""

_LAYERS: Final = 4
"""Layers of the trial: one, and three that one launch runs in a row. More would show nothing else."""

_GROUPS: Final = 2
"""Groups of the trial, which is how many share a layer. More would show nothing else."""

_COUNTERS: Final = 32
"""Integers in front of those of the shares: `TAKEN` of `kernels/layers.cl`."""

_ENDED: Final = 16
"""The one that is not 0 behind a launch that could not bind its threads: `ENDED` of `kernels/layers.cl`."""

_PIECES: Final = 4
"""Shares of a layer for each group: `PIECES` of `kernels/layers.cl`."""

_PREFIX: Final = "_pocl_kernel_"

_libraries: list[ctypes.CDLL] = []
"""What was loaded stays loaded: addresses stand in tables of devices, of which nobody keeps count."""

_loads = count(1)


def may_call_addresses(device: Capabilities) -> bool:
    """Return True if calls by address are worth a trial: PoCL on x86-64, with memory files."""
    return (
        device.is_pocl
        and not device.is_gpu
        and not device.works_in_groups
        and platform.machine() in _MACHINES
        and hasattr(os, "memfd_create")
    )


def load_function(name: str, content: bytes) -> int:
    """Load a shared library and return the address of the kernel `name` in it.

    The bytes go through a file in memory: what was verified is what is loaded.

    Raises:
        DelegateError: the loader refuses it, or it has no such kernel.
    """
    if sys.platform != "linux":
        raise DelegateError("gpu delegate: calls by address need memory files, which Linux has")
    handle = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        # A duplicate: closing the file must leave `handle` open for the loader.
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(content)
        library = ctypes.CDLL(_unique_path(handle))
        address = ctypes.cast(library[_PREFIX + name], ctypes.c_void_p).value
    except (OSError, AttributeError) as error:
        raise DelegateError(f"gpu delegate: the machine code of {name} cannot be loaded: {error}") from error
    finally:
        # The loaded library stays mapped without the descriptor.
        os.close(handle)
    _libraries.append(library)
    return address or 0


def _unique_path(handle: int) -> str:
    """Return a path of an open file that no earlier one had: file numbers are reused, and the loader takes a
    known path for the library that it has loaded from there.
    """
    # `./` and `/` change nothing in a path, so the load's number, spelt with them in binary, makes it unique.
    steps = "".join("./" if digit == "1" else "/" for digit in f"{next(_loads):b}")
    return f"/proc/self/fd/{steps}{handle}"


def counters(groups: int) -> NDArray[np.int32]:
    """Return the counters by which so many groups share layers, as they are before a launch."""
    return np.zeros(_COUNTERS + _PIECES * groups, np.int32)


def bind_threads(context: cl.Context, layers: cl.Program, cpus: Sequence[int]) -> bool:
    """Bind the driver's threads, as many as there are CPUs, to one of them each, if all of them get to run.

    Returns whether they did. Linux may let two threads that are woken together share a CPU beside an idle
    one, for as long as a process lives: at two threads a network then takes as long as at one. Raises
    pyopencl's errors.
    """
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    nothing, found = np.zeros(LINE, np.uint8), counters(len(cpus))
    arena, table, own, counted = (
        cl.Buffer(context, flags, hostbuf=array)
        for array in (nothing, nothing, np.array(cpus, np.uint64), found)
    )
    kernel = cl.Kernel(layers, "run_layers")
    # With `last` before `first`, `run_layers` binds its
    # threads instead of running layers; `own` are the CPUs.
    kernel.set_args(arena, arena, table, own, counted, np.int32(1), np.int32(0))
    queue = cl.CommandQueue(context)
    cl.enqueue_nd_range_kernel(queue, kernel, (len(cpus),), (1,))
    # A copy to the host blocks, so the launch has ended once it returns.
    cl.enqueue_copy(queue, found, counted)
    return not found[_ENDED]


def try_addresses(
    context: cl.Context, queue: cl.CommandQueue, layers: str, name: str, function: bytes
) -> bytes:
    """Try calls by address, and return the binary of `run_layers`, built from the text `layers`.

    It runs the compiled function `name` as one layer, and as several that the groups of one launch share.

    For a process of its own: where calls by address do not work, this may crash.

    Raises:
        DelegateError: the compiler refuses the text, or the results are wrong.
    """
    program = built(context, layers)
    content = np.zeros((1 + _LAYERS, _UNITS, LANES), np.float32)
    content[0] = np.arange(_UNITS * LANES).reshape(_UNITS, LANES)
    step = content[0].nbytes // LINE
    # Function, input and output in lines of the arena, vectors: each layer reads what the last one wrote.
    rows = [[0, layer * step, (layer + 1) * step, _UNITS] for layer in range(_LAYERS)]
    starts = [_LAYERS + layer * len(rows[0]) for layer in range(_LAYERS)]
    table = np.array([*starts, *(number for row in rows for number in row)], np.int32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    arena, layer_table, functions, counted = (
        cl.Buffer(context, flags, hostbuf=array)
        for array in (content, table, np.array([load_function(name, function)], np.uint64), counters(_GROUPS))
    )
    kernel = cl.Kernel(program, "run_layers")
    for first, last in ((0, 1), (1, _LAYERS)):
        kernel.set_args(arena, arena, layer_table, functions, counted, np.int32(first), np.int32(last))
        cl.enqueue_nd_range_kernel(queue, kernel, (_GROUPS,), (1,))
    found = np.empty_like(content)
    cl.enqueue_copy(queue, found, arena)
    # Exact in float32: the products are small integers times powers of two.
    if not all(np.array_equal(layer, 2**doublings * content[0]) for doublings, layer in enumerate(found)):
        raise DelegateError("functions that are called by their addresses compute wrong results")
    return binary_of(program)
