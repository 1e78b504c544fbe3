"""Filters of system calls (seccomp): steps of the kernel's classic BPF machine, and how they are installed.

The kernel's interface is linux/seccomp.h and linux/filter.h. A filter answers each call of the process with
`PASS` or an error. Filters stack: of several answers, an error wins.
"""

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final

from agent.processes.sandbox.calls import number
from agent.processes.sandbox.kernel import system_call

LOAD: Final = 0x20
"""BPF_LD | BPF_W | BPF_ABS: load the 32-bit word at an offset of struct seccomp_data."""
AND: Final = 0x54
"""BPF_ALU | BPF_AND | BPF_K."""
IF_EQUAL: Final = 0x15
"""BPF_JMP | BPF_JEQ | BPF_K."""
IF_AT_LEAST: Final = 0x35
"""BPF_JMP | BPF_JGE | BPF_K."""
IF_ANY_BIT: Final = 0x45
"""BPF_JMP | BPF_JSET | BPF_K."""
_RETURN: Final = 0x06
"""BPF_RET | BPF_K."""
_ALLOW: Final = 0x7FFF0000
"""SECCOMP_RET_ALLOW."""
_ERROR: Final = 0x00050000
"""SECCOMP_RET_ERRNO; the number of the error is added."""
_NUMBER_AT: Final = 0
"""Offset of the call's number in struct seccomp_data."""
_ARCHITECTURE_AT: Final = 4
"""Offset of the architecture in struct seccomp_data."""
_ARGUMENTS_AT: Final = 16
"""Offset of the low word of the first argument in struct seccomp_data (little endian); each has 8 bytes."""
_X32_BIT: Final = 0x40000000
"""__X32_SYSCALL_BIT: numbers from here on are of another calling convention of x86-64."""

_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_* of linux/audit.h, by the machine's name."""
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
"""Number of seccomp(2), by the machine's name."""
_SET_FILTER: Final = 1
"""SECCOMP_SET_MODE_FILTER, an operation of seccomp(2)."""
_ASK_ANSWER: Final = 2
"""SECCOMP_GET_ACTION_AVAIL, an operation of seccomp(2): whether the kernel knows an answer."""
_KEEP_SPECULATION: Final = 1 << 2
"""SECCOMP_FILTER_FLAG_SPEC_ALLOW: kernels before 5.16 otherwise slow the filtered process down (a
mitigation of Speculative Store Bypass), and the sandbox would change what is measured."""

Step = tuple[int, int, int, int]
"""Code, steps to skip if true, steps to skip if false, value: the fields of struct sock_filter."""
PASS: Final[Step] = (_RETURN, 0, 0, _ALLOW)
"""The step that lets a call through."""
NO_EFFECT: Final[Step] = (_RETURN, 0, 0, _ERROR)
"""The step that says success and does nothing."""


class _Filter(ctypes.Structure):
    """struct sock_filter."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_uint16), ("filters", ctypes.POINTER(_Filter)))


def is_supported() -> bool:
    """Return whether there are filters for this machine's architecture."""
    return os.uname().machine in _AUDIT


def is_available() -> bool:
    """Return whether this process may install a filter, without installing one."""
    if not is_supported():
        return False
    try:
        _seccomp(_ASK_ANSWER, 0, ctypes.byref(ctypes.c_uint32(_ERROR)))
    except OSError:
        return False
    return True


def install(steps: list[Step]) -> None:
    """Install a filter for this process and its children, without new privileges. Raises `OSError`."""
    program = _Program(len(steps), (_Filter * len(steps))(*(_Filter(*step) for step in steps)))
    _seccomp(_SET_FILTER, _KEEP_SPECULATION, ctypes.byref(program))


def program(machine: str, rules: Iterable[list[Step]], otherwise: Step = PASS) -> list[Step]:
    """Return a filter of `rules` (see `on`), the first of which that takes a call answers it; `otherwise` is
    for those that none takes. Calls of another architecture or numbering are not there.
    """
    return [
        (LOAD, 0, 0, _ARCHITECTURE_AT),
        # A 32-bit program's numbers are those of other calls: they would pass by the wrong rules.
        (IF_EQUAL, 1, 0, _AUDIT[machine]),
        fail(errno.ENOSYS),
        (LOAD, 0, 0, _NUMBER_AT),
        (IF_AT_LEAST, 0, 1, _X32_BIT),
        fail(errno.ENOSYS),
        *(step for rule in rules for step in rule),
        otherwise,
    ]


def on(number: int, body: list[Step]) -> list[Step]:
    """Run `body`, which ends in an answer, where the call's number is this one."""
    return [(IF_EQUAL, 0, len(body), number), *body]


def rules(machine: str, answers: Iterable[tuple[str, list[Step]]]) -> Iterator[list[Step]]:
    """Yield a rule for each call that the machine has, with what it is answered (see `on`)."""
    numbers = ((number(name, machine), body) for name, body in answers)
    return (on(found, body) for found, body in numbers if found is not None)


def passing(machine: str, names: Iterable[str]) -> list[Step]:
    """Return a rule that lets calls of these names through: neighbours in number by one comparison."""
    left = sorted(found for name in names if (found := number(name, machine)) is not None)
    steps: list[Step] = []
    while left:
        first = last = left.pop(0)
        while left and left[0] == last + 1:
            last = left.pop(0)
        # Below `first` and from `last + 1` on, the jump leads behind PASS, to the next range.
        steps += [(IF_AT_LEAST, 0, 2, first), (IF_AT_LEAST, 1, 0, last + 1), PASS]
    return steps


def load_argument(index: int) -> Step:
    """Load the low word of an argument."""
    # The arguments that rules ask for are ints, flags or ids, of which the kernel itself ignores the high
    # word; of a pointer (the times of utimensat) a low word of 0 only means an error in place of no effect.
    return (LOAD, 0, 0, _ARGUMENTS_AT + 8 * index)


def only(index: int, values: Iterable[int], otherwise: Step) -> list[Step]:
    """Let an argument through that is one of `values`, as a word of 32 bits."""
    allowed = [step for value in values for step in ((IF_EQUAL, 0, 1, value & 0xFFFFFFFF), PASS)]
    return [load_argument(index), *allowed, otherwise]


def all_but(index: int, refused: Iterable[int]) -> list[Step]:
    """Refuse some values of an argument."""
    checks = [step for value in refused for step in ((IF_EQUAL, 0, 1, value), fail(errno.EPERM))]
    return [load_argument(index), *checks, PASS]


def fail(error: int) -> Step:
    """Refuse the call with an error."""
    return (_RETURN, 0, 0, _ERROR | error)


def _seccomp(operation: int, flags: int, argument: object) -> None:
    number = _SECCOMP[os.uname().machine]
    system_call(number, ctypes.c_uint(operation), ctypes.c_uint(flags), argument)
