"""`farm lock`: run a command of the user while nothing of the farm runs on a device of this machine."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from orchestrator.cli.verb import read_length
from orchestrator.errors import UsageError


def lock(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[DEVICE] -- COMMAND...", help="A device of this machine, and the command."),
    ],
    host: Annotated[
        bool, typer.Option("--host", help="All devices of this machine; no DEVICE then.")
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="Wait so long at most: 30s, 10m, 2h; 0s: not at all."),
    ] = None,
) -> int:
    """Run a command on this machine while no attempt runs beside it.

    Waits until DEVICE, or with --host every device, is free, and tells what it waits for. Attempts of every
    farm and agent of this machine wait meanwhile, until the command and all that it started have ended,
    however they end. DEVICE is named as in `farm-agent probe`.
    Exit code: that of the command; 75 where it was not free in time, 127 where there is no such command.

    Examples:
      farm lock gpu-0 -- clpeak
      farm lock --host --timeout 10m -- make bench
    """
    what, command = (["--host"], words) if host else (["--device", words[0]], words[1:])
    if not command:
        raise UsageError(
            "a device and a command are needed: farm lock gpu-0 -- COMMAND, farm lock --host -- COMMAND"
        )
    wait = [] if timeout is None else ["--timeout", str(read_length(timeout, "--timeout").total_seconds())]
    # -P: a file called `agent.py` in the user's folder must not be taken for the agent.
    python = [sys.executable, "-P", "-m", "agent.hold"]
    os.execv(python[0], [*python, *what, *wait, "--", *command])  # noqa: S606  # no shell reads the words
