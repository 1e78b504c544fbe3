"""`farm-agent`: look at what this host offers."""

from __future__ import annotations

from importlib.metadata import version as installed_version

import typer

from agent.devices import ProbeError, probe
from agent.messages import PROTOCOL_VERSION

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The agent of one lab machine.")


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
