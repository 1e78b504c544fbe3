"""The time of each of a delegate's kernels in one run, with the operators that it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from runtime.delegates.base import Array


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel of one run.

    `time_ns` is what it took on the device, by itself: nothing else was enqueued. `flops` and `bytes` are its
    family's count of what it computes and moves; `operators` are the indices of the model's operators.
    """

    function: str
    label: str
    operators: tuple[int, ...]
    time_ns: int
    flops: int
    bytes: int


@runtime_checkable
class ProfiledPartition(Protocol):
    """A compiled partition that also times each of its kernels."""

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[KernelTime]:
        """Run once like `invoke`, but wait for each kernel; the kernels' times, in order.

        Such a run takes longer than `invoke`, and the sum of its times is not what `invoke` takes.
        """
