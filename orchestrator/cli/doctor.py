"""`farm doctor`: check every part of the farm, and show the fix for each fault."""

import platform
from collections.abc import Sequence
from importlib.metadata import version as installed
from typing import Annotated

import typer

from agent.wire.messages import PROTOCOL_VERSION
from orchestrator.cli import output
from orchestrator.cli.verb import OK, SOME_FAILED, Json, open_farm
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.migrate import HEAD
from orchestrator.doctor.check import Check
from orchestrator.doctor.examine import examine_without_database
from orchestrator.errors import UnreachableError
from runtime.common.installation import installed_version


def doctor(
    versions: Annotated[
        bool,
        typer.Option(
            "--versions", help="Print the versions of the farm and of what it measures with; check nothing."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Check every part of the farm.

    Database, store, devices and delegates; each fault comes with its fix.
    Of the versions, schema is that of the database's tables: an older farm refuses a newer one. protocol is
    what agents and farm send each other: both must have the same.
    Exit code: 0 no fault, 1 a fault.

    Examples:
      farm doctor
      farm doctor --versions --json
    """
    if versions:
        found = _versions()
        return output.answer(found, (f"{name} {value}" for name, value in found.items()), as_json)
    return report(_checks(), as_json)


def report(checks: Sequence[Check], as_json: bool) -> int:
    """Print the findings with the fixes; the exit code is 1 where something is wrong."""
    well = all(check.ok for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{'ok  ' if check.ok else 'BAD '} {check.name}: {check.found}")
        if check.fix:
            lines.append(f"     fix: {check.fix}")
    output.answer({"ok": well, "checks": checks}, lines, as_json)
    return OK if well else SOME_FAILED


def _versions() -> dict[str, str]:
    found = {"delegate-farm": installed("delegate-farm"), "schema": HEAD, "protocol": str(PROTOCOL_VERSION)}
    found["python"] = platform.python_version()
    packages = ("numpy", "pyopencl", "ai-edge-litert")
    return found | {package: installed_version(package) or "not installed" for package in packages}


def _checks() -> list[Check]:
    try:
        with open_farm() as farm:
            return farm.doctor()
    except UnreachableError as error:
        # The farm cannot be opened: what needs no database is checked all the same.
        home = FarmHome.from_environment()
        return examine_without_database(home, LabConfig.load(home), error)
