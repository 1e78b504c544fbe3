"""A runner's filter lets through listed system calls, on each architecture that it knows."""

from __future__ import annotations

import errno
import socket

import pytest

from agent.processes.sandbox import bpf, seccomp
from tests.agent.processes.sandbox.bpf_machine import WITHOUT_EFFECT, answer

ALLOWED, NOT_THERE, FORBIDDEN = 0, errno.ENOSYS, errno.EPERM
IO_URING_SETUP, CLONE3 = 425, 435
CLONE_THREAD, CLONE_NEWUSER = 0x00010000, 0x10000000
X32 = 0x40000000
FLAGS = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
OTHER, TIMES = 4712, 0x7FFF_0000_1000
NUMBERS = {
    "x86_64": {
        "prlimit64": 302, "sched_setscheduler": 144, "sched_setaffinity": 203, "setpriority": 141,
        "ioprio_set": 251, "fcntl": 72, "prctl": 157, "perf_event_open": 298, "ptrace": 101,
        "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "chown": 92, "fchownat": 260,
        "utimensat": 280, "utimes": 235, "setxattr": 188, "fremovexattr": 199,
        "shmget": 29, "shmat": 30, "semop": 65, "msgrcv": 70, "mq_open": 240,
    },
    "aarch64": {
        "prlimit64": 261, "sched_setscheduler": 119, "sched_setaffinity": 122, "setpriority": 140,
        "ioprio_set": 30, "fcntl": 25, "prctl": 167, "perf_event_open": 241, "ptrace": 117,
        "fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "fchownat": 54,
        "utimensat": 88, "setxattr": 5, "fremovexattr": 16,
        "shmget": 194, "shmat": 196, "semop": 193, "msgrcv": 188, "mq_open": 180,
    },
}  # fmt: skip
"""Numbers of asm/unistd.h."""
CALLS = [
    ("prlimit64", (0, 8), ALLOWED),
    ("prlimit64", (OTHER, 8), FORBIDDEN),
    ("sched_setscheduler", (OTHER, 0), FORBIDDEN),
    ("sched_setaffinity", (0, 8), ALLOWED),
    ("sched_setaffinity", (OTHER, 8), WITHOUT_EFFECT),
    ("setpriority", (0, 0, 5), ALLOWED),
    ("setpriority", (0, OTHER, 5), FORBIDDEN),
    ("setpriority", (1, 0, 5), FORBIDDEN),
    ("setpriority", (2, 0, 5), FORBIDDEN),
    ("ioprio_set", (1, 0, 5), ALLOWED),
    ("ioprio_set", (1, OTHER, 5), FORBIDDEN),
    ("ioprio_set", (2, 0, 5), FORBIDDEN),
    ("ioprio_set", (3, 0, 5), FORBIDDEN),
    ("fcntl", (3, 1, 0), ALLOWED),
    ("fcntl", (3, 8, OTHER), FORBIDDEN),
    ("fcntl", (3, 15, 0), FORBIDDEN),
    ("fcntl", (3, 1024, 0), FORBIDDEN),
    ("prctl", (15, 0), ALLOWED),
    ("prctl", (62, 1, OTHER), FORBIDDEN),
    ("perf_event_open", (TIMES, 0), ALLOWED),
    ("perf_event_open", (TIMES, OTHER), FORBIDDEN),
    ("ptrace", (0, 0), FORBIDDEN),
    ("chmod", (0, 0), WITHOUT_EFFECT),
    ("fchmod", (3, 0), WITHOUT_EFFECT),
    ("fchmodat", (3, 0), WITHOUT_EFFECT),
    ("fchmodat2", (3, 0), WITHOUT_EFFECT),
    ("chown", (0, 0), FORBIDDEN),
    ("fchownat", (3, 0), FORBIDDEN),
    ("utimensat", (-100, 1, 0), FORBIDDEN),
    ("utimensat", (-100, 1, TIMES), WITHOUT_EFFECT),
    ("utimes", (0, 0), FORBIDDEN),
    ("setxattr", (0, 0), FORBIDDEN),
    ("fremovexattr", (3, 0), FORBIDDEN),
    ("shmget", (1, 4096), FORBIDDEN),
    ("shmat", (1, 0), FORBIDDEN),
    ("semop", (1, 0), FORBIDDEN),
    ("msgrcv", (1, 0), FORBIDDEN),
    ("mq_open", (0, 0), FORBIDDEN),
]


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


@pytest.mark.parametrize(("call", "arguments", "expected"), CALLS)
def test_a_call_by_number_or_path_reaches_the_caller_alone(machine, call, arguments, expected):
    if call in NUMBERS[machine]:
        assert verdict(machine, NUMBERS[machine][call], *arguments) == expected


@pytest.mark.parametrize("calls", [seccomp.REFUSED, seccomp.OF_ONESELF, seccomp.WITHOUT_EFFECT])
def test_every_listed_call_is_answered(machine, calls):
    for name, call in calls.items():
        number = call.number(machine)
        if number is not None:
            assert verdict(machine, number, OTHER, OTHER) != ALLOWED, name
