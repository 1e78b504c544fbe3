"""The result of an attempt: from the files that its runner left to the message for the orchestrator."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.attempt.artifacts import ArtifactError, put_artifact
from agent.attempt.files import KEPT_ANSWERS_FILE, RESULT_FILE, SAMPLES_FILE, RunnerResult, log_tail
from agent.attempt.room import NoRoomError, needing_room
from agent.processes.left_files import is_left, open_left
from agent.wire.messages import Device, JobResult, JobSpec, Reason, ReasonCode, Status

_MAX_RESULT_BYTES: Final = 2 * 1024 * 1024
"""Largest result file in bytes that is read: half of `MAX_MESSAGE_BYTES`, so that the message with the log
and the device's facts stays below its limit. Samples are in a file of their own and do not count."""


_WORDS_OF_OTHERS: Final = frozenset(
    {
        ReasonCode.INTERRUPTED,
        ReasonCode.AGENT_LOST,
        ReasonCode.ARTIFACT,
        ReasonCode.CANCELLED,
        ReasonCode.EXCLUDED,
        ReasonCode.QUEUE_LIMIT,
    }
)
"""Reasons that the agent or the farm alone may give: after most of them a cell is tried again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An attempt that has ended, and where its files are."""

    job: JobSpec
    device: Device | None
    folder: Path
    duration_ns: int = 0


def reported(outcome: Outcome, status: Status, reason: Reason) -> JobResult:
    """Return the result of an attempt whose runner left none."""
    device, job = outcome.device, outcome.job
    return JobResult(
        attempt_id=outcome.job.attempt_id,
        epoch=outcome.job.epoch,
        cell_id=outcome.job.cell_id,
        device_id=outcome.job.device_id,
        status=status,
        reason=reason,
        environment={} if device is None else device.environment_of(job.delegate_kind, job.delegate_options),
        facts={} if device is None else device.facts,
        log_tail=log_tail(outcome.folder),
        duration_ns=outcome.duration_ns,
    )


def has_result(folder: Path) -> bool:
    """Return whether the runner finished: the file appears by an atomic rename."""
    return is_left(folder / RESULT_FILE)


def from_result_file(outcome: Outcome, store: Path) -> JobResult:
    """Return the runner's result, once its samples and answers are in the store. An unusable one becomes
    `runner_error`.

    Raises `NoRoomError` while they do not fit on the disk: the work folder keeps everything.
    """
    try:
        found = _read(outcome.folder / RESULT_FILE)
        with needing_room(f"the samples in {store}"):
            if found.samples_sha256 is not None:
                put_artifact(store, outcome.folder / SAMPLES_FILE, found.samples_sha256)
            score = None if found.measurement is None else found.measurement.labelled
            if score is not None and score.answers_sha256 is not None:
                put_artifact(store, outcome.folder / KEPT_ANSWERS_FILE, score.answers_sha256)
        return _combined(outcome, found)
    except NoRoomError:
        raise
    except (OSError, ValueError, ArtifactError) as error:
        reason = Reason(code=ReasonCode.RUNNER_ERROR, text=f"the runner's result cannot be used: {error}")
        return reported(outcome, Status.FAILED, reason)


def _combined(outcome: Outcome, found: RunnerResult) -> JobResult:
    """Return the runner's result with the device's facts.

    Raises `ValueError` where they are too many, and for an end that is not the runner's to report.
    """
    code = None if found.reason is None else found.reason.code
    if found.status is Status.CANCELLED or code in _WORDS_OF_OTHERS:
        raise ValueError(f"it may not end as {found.status} ({code or 'no reason'}): nobody asked it to")
    measurement = found.measurement
    if measurement is not None:
        measurement = measurement.model_copy(update={"samples_sha256": found.samples_sha256})
    base = reported(outcome, found.status, Reason(code=ReasonCode.COMPLETED, text=""))
    if found.busy_ns is not None:
        base = base.model_copy(update={"duration_ns": found.busy_ns})
    # What the agent knows of its host and its sandbox, no runner can deny.
    more = {
        "reason": found.reason,
        "measurement": measurement,
        "facts": {**found.facts, **base.facts},
        # A driver or a package may have been replaced since the agent listed its devices.
        "environment": found.environment or base.environment,
    }
    # Made anew and not copied: a copy is not checked, and both tables of facts together may be too many.
    return JobResult.model_validate({name: getattr(base, name) for name in JobResult.model_fields} | more)


def _read(path: Path) -> RunnerResult:
    with open_left(path) as file:
        # One byte more than may be there tells that the file is longer.
        content = file.read(_MAX_RESULT_BYTES + 1)
        size = os.fstat(file.fileno()).st_size
    if len(content) > _MAX_RESULT_BYTES:
        raise ValueError(f"{path.name} has {size} bytes; the limit is {_MAX_RESULT_BYTES}")
    return RunnerResult.model_validate_json(content)
