"""One attempt that this agent has accepted: performs the actions that `agent.attempt.lifecycle` returns."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import SubprocessError
from typing import Final

from agent.attempt import lifecycle, runlog
from agent.attempt.files import (
    JOB_FILE,
    LEASE_VARIABLE,
    AttemptFile,
    log_tail,
    read_progress,
    write_atomically,
)
from agent.attempt.lease import Lease, try_lease
from agent.attempt.result import NoRoomError, Outcome, from_result_file, has_result, reported
from agent.config import AgentConfig
from agent.processes import oom
from agent.processes.environment import for_runner
from agent.processes.exit_reason import last_line
from agent.processes.log_tailer import OutputReader
from agent.processes.sandbox.boundary import TEMPORARY_FOLDER, Boundary, boundary_for
from agent.processes.sandbox.reach import Reach
from agent.processes.supervisor import LOG_FILE, Launch, Runner
from agent.wire.messages import (
    Device,
    Heartbeat,
    JobResult,
    JobSpec,
    JobStarted,
    Reason,
    ReasonCode,
    RunnerOutput,
    Status,
    Wire,
)

NO_ROOM_TEXT = "measured; waiting: no space left on the agent's disk for its samples"
WAITING_TEXT = "waiting: another attempt on this host uses the device"

_HEARTBEAT_MARGIN: Final = 0.9
"""Part of the heartbeat time after which the next one is due. The loop wakes once per heartbeat time: with a
factor of 1 it could wake just before the due time, and send only every other heartbeat."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunningAttempt:
    """A running attempt. Call `advance` when time has passed or a child has ended.

    `outbox` collects messages for the link. `result` is set once the attempt has ended: none of its processes
    lives then, and the device is still leased.
    """

    config: AgentConfig
    job: JobSpec
    device: Device
    model: Path
    data: Path | None = None
    outbox: list[Wire] = field(default_factory=list)
    result: JobResult | None = None
    _state: lifecycle.Attempt = field(init=False)
    _lease: Lease | None = None
    _runner: Runner | None = None
    _oom_kills: int = 0
    _beats: int = 0
    _beat_due_s: float = 0.0
    _phase: str = ""
    _output: OutputReader = field(init=False)
    _uncollected: Outcome | None = None

    def __post_init__(self) -> None:
        self._state = lifecycle.Attempt(
            self.job.soft_limit_s, self.job.hard_limit_s, accepted_s=time.monotonic()
        )
        self._output = OutputReader(self.folder / LOG_FILE)

    @property
    def waits_for_device(self) -> bool:
        """True until the lease is granted."""
        return self._state.phase is lifecycle.Phase.WAITING

    @property
    def waits_for_disk(self) -> bool:
        """True where everything is measured and the disk is full: the next agent can complete it."""
        return self._uncollected is not None and self.result is None

    @property
    def runner_pid(self) -> int | None:
        """Process id of the runner, None before its start."""
        return None if self._runner is None else self._runner.process.pid

    @property
    def folder(self) -> Path:
        """The attempt's work folder."""
        return self.config.folder(self.job.attempt_id)

    def advance(self) -> None:
        """Try to lease the device, apply the runner's exit or the passing of time, report the phase."""
        if self._uncollected is not None:
            self._collect(self._uncollected)
            return
        if self.waits_for_device:
            self._lease = try_lease(self.config.leases, self.device.exclusion_group)
            if self._lease is not None:
                self.apply(lifecycle.LeaseGranted(time.monotonic()))
        returncode = None if self._runner is None else self._runner.poll()
        if returncode is not None:
            oom_killed = oom.kills() > self._oom_kills
            log_end = log_tail(self.folder)
            self.apply(lifecycle.RunnerExited(returncode, has_result(self.folder), log_end, oom_killed))
        else:
            self.apply(lifecycle.Tick(time.monotonic()))
        if self.result is None:
            self._send_heartbeat()
            self._send_output()

    def apply(self, event: lifecycle.Event) -> None:
        """Apply an event to the state machine and perform the actions that it returns."""
        self._state, actions = lifecycle.step(self._state, event)
        for action in actions:
            self._perform(action)

    def report_again(self) -> None:
        """Send this attempt's state again: a new link, or a farm that repeats the job, may not know it."""
        if self._runner is not None:
            self.outbox.append(JobStarted(attempt_id=self.job.attempt_id, epoch=self.job.epoch))
        self._beat_due_s = 0.0

    def release(self) -> None:
        """Free the device and delete the work folder; call it once the result is journaled."""
        if self._lease is not None:
            self._lease.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _perform(self, action: lifecycle.Action) -> None:
        match action:
            case lifecycle.StartRunner() if self._lease is not None:
                self._start(self._lease)
            case lifecycle.Terminate() if self._runner is not None:
                self._runner.terminate()
            case lifecycle.Kill() if self._runner is not None:
                self._runner.kill()
            case lifecycle.ReportResultFile():
                self._reap()
                self._collect(self._outcome())
            case lifecycle.Report(status, reason):
                unkillable = self._reap()
                self.result = reported(self._outcome(), status, _with(reason, unkillable))

    def _start(self, lease: Lease) -> None:
        """Write the job file and start the runner; a failure to start it becomes the attempt's result."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        job_file = self.folder / JOB_FILE
        attempt = AttemptFile(
            job=self.job,
            device=self.device,
            model_path=str(self.model),
            data_path=None if self.data is None else str(self.data),
            references=str(self.config.references),
            runs_log=str(self.config.runs_log),
        )
        write_atomically(job_file, attempt.model_dump_json().encode())
        temporary = self.folder / TEMPORARY_FOLDER
        temporary.mkdir()
        leased = {LEASE_VARIABLE: ",".join(map(str, lease.descriptors))}
        launch = Launch(
            command=[*self.config.runner_command, str(job_file), str(self.folder)],
            environment={**for_runner(), **leased, "TMPDIR": str(temporary)},
            folder=self.folder,
            inherited=lease.descriptors,
            memory_limit_bytes=self.config.memory_limit_bytes,
        )
        if self.config.sandbox.on:
            launch = replace(launch, boundary=self._boundary(launch))
        self.outbox.append(JobStarted(attempt_id=self.job.attempt_id, epoch=self.job.epoch))
        self._oom_kills = oom.kills()
        try:
            self._runner = Runner.start(self.job.attempt_id, launch)
        except (OSError, SubprocessError) as error:
            why = last_line(log_tail(self.folder)) or str(error)
            reason = Reason(code=ReasonCode.RUNNER_ERROR, text=f"the runner cannot be started: {why}")
            self.result = reported(self._outcome(), Status.FAILED, reason)

    def _boundary(self, launch: Launch) -> Boundary:
        """Return what this attempt's processes may reach: their own files, and what every runner shares."""
        self.config.references.mkdir(parents=True, exist_ok=True)
        self.config.runs_log.touch()
        chosen = self.config.sandbox
        reach = Reach(
            command=launch.command,
            environment=launch.environment,
            read=[self.model, *([] if self.data is None else [self.data]), *chosen.read],
            write=[self.folder, self.config.references, *chosen.write],
            append=[self.config.runs_log],
        )
        return boundary_for(reach, self.folder)

    def _reap(self) -> set[int]:
        """End all processes of the attempt and log it. Returns the ids of those that could not be killed."""
        if self._runner is None:
            return set()
        left = self._runner.reap()
        log_gone(self.config, self.job.attempt_id, self.device, left)
        return left

    def _collect(self, outcome: Outcome) -> None:
        """Make the runner's files the result. On a full disk the files stay in their folder, and the device
        stays leased, so that no measurement is lost.
        """
        try:
            self.result = from_result_file(outcome, self.config.store)
        except NoRoomError as error:
            if self._uncollected is None:
                log.error("attempt %s waits: %s; free some", self.job.attempt_id, error.strerror)
            self._uncollected = outcome
            self._send_heartbeat()

    def _outcome(self) -> Outcome:
        started = self._state.started_s
        duration = int((time.monotonic() - started) * 1e9) if started else 0
        return Outcome(self.job, self.device, self.folder, duration)

    def _send_heartbeat(self) -> None:
        """Send a heartbeat when one is due, or when the phase has changed."""
        phase = self._phase_now()
        now_s = time.monotonic()
        if phase == self._phase and now_s < self._beat_due_s:
            return
        self._beats += 1
        self._phase, self._beat_due_s = phase, now_s + _HEARTBEAT_MARGIN * self.config.heartbeat_s
        self.outbox.append(
            Heartbeat(attempt_id=self.job.attempt_id, epoch=self.job.epoch, seq=self._beats, phase=phase)
        )

    def _send_output(self) -> None:
        """Send what the runner wrote since the last piece; the end of the log comes with the result."""
        piece = None if self._runner is None else self._output.piece(time.monotonic())
        if piece is not None:
            self.outbox.append(
                RunnerOutput(
                    attempt_id=self.job.attempt_id, epoch=self.job.epoch, start=piece.start, text=piece.text
                )
            )

    def _phase_now(self) -> str:
        if self._uncollected is not None:
            return NO_ROOM_TEXT
        return WAITING_TEXT if self.waits_for_device else read_progress(self.folder) or "starting"


def log_gone(config: AgentConfig, attempt_id: str, device: Device | None, left: set[int]) -> None:
    """Log that every process of an attempt is dead, unless some are `left`."""
    if not left:
        group = "" if device is None else device.exclusion_group
        runlog.append(config.runs_log, "gone", attempt_id, group, "attempt")


def _with(reason: Reason, unkillable: set[int]) -> Reason:
    if not unkillable:
        return reason
    text = f"{reason.text}; processes {sorted(unkillable)} could not be killed and still hold the device"
    return Reason(code=ReasonCode.DEVICE_LOST, text=text)
