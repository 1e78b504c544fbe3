"""`farm serve`: schedule for a lab."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from agent.wire.logs import LogFormat, log_to_stderr
from agent.wire.private_folder import keep_new_files_private
from orchestrator.cli.verb import OK
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
      farm serve
      farm serve --log-format json
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
        signal.signal(number, lambda received, _frame: stopped.append(received))
    serve_lab(home, lab, lambda: bool(stopped))
    return OK
