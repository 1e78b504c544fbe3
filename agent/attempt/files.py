"""What passes between an agent and the runner of one attempt, as JSON files in the attempt's work folder.

job.json          AttemptFile       agent -> runner
progress          one line of text  runner -> agent: what it does now
process-<i>.json  ProcessReport     measuring process -> runner
result.json       RunnerResult      runner -> agent; there only when complete (atomic rename)
samples.json      the raw samples   runner -> agent, who puts them into the store
labelled.json     LabelledReport    the process that runs on labelled data -> runner
log               stdout and stderr of all of them
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pydantic import Field

from agent.processes.supervisor import LOG_FILE
from agent.wire.messages import (
    Delegation,
    Device,
    JobSpec,
    LabelledScore,
    Measurement,
    ProcessSamples,
    Reason,
    Sha256,
    Status,
    Wire,
)

JOB_FILE: Final = "job.json"
RESULT_FILE: Final = "result.json"
SAMPLES_FILE: Final = "samples.json"
LABELLED_FILE: Final = "labelled.json"
PROGRESS_FILE: Final = "progress"

LEASE_VARIABLE: Final = "FARM_LEASE_DESCRIPTOR"
"""In the runner's environment: the number of the inherited descriptor that holds the device."""


class AttemptFile(Wire):
    """Everything a runner needs: it has no network and no database."""

    job: JobSpec
    device: Device
    model_path: str
    data_path: str | None = None
    references: str
    runs_log: str


class OutputFact(Wire):
    """Name and affine quantisation of an output; scale 0: not quantised."""

    name: str
    scale: float
    zero_point: int


class Failure(Wire):
    """Why a process measured nothing. `delegation` where a delegate took no operator."""

    status: Status
    reason: Reason
    delegation: Delegation | None = None


class ProcessReport(Wire):
    """What one measuring process has to tell: samples or a failure. Outputs lie in `process-<i>.npz`."""

    samples: ProcessSamples | None = None
    failure: Failure | None = None
    delegation: Delegation | None = None
    settings: dict[str, str] = Field(default_factory=dict)
    output_facts: tuple[OutputFact, ...] = ()
    last_set: int = 0


class LabelledReport(Wire):
    """What the process that ran on labelled data has to tell."""

    score: LabelledScore | None = None
    failure: Failure | None = None


class RunnerResult(Wire):
    """How the runner's work ended. `samples_sha256` is the hash of `samples.json`."""

    status: Status
    reason: Reason | None
    measurement: Measurement | None = None
    samples_sha256: Sha256 | None = None
    facts: dict[str, str] = Field(default_factory=dict)


def report_path(folder: Path, index: int) -> Path:
    """Where measuring process `index` writes its `ProcessReport`."""
    return folder / f"process-{index}.json"


def outputs_path(folder: Path, index: int) -> Path:
    """Where measuring process `index` writes its outputs."""
    return folder / f"process-{index}.npz"


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds all of it or does not change, also through a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_progress(folder: Path, phase: str) -> None:
    """Tell what happens now; a reader sees the old line or the new one."""
    temporary = folder / f".{PROGRESS_FILE}.{os.getpid()}.tmp"
    temporary.write_text(phase)
    temporary.replace(folder / PROGRESS_FILE)


def read_progress(folder: Path) -> str:
    """The last line of `write_progress`; empty before the first."""
    try:
        return (folder / PROGRESS_FILE).read_text()
    except FileNotFoundError:
        return ""


def log_tail(folder: Path, limit: int = 4000) -> str:
    """The last `limit` bytes of the log, undecodable bytes replaced."""
    try:
        with (folder / LOG_FILE).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
