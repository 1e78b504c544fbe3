"""The files by which an agent and the runner of one attempt exchange data, in the attempt's work folder.

job.json          AttemptFile       agent -> runner
progress          one line of text  runner -> agent: its present phase
process-<i>.json  ProcessReport     measuring process -> runner
result.json       RunnerResult      runner -> agent; appears complete (atomic rename)
samples.json      the raw samples   runner -> agent, which copies them into the store
labelled.json     LabelledReport    the process that runs on labelled data -> runner
log               stdout and stderr of all of them
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import get_ident
from typing import Final

from pydantic import Field

from agent.processes.left_files import open_left
from agent.processes.supervisor import LOG_FILE
from agent.wire.bounded import Facts, Integer, Sha256, Text
from agent.wire.messages import (
    Delegation,
    Device,
    JobSpec,
    LabelledScore,
    Measurement,
    ProcessSamples,
    Reason,
    Status,
    Wire,
)

JOB_FILE: Final = "job.json"
RESULT_FILE: Final = "result.json"
SAMPLES_FILE: Final = "samples.json"
LABELLED_FILE: Final = "labelled.json"
PROGRESS_FILE: Final = "progress"

_LOG_TAIL_BYTES: Final = 4000
"""Bytes of a log that go into a result: about the last 50 lines, which hold a traceback."""

_PROGRESS_BYTES: Final = 1000
"""Bytes of the progress file that are read: a phase has at most 100. The runner writes it, so it may hold
anything."""

LEASE_VARIABLE: Final = "FARM_LEASE_DESCRIPTOR"
"""In the runner's environment: comma-separated numbers of the inherited descriptors that lock the device."""


class AttemptFile(Wire):
    """Everything that a runner needs: it has no network and no database."""

    job: JobSpec
    device: Device
    model_path: str
    data_path: str | None = None
    references: str
    runs_log: str


class OutputFact(Wire):
    """Name and affine quantisation of an output; scale 0: not quantised."""

    name: Text
    scale: float
    zero_point: Integer


class Failure(Wire):
    """Why a process measured nothing. `delegation` is set where a delegate accepted no operator."""

    status: Status
    reason: Reason
    delegation: Delegation | None = None


class ProcessReport(Wire):
    """The report of one measuring process: samples or a failure.

    Its first and its last outputs are in `process-<i>.npz`, of the cold process those of every input set.
    """

    samples: ProcessSamples | None = None
    failure: Failure | None = None
    delegation: Delegation | None = None
    settings: Facts = Field(default_factory=dict)
    output_facts: tuple[OutputFact, ...] = ()
    last_set: int = 0


class LabelledReport(Wire):
    """The report of the process that ran on labelled data."""

    score: LabelledScore | None = None
    failure: Failure | None = None


class RunnerResult(Wire):
    """The result of a runner. `samples_sha256` is the hash of `samples.json`."""

    status: Status
    reason: Reason | None
    measurement: Measurement | None = None
    samples_sha256: Sha256 | None = None
    facts: Facts = Field(default_factory=dict)


def report_path(folder: Path, index: int) -> Path:
    """Return where measuring process `index` writes its `ProcessReport`."""
    return folder / f"process-{index}.json"


def outputs_path(folder: Path, index: int) -> Path:
    """Return where measuring process `index` writes its outputs."""
    return folder / f"process-{index}.npz"


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds all of it or does not change, even in a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    # The data is on the disk before the name points to it, and the name before this returns.
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_progress(folder: Path, phase: str) -> None:
    """Write the present phase; a reader sees the old line or the new one, and no part of one."""
    # A thread of its own announces long preparations.
    temporary = folder / f".{PROGRESS_FILE}.{os.getpid()}.{get_ident()}.tmp"
    temporary.write_text(phase)
    temporary.replace(folder / PROGRESS_FILE)


def read_progress(folder: Path) -> str:
    """Return the last line of `write_progress`; empty before the first, or where it cannot be read."""
    try:
        with open_left(folder / PROGRESS_FILE) as file:
            return file.read(_PROGRESS_BYTES).decode(errors="replace")
    except OSError:
        return ""


def log_tail(folder: Path, limit: int = _LOG_TAIL_BYTES) -> str:
    """Return the last `limit` bytes of the log, undecodable bytes replaced; else why it cannot be read."""
    try:
        with open_left(folder / LOG_FILE) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            return file.read(limit).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"the runner's log cannot be read: {error.strerror}\n"
