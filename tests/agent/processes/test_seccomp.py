"""A runner's filter lets through listed system calls, on each architecture that it knows."""

from __future__ import annotations

import errno
import socket

import pytest

from agent.processes.sandbox import bpf, seccomp
from tests.agent.processes.sandbox.bpf_machine import answer

ALLOWED, NOT_THERE, FORBIDDEN = 0, errno.ENOSYS, errno.EPERM
IO_URING_SETUP, CLONE3 = 425, 435
CLONE_THREAD, CLONE_NEWUSER = 0x00010000, 0x10000000
X32 = 0x40000000
FLAGS = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK


def verdict(machine: str, call: int, *arguments: int, audit: int | None = None) -> int:
    audit = bpf._AUDIT[machine] if audit is None else audit
    return answer(seccomp._steps(machine), audit, call, *arguments)


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def numbers(machine: str) -> seccomp._Numbers:
    return seccomp._NUMBERS[machine]


def test_calls_that_no_filter_can_look_into_are_not_there(machine: str) -> None:
    assert [verdict(machine, call) for call in (IO_URING_SETUP, CLONE3)] == [NOT_THERE] * 2


def test_calls_by_another_numbering_or_of_another_architecture_are_not_there(
    machine: str,
    numbers: seccomp._Numbers,
) -> None:
    assert [verdict(machine, X32 | call) for call in (0, 1, numbers.socket, numbers.connect)] == [
        NOT_THERE
    ] * 4
    assert verdict(machine, numbers.connect, audit=0x40000003) == NOT_THERE  # AUDIT_ARCH_I386


def test_what_leads_out_is_forbidden(machine: str, numbers: seccomp._Numbers) -> None:
    for call in (numbers.connect, numbers.unshare, numbers.setns, *numbers.keys):
        assert verdict(machine, call) == FORBIDDEN


@pytest.mark.parametrize("flags", [0, FLAGS])
def test_local_sockets_that_need_a_connection_are_the_only_ones(
    machine: str, numbers: seccomp._Numbers, flags: int
) -> None:
    kinds = {
        socket.SOCK_STREAM: ALLOWED,
        socket.SOCK_SEQPACKET: ALLOWED,
        socket.SOCK_DGRAM: FORBIDDEN,
        socket.SOCK_RAW: FORBIDDEN,
    }
    for kind, expected in kinds.items():
        assert verdict(machine, numbers.socket, socket.AF_UNIX, kind | flags) == expected
        assert verdict(machine, numbers.socketpair, socket.AF_UNIX, kind | flags) == expected
        assert verdict(machine, numbers.socket, socket.AF_INET, kind | flags) == FORBIDDEN
        assert verdict(machine, numbers.socket, socket.AF_INET6, kind | flags) == FORBIDDEN
    assert verdict(machine, numbers.socket, socket.AF_NETLINK, socket.SOCK_RAW | flags) == ALLOWED


def test_threads_and_processes_are_made_and_namespaces_are_not(
    machine: str, numbers: seccomp._Numbers
) -> None:
    assert verdict(machine, numbers.clone, CLONE_THREAD) == ALLOWED
    assert verdict(machine, numbers.clone, CLONE_NEWUSER) == FORBIDDEN
    assert verdict(machine, 0) == ALLOWED
