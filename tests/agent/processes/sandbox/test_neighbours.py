"""The filter of an arm's process lets through listed system calls, on each architecture that it knows."""

from __future__ import annotations

import errno

import pytest

from agent.processes.sandbox import bpf, neighbours
from tests.agent.processes.sandbox.bpf_machine import ALLOWED, WITHOUT_EFFECT, answer

OWN, OTHER = 4711, 4712
REFUSED = errno.EPERM
NUMBERS = {
    "x86_64": {
        "read": 0, "kill": 62, "tgkill": 234, "fcntl": 72, "prctl": 157, "sched_setaffinity": 203,
        "setpriority": 141, "ioprio_set": 251, "ptrace": 101, "setsid": 112, "fchmod": 91, "chmod": 90,
    },
    "aarch64": {
        "read": 63, "kill": 129, "tgkill": 131, "fcntl": 25, "prctl": 167, "sched_setaffinity": 122,
        "setpriority": 140, "ioprio_set": 30, "ptrace": 117, "setsid": 157, "fchmod": 52,
    },
}  # fmt: skip
"""Numbers of asm/unistd.h."""

CALLS = [
    ("read", (0, 0, 0), ALLOWED),
    ("ptrace", (0, 0), REFUSED),
    ("setsid", (), REFUSED),
    ("fchmod", (3, 0), WITHOUT_EFFECT),
    ("chmod", (0, 0), WITHOUT_EFFECT),
    ("sched_setaffinity", (0, 8), ALLOWED),
    ("sched_setaffinity", (OWN, 8), ALLOWED),
    ("sched_setaffinity", (OTHER, 8), WITHOUT_EFFECT),
    ("setpriority", (0, 0, 5), ALLOWED),
    ("setpriority", (0, OWN, 5), ALLOWED),
    ("setpriority", (0, OTHER, 5), REFUSED),
    ("setpriority", (1, 0, 5), REFUSED),
    ("setpriority", (2, 0, 5), REFUSED),
    ("ioprio_set", (1, 0, 5), ALLOWED),
    ("ioprio_set", (1, OTHER, 5), REFUSED),
    ("ioprio_set", (2, 0, 5), REFUSED),
    ("ioprio_set", (3, 0, 5), REFUSED),
    ("fcntl", (3, 1, 0), ALLOWED),
    ("fcntl", (3, 8, OTHER), REFUSED),
    ("fcntl", (3, 15, 0), REFUSED),
    ("fcntl", (3, 1024, 0), REFUSED),
    ("prctl", (15, 0), ALLOWED),
    ("prctl", (62, 1, 0), REFUSED),
    ("kill", (OTHER, 9), ALLOWED),
]
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
]


def verdict(machine: str, call: str, *arguments: int, leads: bool = True, scoped: bool = True) -> int:
    steps = neighbours.steps(machine, OWN, leads=leads, signals_are_scoped=scoped)
    return answer(steps, bpf._AUDIT[machine], NUMBERS[machine][call], *arguments)


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize(("call", "arguments", "expected"), CALLS)
def test_a_call_reaches_the_process_itself_alone(machine, call, arguments, expected):
    if call in NUMBERS[machine]:
        assert verdict(machine, call, *arguments) == expected


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize(("call", "target", "leads", "expected"), SIGNALS)
def test_where_landlock_keeps_no_signals_inside_the_filter_does(machine, call, target, leads, expected):
    assert verdict(machine, call, target, 9, leads=leads, scoped=False) == expected


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize("calls", [neighbours.REFUSED, neighbours.OF_ONESELF, neighbours.WITHOUT_EFFECT])
def test_every_listed_call_is_answered(machine, calls):
    steps = neighbours.steps(machine, OWN, leads=True, signals_are_scoped=True)
    for name, call in calls.items():
        number = call.number(machine)
        if number is not None:
            assert answer(steps, bpf._AUDIT[machine], number, OTHER, OTHER) != ALLOWED, name
