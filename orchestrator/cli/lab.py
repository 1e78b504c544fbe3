"""`farm devices`, `farm doctor`, `farm version`: what is here, and is it well?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cli.verb import OK, SOME_FAILED, Json, open_farm

if TYPE_CHECKING:
    from agent.messages import AgentHello


def devices(as_json: Json = False) -> int:
    """List the devices and the delegates they host."""
    from orchestrator.cli import output

    with open_farm() as farm:
        hello = farm.hello()
    if as_json:
        output.emit_json(_hello_json(hello))
        return OK
    columns = [output.Column(name) for name in ("device", "kind", "name", "delegates", "environment")]
    output.table(
        columns,
        [
            (device.device_id, device.kind, device.name, ", ".join(device.delegates), device.environment_id)
            for device in hello.devices
        ],
    )
    for missing in hello.missing:
        output.line(f"no {missing.kind}: {missing.reason}")
    return OK


def doctor(as_json: Json = False) -> int:
    """Check that the farm is well.

    Database, store, devices and delegates; each fault comes with the way to mend it.
    Exit code: 0 all well, 1 something is wrong.
    """
    from orchestrator.cli import output

    with open_farm() as farm:
        checks = farm.doctor()
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


def _hello_json(hello: AgentHello) -> dict[str, object]:
    return {
        "agent": hello.agent_id,
        "host": hello.host,
        "version": hello.version,
        "devices": [
            device.model_dump(mode="json") | {"environment_id": device.environment_id}
            for device in hello.devices
        ],
        "missing": [missing.model_dump(mode="json") for missing in hello.missing],
    }
