"""Which system calls a runner's filter lets through, on each architecture that it knows."""

from __future__ import annotations

import errno
import socket

import pytest

from agent.processes.sandbox import seccomp

ALLOWED, NOT_THERE, FORBIDDEN = 0, errno.ENOSYS, errno.EPERM
IO_URING_SETUP, CLONE3 = 425, 435
CLONE_THREAD, CLONE_NEWUSER = 0x00010000, 0x10000000
X32 = 0x40000000
FLAGS = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


def verdict(arch: seccomp._Architecture, call: int, *arguments: int, audit: int | None = None) -> int:
    """Error number of a call, 0 where it is let through: the program run as the kernel's BPF machine does."""
    words = {0: call, 4: arch.audit if audit is None else audit}
    words |= {16 + 8 * index: value for index, value in enumerate(arguments)}
    steps, place, accumulator = seccomp._steps(arch), 0, 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        match code:
            case 0x20:  # BPF_LD | BPF_W | BPF_ABS
                accumulator = words.get(value, 0)
            case 0x54:  # BPF_ALU | BPF_AND | BPF_K
                accumulator &= value
            case 0x06:  # BPF_RET | BPF_K
                return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF
            case 0x15 | 0x35 | 0x45:  # BPF_JMP with BPF_JEQ, BPF_JGE, BPF_JSET
                holds = {
                    0x15: accumulator == value,
                    0x35: accumulator >= value,
                    0x45: bool(accumulator & value),
                }
                place += if_true if holds[code] else if_false
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


@pytest.fixture(params=["x86_64", "aarch64"])
def arch(request: pytest.FixtureRequest) -> seccomp._Architecture:
    return seccomp._ARCHITECTURES[request.param]


def test_calls_that_no_filter_can_look_into_are_not_there(arch: seccomp._Architecture) -> None:
    assert [verdict(arch, call) for call in (IO_URING_SETUP, CLONE3)] == [NOT_THERE] * 2


def test_calls_by_another_numbering_or_of_another_architecture_are_not_there(
    arch: seccomp._Architecture,
) -> None:
    assert [verdict(arch, X32 | call) for call in (0, 1, arch.socket, arch.connect)] == [NOT_THERE] * 4
    assert verdict(arch, arch.connect, audit=0x40000003) == NOT_THERE  # AUDIT_ARCH_I386


def test_what_leads_out_is_forbidden(arch: seccomp._Architecture) -> None:
    for call in (arch.connect, arch.unshare, arch.setns, *arch.keys):
        assert verdict(arch, call) == FORBIDDEN


@pytest.mark.parametrize("flags", [0, FLAGS])
def test_local_sockets_that_need_a_connection_are_the_only_ones(
    arch: seccomp._Architecture, flags: int
) -> None:
    kinds = {
        socket.SOCK_STREAM: ALLOWED,
        socket.SOCK_SEQPACKET: ALLOWED,
        socket.SOCK_DGRAM: FORBIDDEN,
        socket.SOCK_RAW: FORBIDDEN,
    }
    for kind, expected in kinds.items():
        assert verdict(arch, arch.socket, socket.AF_UNIX, kind | flags) == expected
        assert verdict(arch, arch.socketpair, socket.AF_UNIX, kind | flags) == expected
        assert verdict(arch, arch.socket, socket.AF_INET, kind | flags) == FORBIDDEN
        assert verdict(arch, arch.socket, socket.AF_INET6, kind | flags) == FORBIDDEN
    assert verdict(arch, arch.socket, socket.AF_NETLINK, socket.SOCK_RAW | flags) == ALLOWED


def test_threads_and_processes_are_made_and_namespaces_are_not(arch: seccomp._Architecture) -> None:
    assert verdict(arch, arch.clone, CLONE_THREAD) == ALLOWED
    assert verdict(arch, arch.clone, CLONE_NEWUSER) == FORBIDDEN
    assert verdict(arch, 0) == ALLOWED
