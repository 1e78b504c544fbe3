"""`farm-agent`: serve a lab with this host's devices, or look at what it offers."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

from agent.config import STATE_VARIABLE, state_folder
from agent.devices import ProbeError, probe
from agent.logs import LogFormat, log_to_stderr
from agent.messages import PROTOCOL_VERSION

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The agent of one lab machine.")


@app.command("start")
def start(
    state: Annotated[Path | None, typer.Option(help=f"State folder (default: ${STATE_VARIABLE}).")] = None,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="How to log.")] = LogFormat.TEXT,
) -> None:
    """Serve the lab that this host was enrolled in, in the foreground, until SIGTERM.

    What runs then is reported as interrupted and tried again elsewhere; results that the farm has not
    confirmed are kept and sent by the next start.
    Exit code: 0 stopped, 1 it cannot start, 3 the farm speaks another protocol.

    Example: farm-agent start --log-format json
    """
    from agent.lab import serve_lab  # noqa: PLC0415  # the other verbs need no link

    log_to_stderr(log_format)
    raise typer.Exit(serve_lab(state or state_folder()))


@app.command("probe")
def show_probe() -> None:
    """List this host's devices as JSON.

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
    """Print the version and the protocol.

    Example: farm-agent version
    """
    typer.echo(f"farm-agent {installed_version('delegate-farm')}, protocol {PROTOCOL_VERSION}")


def main() -> None:
    """Entry point."""
    app()
