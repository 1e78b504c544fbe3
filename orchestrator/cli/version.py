"""`farm version`: the versions of the farm and of what it measures with."""

from __future__ import annotations

from orchestrator.cli.verb import OK, Json


def version(as_json: Json = False) -> int:
    """Print the versions of the farm and of what it measures with."""
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
