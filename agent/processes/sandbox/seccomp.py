"""A seccomp filter: a runner connects to nobody, makes no namespaces and reads no keyrings.

A call that it refuses fails with EPERM, as it would for want of rights. It does what file rules cannot: it
refuses a UDP socket, and a connection to a socket that has a path, such as a container service's.
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from typing import Final

from agent.processes.sandbox import bpf
from agent.processes.sandbox.bpf import PASS, Step, fail, load_argument, on

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
    ]
    return bpf.program(machine, rules)


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
