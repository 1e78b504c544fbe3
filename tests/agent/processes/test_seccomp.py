"""A runner's filter lets through listed system calls, on each architecture that it knows."""

from __future__ import annotations

import errno
import socket

import pytest

from agent.processes.sandbox import bpf, calls, seccomp
from tests.agent.processes.sandbox.bpf_machine import WITHOUT_EFFECT, answer

ALLOWED, NOT_THERE, FORBIDDEN = 0, errno.ENOSYS, errno.EPERM
UNNEEDED = (
    "bpf", "userfaultfd", "mount", "umount2", "pivot_root", "open_by_handle_at", "kexec_load",
    "init_module", "finit_module", "delete_module", "reboot", "swapon", "acct", "syslog", "quotactl",
    "clock_settime", "adjtimex", "mknodat", "chroot", "fanotify_init", "vmsplice", "kcmp",
)  # fmt: skip
"""Calls by which kernels were attacked, or that change the host."""
ARGUMENTS = ("socket", "socketpair", "clone", "utimensat", "prctl", "fcntl")
"""Answered by their arguments; tested above."""
NUMBERS = [
    ("read", 0, 63), ("open", 2, None), ("openat", 257, 56), ("connect", 42, 203), ("socket", 41, 198),
    ("clone", 56, 220), ("prlimit64", 302, 261), ("setxattr", 188, 5), ("utimensat", 280, 88),
    ("fcntl", 72, 25), ("shmget", 29, 194), ("io_uring_setup", 425, 425), ("landlock_add_rule", 445, 445),
]  # fmt: skip
"""Some numbers of asm/unistd_64.h and asm-generic/unistd.h."""
CLONE_THREAD, CLONE_NEWUSER = 0x00010000, 0x10000000
X32 = 0x40000000
FLAGS = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
OTHER, TIMES = 4712, 0x7FFF_0000_1000
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


def verdict(machine: str, call: str | int, *arguments: int, audit: int | None = None) -> int:
    """Return the answer; that of a call that the machine has not is the filter's to no number at all."""
    found = calls.number(call, machine) if isinstance(call, str) else call
    audit = bpf._AUDIT[machine] if audit is None else audit
    return NOT_THERE if found is None else answer(seccomp._steps(machine), audit, found, *arguments)


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_calls_that_no_filter_can_look_into_are_not_there(machine: str) -> None:
    assert [verdict(machine, call) for call in ("clone3", "io_uring_setup")] == [NOT_THERE] * 2


def test_calls_by_another_numbering_or_of_another_architecture_are_not_there(machine: str) -> None:
    numbers = [calls.number(name, machine) for name in ("read", "write", "socket", "connect")]
    assert [verdict(machine, X32 | (number or 0)) for number in numbers] == [NOT_THERE] * 4
    assert verdict(machine, "connect", audit=0x40000003) == NOT_THERE  # AUDIT_ARCH_I386


def test_calls_by_another_numbering_pass_no_filter_that_lets_others_through(machine: str) -> None:
    steps, audit = list(bpf.program(machine, [])), bpf._AUDIT[machine]
    assert [answer(steps, audit, number) for number in (0, X32)] == [ALLOWED, NOT_THERE]


@pytest.mark.parametrize("flags", [0, FLAGS])
def test_local_sockets_that_need_a_connection_are_the_only_ones(machine: str, flags: int) -> None:
    kinds = {
        socket.SOCK_STREAM: ALLOWED,
        socket.SOCK_SEQPACKET: ALLOWED,
        socket.SOCK_DGRAM: FORBIDDEN,
        socket.SOCK_RAW: FORBIDDEN,
    }
    for kind, expected in kinds.items():
        assert verdict(machine, "socket", socket.AF_UNIX, kind | flags) == expected
        assert verdict(machine, "socketpair", socket.AF_UNIX, kind | flags) == expected
        assert verdict(machine, "socket", socket.AF_INET, kind | flags) == FORBIDDEN
        assert verdict(machine, "socket", socket.AF_INET6, kind | flags) == FORBIDDEN
    assert verdict(machine, "socket", socket.AF_NETLINK, socket.SOCK_RAW | flags) == ALLOWED


def test_threads_and_processes_are_made_and_namespaces_are_not(machine: str) -> None:
    assert verdict(machine, "clone", CLONE_THREAD) == ALLOWED
    assert verdict(machine, "clone", CLONE_NEWUSER) == FORBIDDEN


@pytest.mark.parametrize(("call", "arguments", "expected"), CALLS)
def test_a_call_by_number_or_path_reaches_the_caller_alone(machine, call, arguments, expected):
    if calls.number(call, machine) is not None:
        assert verdict(machine, call, *arguments) == expected


@pytest.mark.parametrize("listed", [seccomp.REFUSED, seccomp.OF_ONESELF, seccomp.WITHOUT_EFFECT])
def test_every_listed_call_is_answered(machine, listed):
    for name in listed:
        assert verdict(machine, name, OTHER, OTHER) != ALLOWED, name


def test_what_a_delegate_was_seen_to_call_is_there_and_nothing_else(machine):
    """An unknown call, an old one, and those that strangers' code attacks kernels by."""
    answered = {"clone3", *seccomp.REFUSED, *seccomp.WITHOUT_EFFECT}
    for name in frozenset().union(*calls.recorded().values()) - answered:
        known = calls.number(name, machine) is not None
        assert verdict(machine, name) == (ALLOWED if known else NOT_THERE) or name in ARGUMENTS, name
    for name in UNNEEDED:
        assert verdict(machine, name) == NOT_THERE, name
    assert verdict(machine, 9999) == NOT_THERE


def test_a_family_of_which_none_was_recorded_is_not_there():
    assert {"open", "faccessat", "ppoll"} <= calls.allowed(), "others of their families were"
    assert not {"timer_create", "alarm", "setitimer"} & calls.allowed()


def test_the_recorded_delegates_are_those_of_the_product():
    assert {"cpu", "gpu", "litert", "openvino", "probe"} <= calls.recorded().keys()
    assert all(len(names) > 30 for names in calls.recorded().values())


@pytest.mark.parametrize(("name", "x86_64", "aarch64"), NUMBERS)
def test_numbers_are_those_of_asm_unistd(name, x86_64, aarch64):
    assert [calls.number(name, machine) for machine in ("x86_64", "aarch64")] == [x86_64, aarch64]
