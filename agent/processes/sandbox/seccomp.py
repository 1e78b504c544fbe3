"""A seccomp filter: a list of the calls that a runner may make (`calls.allowed`), some of them not with every
argument. It connects to nobody, and acts on no process by number and on no file by path.

A call that is refused fails with EPERM, as it would for want of rights; one that is not on the list is not
there (ENOSYS). The filter does what file rules cannot: these are about opening a file, and leave a connection
to a socket that has a path, the mode and times of a file, the limits and priorities of every process of the
same user, and memory that is shared by a key.
"""

import errno
import os
import socket
import sys
from typing import Final

from agent.processes.sandbox import bpf, calls
from agent.processes.sandbox.bpf import NO_EFFECT, PASS, Step, all_but, fail, load_argument, only

_TYPE_MASK: Final = 0xF
"""SOCK_TYPE_MASK of linux/net.h: the flags of socket(2) are above it."""
_NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID and _NEWNET of linux/sched.h."""

_CLONE3: Final = "clone3"
"""Answered as by an older kernel, although it was recorded: a filter cannot see its flags, which are in
memory. C libraries use clone instead."""

REFUSED: Final = (
    "connect", "unshare", "setns", "add_key", "request_key", "keyctl", "ptrace", "process_vm_readv",
    "process_vm_writev", "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "process_madvise",
    "process_mrelease", "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "setxattr",
    "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr",
    "removexattrat", "file_setattr", "shmget", "shmat", "shmctl", "semget", "semop", "semctl",
    "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink",
)  # fmt: skip
"""Calls that nothing needs which is measured: on other processes, on owner, times and attributes of files,
one of which may be an access list, and memory, queues and semaphores that outlive their process."""

WITHOUT_EFFECT: Final = ("chmod", "fchmod", "fchmodat", "fchmodat2")
"""Calls that say success and do nothing. Landlock has no right for modes, by which every file of this user
could be opened to others; and libraries copy modes in passing (`shutil.copy`): an error would end them."""

OF_ONESELF: Final = {
    "prlimit64": 0, "sched_setscheduler": 0, "sched_setparam": 0, "sched_setattr": 0, "migrate_pages": 0,
    "move_pages": 0, "perf_event_open": 1,
}  # fmt: skip
"""Calls that name a process, with the place of that argument: refused for all but 0, which is the caller
itself. A filter cannot tell the number of an own thread from another process's."""

_TIMES: Final = "utimensat"
"""An error without times, by which `Path.touch` learns that it has to make the file; else
without effect, since libraries copy times as they copy modes."""

_AFFINITY: Final = "sched_setaffinity"
"""Without effect for all but the caller: libgomp and PoCL, told to bind their threads,
bind them by number and end where that fails. A process has its arm's CPUs already."""

_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
"""First argument of setpriority(2) and of ioprio_set(2): the second names a process, no group or user."""

_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE = 8, 15, 1024
"""Commands of fcntl(2): who gets a file's signals, and a lease, for which who opens the file must wait."""

_PR_SCHED_CORE: Final = 62
"""Option of prctl(2): share a processor core with nobody else, which keeps others from its other thread."""


def restrict() -> None:
    """Install the filter for this process and its children, without new privileges. Raises `OSError`."""
    bpf.install(_steps(os.uname().machine))


def _steps(machine: str) -> list[Step]:
    answered = bpf.rules(machine, _answers())
    # Programs handle a call that is not there: their C library is made for older kernels too.
    return bpf.program(machine, [*answered, bpf.passing(machine, calls.allowed())], fail(errno.ENOSYS))


def _answers() -> list[tuple[str, list[Step]]]:
    """Return the answers to calls whose arguments matter, and to those that have an answer of their own."""
    refused = fail(errno.EPERM)
    unshared = [load_argument(0), (bpf.IF_ANY_BIT, 0, 1, _NEW_NAMESPACES), refused, PASS]
    return [
        (_CLONE3, [fail(errno.ENOSYS)]),
        *((call, [refused]) for call in REFUSED),
        *((call, [NO_EFFECT]) for call in WITHOUT_EFFECT),
        *((call, only(argument, (0,), refused)) for call, argument in OF_ONESELF.items()),
        ("socket", _sockets()),
        ("socketpair", _connected_types()),
        ("clone", unshared),
        (_TIMES, [load_argument(2), (bpf.IF_EQUAL, 0, 1, 0), refused, NO_EFFECT]),
        (_AFFINITY, only(0, (0,), NO_EFFECT)),
        ("setpriority", _own_priority(_PRIO_PROCESS)),
        ("ioprio_set", _own_priority(_IOPRIO_WHO_PROCESS)),
        ("fcntl", all_but(1, (_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE))),
        ("prctl", all_but(0, (_PR_SCHED_CORE,))),
    ]


def _own_priority(of_process: int) -> list[Step]:
    """Let the caller's own priority through, and that of no group or user."""
    refused = fail(errno.EPERM)
    # For a process, the jump leads over the refusal, to the check of its number.
    return [load_argument(0), (bpf.IF_EQUAL, 1, 0, of_process), refused, *only(1, (0,), refused)]


def _sockets() -> list[Step]:
    """Allow local sockets that need a connection, which `connect` refuses, and the kernel's own messages
    (netlink), by which drivers learn of devices.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "netlink of Linux")
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
        # A stream jumps over the next comparison to PASS, all but the second type over PASS to the refusal.
        (bpf.IF_EQUAL, 1, 0, socket.SOCK_STREAM),
        (bpf.IF_EQUAL, 0, 1, socket.SOCK_SEQPACKET),
        PASS,
        fail(errno.EPERM),
    ]
