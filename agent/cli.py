"""`farm-agent`: enrol this host in a lab, serve the lab with its devices, or list them."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from agent.config import LOG_PREFIX, STATE_VARIABLE, state_folder
from agent.devices import ProbeError, probe
from agent.wire.log_format import LogFormat
from agent.wire.logs import log_to_stderr
from agent.wire.messages import PROTOCOL_VERSION
from agent.wire.private_folder import keep_new_files_private

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The agent of one lab machine.")


State = Annotated[Path | None, typer.Option(help=f"State folder (default: ${STATE_VARIABLE}).")]


@app.command("enrol")
def enrol_here(
    server: Annotated[str, typer.Option(envvar="FARM_SERVER", help="URL of the farm's endpoint.")],
    token: Annotated[
        str,
        typer.Option(
            envvar="FARM_ENROL_TOKEN",
            show_envvar=True,
            help="One-time token of `farm agents enrol`; other users can see it here, not in the variable.",
        ),
    ],
    state: State = None,
) -> None:
    """Make this host an agent of a lab, or give it new secrets (after `farm agents rotate`).

    The keys are made here and stay here, in the file credentials.json of the
    state folder, which only this user can read. A running agent switches to
    new ones by itself. Where a private CA signed the server's certificate,
    set SSL_CERT_FILE to that CA.
    Exit code: 0 enrolled, 1 not enrolled.

    Example: FARM_ENROL_TOKEN=... farm-agent enrol --server https://lab:8460
    """
    from agent.enrolment import EnrolmentError, enrol  # noqa: PLC0415  # the other verbs need no HTTP

    _log(LogFormat.TEXT)
    folder = state or state_folder()
    try:
        credentials = enrol(server, token, folder)
    except EnrolmentError as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"enrolled as {credentials.agent_id}; now run: farm-agent start --state {folder}")


@app.command("start")
def start(
    state: State = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Form of the log lines.")
    ] = LogFormat.TEXT,
) -> None:
    """Serve the lab that this host is enrolled in, in the foreground, until SIGTERM.

    A host that is not enrolled yet is enrolled first where FARM_SERVER and
    FARM_ENROL_TOKEN are set. At SIGTERM, running attempts are reported as
    interrupted, and the farm tries them again; results that the farm has not
    confirmed are kept and sent after the next start.
    Exit code: 0 stopped, 1 it cannot start, 3 the farm speaks another protocol.

    Example: farm-agent start --log-format json
    """
    from agent.enrolment import EnrolmentError, enrol_once  # noqa: PLC0415  # as above
    from agent.serve_lab import serve_lab  # noqa: PLC0415  # the other verbs need no link

    _log(log_format)
    folder = state or state_folder()
    try:
        enrol_once(folder)
    except EnrolmentError as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(serve_lab(folder))


@app.command("probe")
def show_probe() -> None:
    """List this host's devices, and the delegates that it lacks, as JSON.

    Example: farm-agent probe
    """
    try:
        report = probe()
    except ProbeError as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(report.model_dump_json(indent=2))


@app.command("version")
def show_version() -> None:
    """Print the version of the agent and of its protocol.

    Example: farm-agent version
    """
    typer.echo(f"farm-agent {installed_version('delegate-farm')}, protocol {PROTOCOL_VERSION}")


def _log(form: LogFormat) -> None:
    log_to_stderr(form, prefix=LOG_PREFIX, loggers=("agent",))


def main() -> None:
    """Run `farm-agent`."""
    keep_new_files_private()
    app()
