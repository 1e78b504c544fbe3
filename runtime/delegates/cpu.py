"""The delegate `cpu`: the interpreter with its own kernels alone."""

from __future__ import annotations

from typing import Final

from runtime.delegates.descriptor import DelegateDescriptor, threads_option

CPU: Final = "cpu"
"""The name of the interpreter without a delegate."""

# One thread: of the numpy kernels only matrix products could use more, and OpenBLAS's threads spin against
# each other as soon as anything else runs (docs/measuring.md).
DESCRIPTOR: Final = DelegateDescriptor(
    name=CPU,
    implementation=None,
    options={"threads": threads_option(default=1)},
    integer_path=True,
)
