"""The filter of an arm's process lets through listed system calls, on each architecture that it knows."""

from __future__ import annotations

import errno

import pytest

from agent.processes.sandbox import bpf, inner
from tests.agent.processes.sandbox.bpf_machine import ALLOWED, answer

OWN, OTHER = 4711, 4712
REFUSED = errno.EPERM
NUMBERS = {
    "x86_64": {
        "read": 0,
        "kill": 62,
        "tgkill": 234,
        "setsid": 112,
        "setpgid": 109,
        "pidfd_send_signal": 424,
        "ioctl": 16,
    },
    "aarch64": {
        "read": 63,
        "kill": 129,
        "tgkill": 131,
        "setsid": 157,
        "setpgid": 154,
        "pidfd_send_signal": 424,
        "ioctl": 29,
    },
}
"""Numbers of asm/unistd.h."""

CALLS = [("read", ALLOWED), ("setsid", REFUSED), ("setpgid", REFUSED), ("kill", ALLOWED)]
SIGNALS = [
    ("kill", OWN, True, ALLOWED),
    ("kill", OWN, False, ALLOWED),
    ("kill", -OWN, True, ALLOWED),
    ("kill", 0, True, ALLOWED),
    ("kill", -OWN, False, REFUSED),
    ("kill", 0, False, REFUSED),
    ("kill", OTHER, True, REFUSED),
    ("kill", -OTHER, True, REFUSED),
    ("kill", -1, True, REFUSED),
    ("tgkill", OWN, False, ALLOWED),
    ("tgkill", OTHER, False, REFUSED),
    # Descriptors with the numbers of the process and of its group.
    ("pidfd_send_signal", OWN, True, REFUSED),
    ("pidfd_send_signal", 0, True, REFUSED),
]


def verdict(machine: str, call: str, *arguments: int, leads: bool = True, scoped: bool = True) -> int:
    steps = inner.steps(machine, OWN, leads=leads, signals_are_scoped=scoped)
    return answer(steps, bpf._AUDIT[machine], NUMBERS[machine][call], *arguments)


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_a_process_leaves_its_group_by_no_call(machine, call, expected):
    assert verdict(machine, call, OTHER, 0) == expected


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize(("call", "target", "leads", "expected"), SIGNALS)
def test_where_landlock_keeps_no_signals_inside_the_filter_does(machine, call, target, leads, expected):
    assert verdict(machine, call, target, 9, leads=leads, scoped=False) == expected


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize(
    ("command", "scoped", "expected"),
    [
        (0x8901, False, REFUSED),  # FIOSETOWN
        (0x8902, False, REFUSED),  # SIOCSPGRP
        (0x541B, False, ALLOWED),  # FIONREAD
        (0x8901, True, ALLOWED),
    ],
)
def test_there_nobody_else_gets_the_signals_of_a_socket(machine, command, scoped, expected):
    assert verdict(machine, "ioctl", 3, command, OTHER, scoped=scoped) == expected
