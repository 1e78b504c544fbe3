"""The interface by which a delegate compiles kernels before a model needs them.

`runtime.tools.priming` lets a delegate compile what given models need on its device; nothing is packed, timed
or run, and a model that is opened later finds its kernels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from runtime.delegates.base import Partition


@dataclass(frozen=True, slots=True)
class Primed:
    """The number of kernels that were kept already, and of new ones; `failures` says why others are
    missing.
    """

    device: str
    known: int
    compiled: int
    failures: tuple[str, ...] = ()


@runtime_checkable
class Primable(Protocol):
    """A delegate that keeps compiled kernels, and takes them from there."""

    def prime(self, name: str, partitions: Iterable[Partition]) -> Primed:
        """Compile and keep what partitions need of the delegate's device, the most frequent first.

        `name` stands for the partitions: where all that one of this name needed is still kept, they are not
        asked for. What is done when an exception ends it stays. Raises `DelegateError` where nothing can be
        kept.
        """
