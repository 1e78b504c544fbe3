"""`python -m agent.hold (--host | --device ID) -- COMMAND`: runs a command while no attempt runs beside it.

The command replaces this process and inherits the locks, as a runner does: they are free once its last
process is dead, however it died. Its exit code and its signals are its own.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Final

from agent.attempt.lease import Lease, holders, lease_folder, try_lease
from agent.wire.exclusion import HOST_GROUP

USAGE_EXIT: Final = 2
"""Exit code for a device that this host does not have, as for a command line that is not understood."""

TIMED_OUT_EXIT: Final = 75
"""Exit code where the lock was not free in time: EX_TEMPFAIL of sysexits.h, which few commands end with."""

_NOT_EXECUTABLE_EXIT: Final = 126
"""Exit code where the command cannot be executed, as of a shell."""

_NOT_FOUND_EXIT: Final = 127
"""Exit code where there is no such command, as of a shell."""

_INTERRUPTED_EXIT: Final = 130
"""Exit code after Ctrl-C while it waits: 128 + SIGINT, as shells count."""

_POLL_S: Final = 0.2
"""Seconds between two tries, as an agent has them: nothing tells when a lock is freed. Larger leaves the
device idle for longer; smaller costs more system calls.
"""

_TELL_EVERY_S: Final = 60.0
"""Seconds between two lines of progress where no terminal can redraw one. Chosen: a log stays short."""


def main(arguments: list[str] | None = None) -> int:
    """Wait for the lock, then become the command. Returns an exit code only where it does not."""
    given = _parser().parse_args(arguments)
    command: list[str] = given.command
    # Looked for before the wait, which can take hours.
    if shutil.which(command[0]) is None:
        is_file = Path(command[0]).is_file()
        _tell(f"{command[0]}: {'it cannot be executed' if is_file else 'no such command'}")
        return _NOT_EXECUTABLE_EXIT if is_file else _NOT_FOUND_EXIT
    try:
        group = HOST_GROUP if given.host else _group_of(given.device)
        lease = _waited_for(group, given.device or "this host", given.timeout)
    except KeyboardInterrupt:
        return _INTERRUPTED_EXIT
    except (LookupError, OSError) as error:
        _tell(error.args[0] if isinstance(error, LookupError) else f"the device's lock: {error}")
        return USAGE_EXIT if isinstance(error, LookupError) else 1
    return TIMED_OUT_EXIT if lease is None else _become(command, lease)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agent.hold", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--host", action="store_true", help="everything on this host")
    what.add_argument("--device", metavar="ID", help="a device of this host, and what shares silicon with it")
    parser.add_argument("--timeout", type=float, help="seconds to wait at most (default: until it is free)")
    parser.add_argument("command", nargs="+", help="the command and its arguments")
    return parser


def _group_of(device_id: str) -> str:
    """Return the exclusion group of a device of this host. Raises `LookupError` naming the host's devices."""
    if device_id == HOST_GROUP:
        return HOST_GROUP
    from agent.devices import ProbeError, probe  # noqa: PLC0415  # the CPU and the whole host need no drivers

    try:
        groups = {device.device_id: device.exclusion_group for device in probe().devices}
    except ProbeError as error:
        raise LookupError(f"the devices of this host cannot be listed: {error}") from error
    if device_id not in groups:
        known = ", ".join(sorted(groups))
        raise LookupError(
            f"this host has no device {device_id!r}; it has: {known}. A lock is of the machine where "
            "it is taken: give the name without the agent's"
        )
    return groups[device_id]


def _waited_for(group: str, what: str, timeout_s: float | None) -> Lease | None:
    """Wait for the lease and return it; None if that takes too long. Raises `OSError`."""
    folder = lease_folder()
    start = time.monotonic()
    # So that the first line is told at once.
    told_s = -_TELL_EVERY_S
    redraws = sys.stderr.isatty()
    while True:
        lease = try_lease(folder, group)
        waited_s = time.monotonic() - start
        if lease is not None:
            # A line that was drawn is erased before the command writes its own.
            _tell("", end="\r\x1b[2K") if redraws and told_s >= 0 else None
            return lease
        if timeout_s is not None and waited_s >= timeout_s:
            _tell(f"{what} is still in use{holders(folder, group)} after {waited_s:.0f} s; try again later")
            return None
        if redraws or waited_s - told_s >= _TELL_EVERY_S:
            told_s = waited_s
            text = f"waiting for {what}: in use{holders(folder, group)}, {waited_s:.0f} s so far"
            _tell(text, end="\r" if redraws else "\n")
        time.sleep(_POLL_S)


def _become(command: list[str], lease: Lease) -> int:
    for descriptor in lease.descriptors:
        os.set_inheritable(descriptor, True)  # its only argument
    # Python ignores these; a command that inherits that would go on writing where nobody reads.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606  # the user's own command
    except OSError as error:
        _tell(f"{command[0]}: {error.strerror}")
        return _NOT_EXECUTABLE_EXIT


def _tell(text: str, end: str = "\n") -> None:
    sys.stderr.write(("\x1b[2K" if end == "\r" else "") + (f"farm lab lock: {text}" if text else "") + end)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
