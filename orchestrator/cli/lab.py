"""`farm doctor`, `farm version`: what is here, and is it well?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.verb import OK, SOME_FAILED, Json, open_farm

if TYPE_CHECKING:
    from orchestrator.doctor.check import Check


def doctor(as_json: Json = False) -> int:
    """Check that the farm is well.

    Database, store, devices and delegates; each fault comes with the way to mend it.
    Exit code: 0 all well, 1 something is wrong.
    """
    from orchestrator.cli import output

    checks = _checks()
    well = all(check.ok for check in checks)
    if as_json:
        output.emit_json(
            {
                "ok": well,
                "checks": [{"name": c.name, "ok": c.ok, "found": c.found, "fix": c.fix} for c in checks],
            }
        )
    else:
        for check in checks:
            output.line(f"{'ok  ' if check.ok else 'BAD '} {check.name}: {check.found}")
            if check.fix:
                output.line(f"     fix: {check.fix}")
    return OK if well else SOME_FAILED


def _checks() -> list[Check]:
    from orchestrator.config.settings import FarmHome, LabConfig
    from orchestrator.doctor.examine import examine_without_database
    from orchestrator.errors import UnreachableError

    try:
        with open_farm() as farm:
            return farm.doctor()
    except UnreachableError as error:
        home = FarmHome.from_environment()
        return examine_without_database(home, LabConfig.load(home), error)


def version(as_json: Json = False) -> int:
    """Print versions: the farm's, and those of what it measures with."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from orchestrator.cli import output

    found = {"delegate-farm": installed("delegate-farm"), "python": platform.python_version()}
    for package in ("numpy", "pyopencl", "ai-edge-litert"):
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    if as_json:
        output.emit_json(found)
    else:
        for name, value in found.items():
            output.line(f"{name} {value}")
    return OK
