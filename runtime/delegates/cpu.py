"""The delegate `cpu`: the interpreter with its own kernels alone."""

from typing import Final

from runtime.delegates.descriptor import RELEASE, VERSION, DelegateDescriptor, commit_option, threads_option

CPU: Final = "cpu"
"""The name of the interpreter without a delegate."""

DESCRIPTOR: Final = DelegateDescriptor(
    name=CPU,
    implementation=None,
    options={"threads": threads_option(), VERSION: commit_option()},
    release=RELEASE,
    integer_path=True,
)
