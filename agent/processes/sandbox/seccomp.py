"""A seccomp filter: a runner connects to nobody, and acts on no process by number and on no file by path.

A call that it refuses fails with EPERM, as it would for want of rights. It does what file rules cannot: these
are about opening a file, and leave a connection to a socket that has a path, the mode and times of a file,
the limits and priorities of every process of the same user, and memory that is shared by a key.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from typing import Final

from agent.processes.sandbox import bpf
from agent.processes.sandbox.bpf import (
    NO_EFFECT,
    PASS,
    Call,
    Step,
    all_but,
    fail,
    load_argument,
    on,
    only,
)

_TYPE_MASK: Final = 0xF
"""SOCK_TYPE_MASK of linux/net.h: the flags of socket(2) are above it."""
_NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID and _NEWNET of linux/sched.h."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers of the calls that differ."""

    socket: int
    socketpair: int
    connect: int
    clone: int
    unshare: int
    setns: int
    keys: tuple[int, int, int]


_NUMBERS: Final = {
    "x86_64": _Numbers(41, 53, 42, 56, 272, 308, (248, 249, 250)),
    "aarch64": _Numbers(198, 199, 203, 220, 97, 268, (217, 218, 219)),
}
_IO_URING_SETUP: Final = 425
"""Number of io_uring_setup(2) everywhere. A ring makes and connects sockets past every filter of calls."""
_CLONE3: Final = 435
"""Number of clone3(2) everywhere. A filter cannot see its flags, which are in memory; C libraries use clone
instead."""

REFUSED: Final = {
    "ptrace": Call(101, 117),
    "process_vm_readv": Call(310, 270),
    "process_vm_writev": Call(311, 271),
    "pidfd_open": Call(434, 434),
    "pidfd_getfd": Call(438, 438),
    "process_madvise": Call(440, 440),
    "process_mrelease": Call(448, 448),
    "chown": Call(92, None),
    "fchown": Call(93, 55),
    "lchown": Call(94, None),
    "fchownat": Call(260, 54),
    "utime": Call(132, None),
    "utimes": Call(235, None),
    "futimesat": Call(261, None),
    "setxattr": Call(188, 5),
    "lsetxattr": Call(189, 6),
    "fsetxattr": Call(190, 7),
    "setxattrat": Call(463, 463),
    "removexattr": Call(197, 14),
    "lremovexattr": Call(198, 15),
    "fremovexattr": Call(199, 16),
    "removexattrat": Call(466, 466),
    "file_setattr": Call(469, 469),
    "shmget": Call(29, 194),
    "shmat": Call(30, 196),
    "shmctl": Call(31, 195),
    "semget": Call(64, 190),
    "semop": Call(65, 193),
    "semctl": Call(66, 191),
    "semtimedop": Call(220, 192),
    "msgget": Call(68, 186),
    "msgsnd": Call(69, 189),
    "msgrcv": Call(70, 188),
    "msgctl": Call(71, 187),
    "mq_open": Call(240, 180),
    "mq_unlink": Call(241, 181),
}
"""Calls that nothing needs which is measured: on other processes, on owner, times and attributes of files,
one of which may be an access list, and memory, queues and semaphores that outlive their process."""

WITHOUT_EFFECT: Final = {
    "chmod": Call(90, None),
    "fchmod": Call(91, 52),
    "fchmodat": Call(268, 53),
    "fchmodat2": Call(452, 452),
}
"""Calls that say success and do nothing. Landlock has no right for modes, by which every file of this user
could be opened to others; and libraries copy modes in passing (`shutil.copy`): an error would end them."""

OF_ONESELF: Final = {
    "prlimit64": Call(302, 261),
    "sched_setscheduler": Call(144, 119),
    "sched_setparam": Call(142, 118),
    "sched_setattr": Call(314, 274),
    "migrate_pages": Call(256, 238),
    "move_pages": Call(279, 239),
    "perf_event_open": Call(298, 241, argument=1),
}
"""Calls that name a process, refused for all but 0, which is the caller itself: a filter cannot tell the
number of an own thread from another process's."""

_UTIMENSAT: Final = Call(280, 88)
"""utimensat(2): an error without times, by which `Path.touch` learns that it has to make the file; else
without effect, since libraries copy times as they copy modes."""

_AFFINITY: Final = Call(203, 122)
"""sched_setaffinity(2), without effect for all but the caller: libgomp and PoCL, told to bind their threads,
bind them by number and end where that fails. A process has its arm's CPUs already."""

_SETPRIORITY: Final = Call(141, 140)
_IOPRIO_SET: Final = Call(251, 30)
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
"""First argument of setpriority(2) and of ioprio_set(2): the second names a process, no group or user."""

_FCNTL: Final = Call(72, 25)
_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE = 8, 15, 1024
"""Commands of fcntl(2): who gets a file's signals, and a lease, for which who opens the file must wait."""

_PRCTL: Final = Call(157, 167)
_PR_SCHED_CORE: Final = 62
"""Option of prctl(2): share a processor core with nobody else, which keeps others from its other thread."""


def restrict() -> None:
    """Install the filter for this process and its children; new privileges must be forbidden before.

    Raises `OSError`.
    """
    bpf.install(_steps(os.uname().machine))


def _steps(machine: str) -> list[Step]:
    numbers = _NUMBERS[machine]
    missing = [on(number, [fail(errno.ENOSYS)]) for number in (_IO_URING_SETUP, _CLONE3)]
    refused = (numbers.connect, numbers.unshare, numbers.setns, *numbers.keys)
    unshared = [load_argument(0), (bpf.IF_ANY_BIT, 0, 1, _NEW_NAMESPACES), fail(errno.EPERM), PASS]
    rules = [
        *missing,
        *(on(number, [fail(errno.EPERM)]) for number in refused),
        on(numbers.socket, _sockets()),
        on(numbers.socketpair, _connected_types()),
        on(numbers.clone, unshared),
        *bpf.rules(machine, _by_number_or_path()),
    ]
    return bpf.program(machine, rules)


def _by_number_or_path() -> list[tuple[Call, list[Step]]]:
    """Return the answers to calls that name a process by its number, or a file without opening it."""
    refused = fail(errno.EPERM)
    return [
        *((call, [refused]) for call in REFUSED.values()),
        *((call, [NO_EFFECT]) for call in WITHOUT_EFFECT.values()),
        *((call, only(call.argument, (0,), refused)) for call in OF_ONESELF.values()),
        (_UTIMENSAT, [load_argument(2), (bpf.IF_EQUAL, 0, 1, 0), refused, NO_EFFECT]),
        (_AFFINITY, only(0, (0,), NO_EFFECT)),
        (_SETPRIORITY, _own_priority(_PRIO_PROCESS)),
        (_IOPRIO_SET, _own_priority(_IOPRIO_WHO_PROCESS)),
        (_FCNTL, all_but(1, (_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE))),
        (_PRCTL, all_but(0, (_PR_SCHED_CORE,))),
    ]


def _own_priority(of_process: int) -> list[Step]:
    """Let the caller's own priority through, and that of no group or user."""
    refused = fail(errno.EPERM)
    return [load_argument(0), (bpf.IF_EQUAL, 1, 0, of_process), refused, *only(1, (0,), refused)]


def _sockets() -> list[Step]:
    """Allow local sockets that need a connection, which `connect` refuses, and the kernel's own messages
    (netlink), by which drivers learn of devices.
    """
    return [
        load_argument(0),
        (bpf.IF_EQUAL, 0, 1, socket.AF_NETLINK),
        PASS,
        (bpf.IF_EQUAL, 1, 0, socket.AF_UNIX),
        fail(errno.EPERM),
        *_connected_types(),
    ]


def _connected_types() -> list[Step]:
    """Allow streams only: a datagram could be sent to any path without `connect`."""
    return [
        load_argument(1),
        (bpf.AND, 0, 0, _TYPE_MASK),
        (bpf.IF_EQUAL, 1, 0, socket.SOCK_STREAM),
        (bpf.IF_EQUAL, 0, 1, socket.SOCK_SEQPACKET),
        PASS,
        fail(errno.EPERM),
    ]
