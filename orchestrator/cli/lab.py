"""`farm lab serve` and `farm lab lock`: schedule for a lab, and have a machine of it to oneself."""

import os
import signal
import sys
from typing import Annotated

import typer

from agent.wire.logs import LogFormat, log_to_stderr
from agent.wire.private_folder import keep_new_files_private
from orchestrator.cli.verb import OK, read_length
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.errors import UsageError


def serve(
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="How to log.")] = LogFormat.TEXT,
) -> int:
    """Schedule for a lab: send cells to agents, receive results.

    Needs FARM_BROKER_URL (Redis); FARM_DATABASE_URL (PostgreSQL) where several machines submit. Runs in the
    foreground until SIGTERM or Ctrl-C; agents finish what they have meanwhile.
    Exit code: 0 stopped, 1 another process schedules already, 4 the database cannot be reached.

    Examples:
      farm lab serve
      farm lab serve --log-format json
    """
    from orchestrator.farm.remote.serving import serve_lab  # noqa: PLC0415  # Celery, which no help needs

    keep_new_files_private()
    home = FarmHome.from_environment()
    lab = LabConfig.load(home)
    if not lab.is_lab:
        raise UsageError(
            "no broker is configured; set FARM_BROKER_URL=redis://..., or broker_url in farm.toml"
        )
    log_to_stderr(log_format, prefix="%(asctime)s %(levelname)s ", loggers=("orchestrator",))
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # Only noted: the server looks between two steps, and no step ends half way.
        signal.signal(number, lambda received, _frame: stopped.append(received))
    serve_lab(home, lab, lambda: bool(stopped))
    return OK


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
      farm lab lock gpu-0 -- clpeak
      farm lab lock --host --timeout 20m -- make bench
    """
    what, command = (["--host"], words) if host else (["--device", words[0]], words[1:])
    if not command:
        raise UsageError(
            "a device and a command are needed: farm lab lock gpu-0 -- COMMAND; or --host for the device"
        )
    wait = [] if timeout is None else ["--timeout", str(read_length(timeout, "--timeout").total_seconds())]
    # -P: a file called `agent.py` in the user's folder must not be taken for the agent.
    python = [sys.executable, "-P", "-m", "agent.hold"]
    # In place of this process: it gets the signals, and its exit code is this command's.
    os.execv(python[0], [*python, *what, *wait, "--", *command])  # noqa: S606  # no shell reads the words


VERBS = {"serve": serve, "lock": lock}
