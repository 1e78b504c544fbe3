"""Agents of one run of the suite share this host's devices and references of models, and fork their children.

`python -m tests.services.known FOLDER ARGUMENTS...` is the agent of a farm of one machine (`python -m agent`)
that takes both from `FOLDER` and leaves there what it finds out. Tests start an agent some hundred times;
each would load every driver anew, and run three processes for the references of the same small model. Their
runners and links are forks (`forked_children`).

Tests about any of these start their agents with the environment `ALONE`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import agent.__main__
from agent import config
from agent.attempt.references import ReferenceFolder
from agent.devices import RUNNER_COMMAND, ProbeReport, probe
from agent.processes import supervisor
from agent.processes.environment import for_runner
from agent.processes.sandbox.boundary import SandboxSettings
from agent.wire.messages import JobSpec
from agent.wire.reference import ReferenceRecord
from runtime.common.durable import write_atomically
from tests.services.forked_children import CHILDREN

VARIABLE: Final = "FARM_TEST_KNOWN"
"""Names the folder of a run."""

ALONE: Final = {VARIABLE: ""}
"""The environment of a program whose agents find out everything themselves."""


NO_ADAPTERS: Final = dict.fromkeys(
    ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"), "/nonexistent"
)
"""Drivers of Vulkan and OpenGL that are not there, so that WebGPU finds no adapter."""

CPU_ALONE: Final = {"OCL_ICD_VENDORS": "/nonexistent", **NO_ADAPTERS}
"""Settings for programs that need no GPU and find out everything themselves: trying one takes most of a
probe's time."""


def shared_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of this run; None for a program that is to find out everything itself."""
    name = environment.get(VARIABLE)
    return Path(name) if name else None


def share(folder: Path) -> None:
    """Have the agents of this process take from a folder what others have found out, and add to it, and
    start their children as forks.
    """
    supervisor.subprocess = CHILDREN  # type: ignore[attr-defined]
    config.probe = partial(probe_once, folder)  # type: ignore[assignment]
    prepare, keep = ReferenceFolder.prepare, ReferenceFolder.keep

    def prepared(self: ReferenceFolder, job: JobSpec) -> Path:
        own = prepare(self, job)
        _copy_missing(folder / own.name, own)
        return own

    def kept(self: ReferenceFolder, job: JobSpec, attempt_folder: Path) -> tuple[ReferenceRecord, ...]:
        records = keep(self, job, attempt_folder)
        own = self._of(job)
        _copy_missing(own, folder / own.name)
        return records

    ReferenceFolder.prepare, ReferenceFolder.keep = prepared, kept  # type: ignore[method-assign]


def _copy_missing(source: Path, target: Path) -> None:
    """Copy the references that a folder lacks; why one could not be made is found out anew."""
    if any(source.glob("*.npz")):
        target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.npz"):
        if not (target / path.name).exists():
            shutil.copy(path, partly := target / f"{path.name}.{os.getpid()}")
            partly.replace(target / path.name)


def probe_once(
    folder: Path,
    command: Sequence[str] = RUNNER_COMMAND,
    timeout_s: float | None = None,
    sandbox: SandboxSettings | None = None,
    releases: Sequence[str] = (),
) -> ProbeReport:
    """Answer as the first agent's probe did in the same environment."""
    if tuple(command) != RUNNER_COMMAND:
        return probe(command, timeout_s, sandbox, releases)
    environment = {name: value for name, value in for_runner().items() if name != "TMPDIR"}
    stated = json.dumps([sorted(environment.items()), sandbox is None or sandbox.on, *releases])
    answer = folder / f"{hashlib.sha256(stated.encode()).hexdigest()}.json"
    if answer.exists():
        return ProbeReport.model_validate_json(answer.read_bytes())
    report = probe(command, timeout_s, sandbox, releases)
    folder.mkdir(exist_ok=True)
    write_atomically(answer, report.model_dump_json().encode())
    return report


def main() -> int:
    """Run the agent of a farm of one machine; return its exit code."""
    share(Path(sys.argv[1]))
    return agent.__main__.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
