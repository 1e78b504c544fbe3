"""Check whether this agent can run a job, and find the job's files, before the job is accepted."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.attempt.artifacts import ArtifactError, verified_file
from agent.attempt.journal import Journal
from agent.attempt.running import Member, RunningAttempt
from agent.config import AgentConfig
from agent.wire.messages import INTERFACE_FACT, INTERFACE_OPTION, Device, JobSpec, ReasonCode

_ATTEMPT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""An attempt's id names its work folder and its control group, so it must not contain a path."""


class RefusedError(Exception):
    """A job that is not accepted; `code` and the text tell the orchestrator why."""

    def __init__(self, code: ReasonCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def admit(
    job: JobSpec, config: AgentConfig, devices: Mapping[str, Device], journal: Journal
) -> RunningAttempt:
    """Return an attempt at a job, whose results go into the journal. Raises `RefusedError`."""
    epochs = journal.epochs()
    for own in job.attempts:
        _refuse_obsolete(own, epochs)
    device, arms = _device(job, devices), []
    for arm in job.arms:
        its = job.of(arm)
        arms.append(Member(its, _device(its, devices), arm.reported))
    try:
        model, data, inputs = _files(job, config.store)
    except ArtifactError as error:
        raise RefusedError(ReasonCode.ARTIFACT, str(error)) from error
    return RunningAttempt(config, journal, job, device, model, data, tuple(arms), inputs)


def _refuse_obsolete(job: JobSpec, epochs: Mapping[str, int]) -> None:
    last = epochs.get(job.device_id, 0)
    # An attempt of an older epoch was declared lost, and its cell runs elsewhere: a late message must not
    # start it.
    if job.epoch <= last:
        text = f"the job has epoch {job.epoch} of {job.device_id}, which has seen {last}: it is obsolete"
        raise RefusedError(ReasonCode.INTERRUPTED, text)


def _device(job: JobSpec, devices: Mapping[str, Device]) -> Device:
    """Return the job's device. Raises `RefusedError` for an unknown one, and for an id that is no name."""
    if not _ATTEMPT_ID.fullmatch(job.attempt_id):
        raise RefusedError(
            ReasonCode.RUNNER_ERROR, f"attempt id {job.attempt_id!r} cannot be used as a file name"
        )
    device = devices.get(job.device_id)
    if device is None:
        text = f"no device {job.device_id!r} on this host; it has {', '.join(devices)}"
        raise RefusedError(ReasonCode.NO_DEVICE, text)
    if (why := device.lacks(job.delegate_kind, job.delegate_options)) is not None:
        raise RefusedError(ReasonCode.NO_DEVICE, why)
    known = device.interfaces_of(job.delegate_kind)
    if not known:
        return device
    # The delegate's default stands first.
    facts = device.facts | {INTERFACE_FACT: job.delegate_options.get(INTERFACE_OPTION, known[0])}
    return device.model_copy(update={"facts": facts})


def _files(job: JobSpec, store: Path) -> tuple[Path, Path | None, dict[str, Path]]:
    """Return the paths of model, labelled data if any, and inputs' data by name. Raises `ArtifactError`."""
    model = verified_file(store, job.model_sha256, job.model_bytes)
    inputs = {
        name: verified_file(store, spec.data.sha256, spec.data.size_bytes, f"data of input {name!r}")
        for name, spec in job.inputs.items()
        if spec.data is not None
    }
    data = job.plan.labelled
    if data is None:
        return model, None, inputs
    return model, verified_file(store, data.sha256, data.size_bytes, "labelled data"), inputs
