"""A seccomp filter: a runner connects to nobody, makes no namespaces and reads no keyrings.

The kernel's interface is linux/seccomp.h and linux/filter.h. The filter is a program for the kernel's classic
BPF machine; a call that it refuses fails with EPERM, as it would for want of rights. It does what file rules
cannot: it refuses a UDP socket, and a connection to a socket that has a path, such as a container service's.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from dataclasses import dataclass
from typing import Final

from agent.processes.sandbox.kernel import system_call

_LOAD: Final = 0x20
"""BPF_LD | BPF_W | BPF_ABS: load the 32-bit word at an offset of struct seccomp_data."""
_AND: Final = 0x54
"""BPF_ALU | BPF_AND | BPF_K."""
_IF_EQUAL: Final = 0x15
"""BPF_JMP | BPF_JEQ | BPF_K."""
_IF_AT_LEAST: Final = 0x35
"""BPF_JMP | BPF_JGE | BPF_K."""
_IF_ANY_BIT: Final = 0x45
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
_TYPE_MASK: Final = 0xF
"""SOCK_TYPE_MASK of linux/net.h: the flags of socket(2) are above it."""
_X32_BIT: Final = 0x40000000
"""__X32_SYSCALL_BIT: numbers from here on are of another calling convention of x86-64."""
_NEW_NAMESPACES: Final = 0x7E020000
"""CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID and _NEWNET of linux/sched.h."""


@dataclass(frozen=True, slots=True)
class _Architecture:
    """AUDIT_ARCH_* of linux/audit.h, and the numbers of the calls that differ."""

    audit: int
    seccomp: int
    socket: int
    socketpair: int
    connect: int
    clone: int
    unshare: int
    setns: int
    keys: tuple[int, int, int]


_ARCHITECTURES: Final = {
    "x86_64": _Architecture(0xC000003E, 317, 41, 53, 42, 56, 272, 308, (248, 249, 250)),
    "aarch64": _Architecture(0xC00000B7, 277, 198, 199, 203, 220, 97, 268, (217, 218, 219)),
}
_IO_URING_SETUP: Final = 425
"""Number of io_uring_setup(2) everywhere. A ring makes and connects sockets past every filter of calls."""
_CLONE3: Final = 435
"""Number of clone3(2) everywhere. A filter cannot see its flags, which are in memory; C libraries use clone
instead."""

_SET_FILTER: Final = 1
"""SECCOMP_SET_MODE_FILTER, an operation of seccomp(2)."""
_KEEP_SPECULATION: Final = 1 << 2
"""SECCOMP_FILTER_FLAG_SPEC_ALLOW: kernels before 5.16 otherwise slow the filtered process down (a
mitigation of Speculative Store Bypass), and the sandbox would change what is measured."""

_Step = tuple[int, int, int, int]
_PASS: Final[_Step] = (_RETURN, 0, 0, _ALLOW)
"""The step that lets a call through; the numbers are those of the fields of struct sock_filter."""


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
    """Return whether there is a filter for this machine's architecture."""
    return os.uname().machine in _ARCHITECTURES


def restrict() -> None:
    """Install the filter for this process and its children; new privileges must be forbidden before.

    Raises `OSError`.
    """
    arch = _ARCHITECTURES[os.uname().machine]
    steps = _steps(arch)
    program = _Program(len(steps), (_Filter * len(steps))(*(_Filter(*step) for step in steps)))
    system_call(
        arch.seccomp, ctypes.c_uint(_SET_FILTER), ctypes.c_uint(_KEEP_SPECULATION), ctypes.byref(program)
    )


def _steps(arch: _Architecture) -> list[_Step]:
    """Return the program, as (code, steps to skip if true, if false, value)."""
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, arch.audit),
        _fail(errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, 0, 1, _X32_BIT),
        _fail(errno.ENOSYS),
    ]
    for number in (_IO_URING_SETUP, _CLONE3):
        steps += _on(number, [_fail(errno.ENOSYS)])
    for number in (arch.connect, arch.unshare, arch.setns, *arch.keys):
        steps += _on(number, [_fail(errno.EPERM)])
    return [
        *steps,
        *_on(arch.socket, _sockets()),
        *_on(arch.socketpair, _connected_types()),
        *_on(
            arch.clone, [_load_argument(0), (_IF_ANY_BIT, 0, 1, _NEW_NAMESPACES), _fail(errno.EPERM), _PASS]
        ),
        _PASS,
    ]


def _sockets() -> list[_Step]:
    """Allow local sockets that need a connection, which `connect` refuses, and the kernel's own messages
    (netlink), by which drivers learn of devices.
    """
    return [
        _load_argument(0),
        (_IF_EQUAL, 0, 1, socket.AF_NETLINK),
        _PASS,
        (_IF_EQUAL, 1, 0, socket.AF_UNIX),
        _fail(errno.EPERM),
        *_connected_types(),
    ]


def _connected_types() -> list[_Step]:
    """Allow streams only: a datagram could be sent to any path without `connect`."""
    return [
        _load_argument(1),
        (_AND, 0, 0, _TYPE_MASK),
        (_IF_EQUAL, 1, 0, socket.SOCK_STREAM),
        (_IF_EQUAL, 0, 1, socket.SOCK_SEQPACKET),
        _PASS,
        _fail(errno.EPERM),
    ]


def _on(number: int, body: list[_Step]) -> list[_Step]:
    """Run `body`, which ends in a return, where the loaded number is this one."""
    return [(_IF_EQUAL, 0, len(body), number), *body]


def _load_argument(index: int) -> _Step:
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * index)


def _fail(error: int) -> _Step:
    return (_RETURN, 0, 0, _ERROR | error)
