"""The boundary around one process of an arm, inside the runner's: it writes, signals and slows no neighbour.

A runner's processes share a user, a folder and the runner's boundary. This second boundary needs no rights,
so that the runner can close it, between fork and exec, around each process that it starts. It stacks: what
the runner's boundary refuses stays refused.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.processes.sandbox import bpf, kernel, landlock, neighbours
from agent.processes.sandbox.reach import device_nodes

_OWN_FACTS = Path("/proc/self")
"""A process may write its own, such as `clear_refs`, which resets the peak of its memory."""


@dataclass(frozen=True, slots=True)
class InnerBoundary:
    """The paths that a process may write: the folders `write`, the files and folders `chosen` by the user as
    far as they exist, and, without emptying them, the files `append`. It may read whatever the runner may.
    No folder above one of `write` may be another arm's to write.
    """

    write: tuple[Path, ...]
    append: tuple[Path, ...] = ()
    chosen: tuple[Path, ...] = ()

    def enter(self) -> None:
        """Close the boundary around this process. Raises `OSError` once the reason is in the log.

        Its parent can still signal it; it cannot signal its parent.
        """
        with kernel.failure_in_log():
            kernel.forbid_new_privileges()
            abi = landlock.supported_abi()
            if abi:
                also = [(path, landlock.APPEND) for path in (*self.append, *device_nodes(), _OWN_FACTS)]
                also += [(path, landlock.WRITE) for path in self.chosen]
                landlock.restrict_writes(self.write, also, abi)
            if bpf.is_available():
                neighbours.restrict(signals_are_scoped=abi >= landlock.SCOPED_ABI)


@cache
def lacking() -> tuple[str, ...]:
    """Return what this kernel leaves open between the arms of a runner, each with what is missing."""
    abi, filters = landlock.supported_abi(), bpf.is_available()
    found = []
    if abi == 0:
        found.append("closed files of other arms (no Landlock: Linux 5.13 or newer with `lsm=landlock`)")
    elif abi < landlock.TRUNCATE_ABI:
        found.append(
            f"files of other arms kept from being emptied (Landlock {abi}; that needs Landlock "
            f"{landlock.TRUNCATE_ABI}, Linux 6.2)"
        )
    if not filters:
        if abi < landlock.SCOPED_ABI:
            found.append(
                f"signals kept inside (neither a filter of system calls nor Landlock {landlock.SCOPED_ABI})"
            )
        found.append("priorities, limits and modes of other arms kept (no filter of system calls)")
    return tuple(found)
