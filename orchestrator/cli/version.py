"""`farm version`: the versions of the farm and of what it measures with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from agent.wire.messages import PROTOCOL_VERSION
from orchestrator.cli import output
from orchestrator.cli.verb import Json
from orchestrator.db.migrate import HEAD


def version(as_json: Json = False) -> int:
    """Print the versions of the farm and of what it measures with.

    schema: the database's tables; an older farm refuses a newer one. protocol: what agents and farm send
    each other; both must have the same.

    Examples:
      farm version --json
    """
    found = {"delegate-farm": installed("delegate-farm"), "schema": HEAD, "protocol": str(PROTOCOL_VERSION)}
    found["python"] = platform.python_version()
    for package in ("numpy", "pyopencl", "ai-edge-litert"):
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return output.answer(found, (f"{name} {value}" for name, value in found.items()), as_json)
