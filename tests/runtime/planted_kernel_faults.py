"""Kernels with the faults that the checker must find, and one without; `test_kernel_checker.py` runs them."""

from __future__ import annotations

import numpy as np
import pytest

COUNT = 32
"""Work-items and elements. Any number above one shows a race; a smaller one makes the report shorter."""

KERNELS = {
    "clean": "__kernel void clean(__global int *a) { a[get_global_id(0)] += 1; }",
    "race": "__kernel void race(__global int *a) { a[get_global_id(0) / 2] += get_global_id(0); }",
    "outside": "__kernel void outside(__global int *a) { a[get_global_id(0) + 1] += 1; }",
}


@pytest.mark.parametrize("name", KERNELS)
def test_run(name: str) -> None:
    import pyopencl as cl

    context = cl.Context(cl.get_platforms()[0].get_devices())
    program = cl.Program(context, KERNELS[name]).build(cache_dir=False)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * COUNT)
    queue = cl.CommandQueue(context)
    cl.enqueue_fill_buffer(queue, buffer, np.zeros(1, np.int32), 0, 4 * COUNT)
    kernel = cl.Kernel(program, name)
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (COUNT,), (1,))
    queue.finish()
