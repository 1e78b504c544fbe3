"""Rights that kernels brought later: each is asked for where it is known, and refused where not granted."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from agent.processes.sandbox import kernel, landlock
from tests.needs import absent

ENTROPY = 0x80045200
"""RNDGETENTCNT of linux/random.h: how much entropy a device has."""


def test_a_device_that_is_only_read_answers_no_request():
    abi = landlock.supported_abi()
    if abi < 5:
        absent("no Landlock that knows requests to devices (Linux 6.10)")
    assert [asked(landlock.DEVICE, abi), asked(landlock.READ, abi)] == [0, 13]


def asked(rights: int, abi: int) -> int:
    """Return the error with which a process of these rights asks a device."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            kernel.forbid_new_privileges()
            landlock.restrict([(Path("/dev/urandom"), rights)], abi)
            fcntl.ioctl(os.open("/dev/urandom", os.O_RDONLY), ENTROPY, bytes(4))
        except OSError as error:
            code = error.errno or 255
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("abi", "newest"), [(1, 1 << 12), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15)])
def test_each_version_handles_its_rights(abi, newest):
    assert landlock._handled(abi) == 2 * newest - 1
