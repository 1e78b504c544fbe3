"""Recover, at an agent's start, the attempts that were running when its predecessor died."""

import contextlib
from collections.abc import Mapping

from agent.attempt.journal import Journal
from agent.attempt.references import ReferenceFolder
from agent.attempt.result import Outcome, from_result_file, has_result, reported
from agent.attempt.running import log_gone
from agent.config import AgentConfig
from agent.processes import cgroup
from agent.processes.left_files import remove_left
from agent.processes.supervisor import reap
from agent.wire.messages import Device, JobResult, JobSpec, Reason, ReasonCode, Status


def recover(config: AgentConfig, devices: Mapping[str, Device], journal: Journal) -> None:
    """Kill what still runs of each open attempt and journal its result, the runner's own where complete.

    Raises `NoRoomError` where a result does not fit on the disk: the attempt stays open for the next start.
    """
    for job in journal.open_jobs():
        device, folder = devices.get(job.device_id), config.folder(job.attempt_id)
        # The processes first: a runner that is still alive would write into the folder, and onto the device.
        # Those of an arm belong to the attempt that carried it.
        log_gone(config, job, device, reap(job.lead or job.attempt_id))
        # Journaled before the folder is deleted, which until then holds the only copy of the result.
        journal.spool(_result(config, job, device))
        remove_left(folder)
    cgroup.sweep()
    # Those of baselines, and what an earlier agent could not remove: no attempt is open any more.
    with contextlib.suppress(FileNotFoundError):
        for left in config.work.iterdir():
            remove_left(left)


def _result(config: AgentConfig, job: JobSpec, device: Device | None) -> JobResult:
    folder = config.folder(job.attempt_id)
    outcome = Outcome(job, device, folder)
    text = "the agent was killed while this attempt ran"
    interrupted = Reason(code=ReasonCode.INTERRUPTED, text=text)
    if has_result(folder):
        result = from_result_file(outcome, config.store)
    else:
        result = reported(outcome, Status.FAILED, interrupted)
    made = ReferenceFolder(config.references, config.store).keep(job, folder)
    return result.model_copy(update={"references": made})
