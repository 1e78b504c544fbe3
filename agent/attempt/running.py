"""An attempt that this agent has accepted, with its arms: performs the actions that `lifecycle` returns.

Attempts that are the arms of one comparison share a lease and a runner, and so a life; each has a folder and
a result of its own.
"""

import contextlib
import errno
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import SubprocessError
from typing import Final

from agent.attempt import files, lifecycle, runlog
from agent.attempt.journal import Journal
from agent.attempt.lease import Lease, holders, try_lease
from agent.attempt.references import ReferenceFolder
from agent.attempt.result import Outcome, from_result_file, has_result, reported
from agent.attempt.room import NoRoomError, needing_room
from agent.config import AgentConfig
from agent.machine import workload
from agent.processes import cgroup
from agent.processes.environment import for_runner
from agent.processes.exit_reason import last_line
from agent.processes.left_files import LOG_FILE, remove_left
from agent.processes.log_tailer import OutputReader
from agent.processes.sandbox.boundary import TEMPORARY_FOLDER, Boundary, boundary_for
from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.sandbox.reach import Reach
from agent.processes.supervisor import Launch, Runner
from agent.wire import failpoint, messages
from agent.wire.bounded import Wire
from agent.wire.exclusion import joint_group
from agent.wire.reference import ReferenceRecord
from runtime.common.durable import write_atomically

NO_ROOM_TEXT = "ended; waiting: no space left on the agent's disk for its result"
WAITING_TEXT = "waiting for the device: in use"
_VANISHED: Final = messages.Reason(
    code=messages.ReasonCode.RUNNER_ERROR, text="the runner's result has vanished"
)

_HEARTBEAT_MARGIN: Final = 0.9
"""Part of the heartbeat time after which the next one is due. The loop wakes once per heartbeat time: with a
factor of 1 it could wake just before the due time, and send only every other heartbeat."""

_OF_THE_HOST: Final = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
"""Errors at the start of a runner that the next one would meet as well."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """A job and its device. `reported` False: a baseline that is measured for the ratios of the others."""

    job: messages.JobSpec
    device: messages.Device
    reported: bool = True


@dataclass(frozen=True, slots=True)
class _End:
    """Status and reason for attempts whose runner left no result."""

    status: messages.Status
    reason: messages.Reason


@dataclass(slots=True)
class RunningAttempt:
    """A running attempt and its `arms`. Call `advance` when time has passed or a child has ended.

    `outbox` collects messages for the link, `results` the results of those that have ended, which are in the
    journal then; `_asked` to end while others go on were these. Once it is `ended`, none of its processes
    lives; the devices are leased until `release`. A full disk ends it as failed, or lets its end wait.
    """

    config: AgentConfig
    journal: Journal
    job: messages.JobSpec
    device: messages.Device
    model: Path
    data: Path | None = None
    arms: tuple[Member, ...] = ()
    inputs: Mapping[str, Path] = field(default_factory=dict)
    outbox: list[Wire] = field(default_factory=list)
    results: list[messages.JobResult] = field(default_factory=list)
    _open: dict[str, Member] = field(init=False)
    _asked: set[str] = field(default_factory=set)
    _state: lifecycle.Attempt = field(init=False)
    _lease: Lease | None = None
    _runner: Runner | None = None
    _oom_kills: int = 0
    _beats: int = 0
    _beat_due_s: float = 0.0
    _phase: str = ""
    _outputs: dict[str, OutputReader] = field(init=False)
    _end: _End | None = None
    _references: Path = Path()
    _made: tuple[ReferenceRecord, ...] | None = None

    def __post_init__(self) -> None:
        # One runner carries all arms, and has the time of all of them.
        more_s = sum(arm.job.soft_limit_s for arm in self.arms)
        self._state = lifecycle.Attempt(
            self.job.soft_limit_s + more_s, self.job.hard_limit_s + more_s, accepted_s=time.monotonic()
        )
        self._open = {member.job.attempt_id: member for member in self._members if member.reported}
        self._outputs = {
            member.job.attempt_id: OutputReader(self._folder(member) / LOG_FILE) for member in self._members
        }

    @property
    def waits_for_device(self) -> bool:
        """True until the lease is granted."""
        return self._state.phase is lifecycle.Phase.WAITING

    @property
    def waits_for_disk(self) -> bool:
        """True where it has ended and the disk is full: the next agent can complete it."""
        return self._end is not None and not self.ended

    @property
    def ended(self) -> bool:
        """True once every attempt that it carries has its result."""
        return not self._open

    @property
    def live(self) -> tuple[str, ...]:
        """The ids of the attempts without a result."""
        return tuple(self._open)

    def job_of(self, attempt_id: str) -> messages.JobSpec:
        """Return the job of one of its attempts."""
        return next(m.job for m in self._members if m.job.attempt_id == attempt_id)

    @property
    def _members(self) -> tuple[Member, ...]:
        return (Member(self.job, self.device), *self.arms)

    @property
    def runner_pid(self) -> int | None:
        """Process id of the runner, None before its start."""
        return None if self._runner is None else self._runner.process.pid

    @property
    def mark(self) -> str:
        """The mark of its processes; empty before their start."""
        return "" if self._runner is None else self._runner.mark

    @property
    def folder(self) -> Path:
        """The attempt's work folder; each arm has one of its own."""
        return self.config.folder(self.job.attempt_id)

    def advance(self) -> None:
        """Try to lease the device, apply the runner's exit or the passing of time, report the phase."""
        if self._end is not None:
            self._collect(self._end)
            return
        if self.waits_for_device:
            try:
                self._begin()
            except NoRoomError as error:
                # The host's fault: the farm tries the cell again, elsewhere or later.
                reason = messages.Reason(code=messages.ReasonCode.DEVICE_LOST, text=str(error.strerror))
                self._collect(_End(messages.Status.FAILED, reason))
                return
        # Before the exit is looked for: that would give every open attempt the runner's own end.
        self._collect_cancelled()
        returncode = None if self._runner is None else self._runner.poll()
        if returncode is not None:
            oom_killed = cgroup.oom_kills() > self._oom_kills
            log_end = files.log_tail(self.folder)
            complete = all(has_result(self._folder(member)) for member in self._open.values())
            self.apply(lifecycle.RunnerExited(returncode, complete, log_end, oom_killed))
        else:
            self.apply(lifecycle.Tick(time.monotonic(), files.is_ending(self.folder)))
        if not self.ended:
            self._send_heartbeat()
            self._send_output()

    def apply(self, event: lifecycle.Event) -> None:
        """Apply an event to the state machine and perform the actions that it returns."""
        self._state, actions = lifecycle.step(self._state, event)
        for action in actions:
            self._perform(action)

    def cancel(self, attempt_id: str) -> None:
        """Have one attempt end with what it has finished. With the last one everything ends."""
        if attempt_id not in self._open or self._end is not None:
            return
        if self._open.keys() <= self._asked | {attempt_id}:
            self.apply(lifecycle.CancelAsked(time.monotonic()))
        elif attempt_id not in self._asked:
            self._asked.add(attempt_id)
            folder = self._folder(self._open[attempt_id])
            # On a full disk it goes on with the others.
            with contextlib.suppress(NoRoomError), needing_room("its marks"):
                # Before the start there is no folder yet; `_write_job` keeps the mark that is set in it.
                folder.mkdir(parents=True, exist_ok=True)
                files.mark_cancelled(folder)
                if self._runner is None:
                    files.mark_left(folder)
            if self._runner is None:
                self._collect_cancelled()
            else:
                self._runner.signal(files.CANCEL_SIGNAL)

    def report_again(self) -> None:
        """Send this attempt's state again: a new link, or a farm that repeats the job, may not know it."""
        if self._runner is not None:
            self._send_started()
        self._beat_due_s = 0.0

    def release(self) -> None:
        """Free the devices and delete the work folders; call it once the results are journaled."""
        if self._lease is not None:
            self._lease.release()
        for member in self._members:
            remove_left(self._folder(member))

    def _perform(self, action: lifecycle.Action) -> None:
        match action:
            case lifecycle.StartRunner() if self._lease is not None:
                self._start(self._lease)
            case lifecycle.Conclude() if self._runner is not None:
                # On a full disk it ends without judging what it has finished.
                with contextlib.suppress(NoRoomError), needing_room("its marks"):
                    for member in self._members:
                        files.mark_cancelled(self._folder(member))
                self._runner.terminate()
            case lifecycle.Terminate() if self._runner is not None:
                self._runner.terminate()
            case lifecycle.Kill() if self._runner is not None:
                self._runner.kill()
            case lifecycle.ReportResultFile():
                self._reap()
                self._collect(_End(messages.Status.FAILED, _VANISHED))
            case lifecycle.Report(status, reason):
                unkillable = self._reap()
                self._collect(_End(status, _with(reason, unkillable)))

    def _begin(self) -> None:
        """Start the runner as soon as the device is free. Raises `NoRoomError`."""
        with needing_room(f"the lock of the device in {self.config.leases}"):
            self._lease = try_lease(self.config.leases, self._group)
        if self._lease is not None:
            with needing_room(f"an attempt in {self.config.work}"):
                self.apply(lifecycle.LeaseGranted(time.monotonic()))

    def _start(self, lease: Lease) -> None:
        """Write the job files and start the runner; a failure to start it becomes the attempts' result."""
        self._references = self._reference_folder.prepare(self.job)
        arms = tuple(
            str(self._write_job(arm)) for arm in self.arms if not files.is_cancelled(self._folder(arm))
        )
        job_file = self._write_job(Member(self.job, self.device), arms)
        temporary = self.folder / TEMPORARY_FOLDER
        temporary.mkdir()
        leased = {files.LEASE_VARIABLE: ",".join(map(str, lease.held))}
        attached = self.config.attached_as(self.device) is not None
        command = [*self.config.runner_command, *(["--attached"] if attached else [])]
        launch = Launch(
            command=[*command, str(job_file), str(self.folder)],
            environment={**for_runner(), **leased, "TMPDIR": str(temporary)},
            folder=self.folder,
            inherited=lease.held,
            memory_limit_bytes=self.config.memory_limit_bytes,
        )
        self._send_started()
        # The kernel does not name the attempt: a rise until the runner's exit is attributed to it.
        self._oom_kills = cgroup.oom_kills()
        try:
            if attached:
                # It needs the network and the user's keys, and executes nothing of the model.
                if sys.platform == "linux":
                    launch = replace(launch, inner=InnerBoundary(tuple(map(self._folder, self._members))))
            elif self.config.sandbox.on:
                launch = replace(launch, boundary=self._boundary(launch))
            self._runner = Runner.start(self.job.attempt_id, launch)
        except (OSError, SubprocessError) as error:
            if isinstance(error, OSError) and error.errno in _OF_THE_HOST:
                raise  # no fault of this runner's: without files to open the agent ends, and says so
            # Of a failure before exec, `subprocess` tells no reason;
            # `failure_in_log` has written it to the log.
            why = last_line(files.log_tail(self.folder)) or str(error)
            reason = messages.Reason(
                code=messages.ReasonCode.RUNNER_ERROR, text=f"the runner cannot be started: {why}"
            )
            self._collect(_End(messages.Status.FAILED, reason))

    def _write_job(self, member: Member, arms: tuple[str, ...] = ()) -> Path:
        """Make a member's folder and write its job file. One that was cancelled before stays cancelled."""
        folder = self._folder(member)
        cancelled = files.is_cancelled(folder)
        remove_left(folder)
        folder.mkdir(parents=True)
        if cancelled:
            files.mark_cancelled(folder)
        attempt = files.AttemptFile(
            job=member.job,
            arms=arms,
            reported=member.reported,
            device=member.device,
            model_path=str(self.model),
            data_path=None if self.data is None else str(self.data),
            input_paths={name: str(path) for name, path in self.inputs.items()},
            references=str(self._references),
            wheels={name: str(path) for name, path in self.config.wheels.folders.items()},
            writable=tuple(map(str, self.config.sandbox.write)) if self.config.sandbox.on else None,
            attached=self.config.attached_as(member.device),
            usual=tuple(
                (past.compute_ns, past.copy_ns)
                for past in workload.load(self.config.workloads, member.device.device_id)
            ),
        )
        write_atomically(folder / files.JOB_FILE, attempt.model_dump_json().encode())
        return folder / files.JOB_FILE

    def _folder(self, member: Member) -> Path:
        return self.config.folder(member.job.attempt_id)

    def _boundary(self, launch: Launch) -> Boundary:
        """Return what this attempt's processes may reach: their own files, and what every runner shares."""
        chosen = self.config.sandbox
        reach = Reach(
            command=launch.command,
            environment=launch.environment,
            read=[
                *(path for path in (self.model, self.data, self._references) if path is not None),
                *self.inputs.values(),
                *chosen.read,
                *self.config.wheels.folders.values(),
            ],
            write=[*map(self._folder, self._members), *chosen.write],
        )
        return boundary_for(reach, self.folder, chosen.users)

    def _reap(self) -> set[int]:
        """End all processes of the attempt and log it. Returns the ids of those that could not be killed."""
        if self._runner is None:
            return set()
        left = self._runner.reap()
        for member in self._members:
            log_gone(self.config, member.job, member.device, left)
        return left

    def _collect(self, end: _End) -> None:
        """Make the runner's files the results. On a full disk the files stay in their folders, and the
        devices stay leased, so that no measurement is lost. The first result carries the references.
        """
        # Once, although each wake-up comes here again while the disk is full.
        if self._made is None:
            self._made = self._reference_folder.keep(self.job, self.folder)
        for attempt_id, member in list(self._open.items()):
            try:
                self._take_result(member, end, self._made)
            except NoRoomError as error:
                # Logged at the first try only.
                if self._end is None:
                    log.error("attempt %s waits: %s", attempt_id, error.strerror)
                self._end = end
                self._send_heartbeat()
                return
            self._made = ()

    def _collect_cancelled(self) -> None:
        """Take the results of attempts that were cancelled while others go on, as soon as they have ended."""
        if self._state.phase not in (lifecycle.Phase.WAITING, lifecycle.Phase.RUNNING):
            return
        end = _End(
            messages.Status.CANCELLED, messages.Reason(code=messages.ReasonCode.CANCELLED, text="by the user")
        )
        for member in [self._open[name] for name in self._asked & self._open.keys()]:
            folder = self._folder(member)
            if has_result(folder) or files.has_left(folder):
                # Without room for its samples, it is taken together with the others.
                with contextlib.suppress(NoRoomError):
                    self._take_result(member, end)

    def _take_result(self, member: Member, end: _End, made: tuple[ReferenceRecord, ...] = ()) -> None:
        """Journal a member's result, of its file or of `end`; it is no longer open. Raises `NoRoomError`."""
        outcome = self._outcome(member)
        if has_result(outcome.folder):
            result = from_result_file(outcome, self.config.store)
        else:
            result = reported(outcome, end.status, end.reason)
        result = result.model_copy(update={"references": made})
        failpoint.reached("agent.after_result_file")
        self.journal.spool(result)
        failpoint.reached("agent.after_spool")
        self.results.append(result)
        del self._open[member.job.attempt_id]
        if readings := workload.Reading.listed(result.facts):
            try:
                workload.keep(self.config.workloads, member.device.device_id, readings)
            except OSError as error:
                log.warning(
                    "attempt %s: the times of its workload are not kept: %s", result.attempt_id, error
                )

    @property
    def _reference_folder(self) -> ReferenceFolder:
        return ReferenceFolder(self.config.references, self.config.store)

    def _outcome(self, member: Member) -> Outcome:
        started = self._state.started_s
        duration = int((time.monotonic() - started) * 1e9) if started else 0
        return Outcome(member.job, member.device, self._folder(member), duration)

    def _send_heartbeat(self) -> None:
        """Send the heartbeats when they are due, or when the phase has changed."""
        phase = self._phase_now()
        now_s = time.monotonic()
        if phase == self._phase and now_s < self._beat_due_s:
            return
        self._beats += 1
        self._phase, self._beat_due_s = phase, now_s + _HEARTBEAT_MARGIN * self.config.heartbeat_s
        self.outbox += [
            messages.Heartbeat(attempt_id=job.attempt_id, epoch=job.epoch, seq=self._beats, phase=phase)
            for job in (member.job for member in self._open.values())
        ]

    def _send_output(self) -> None:
        """Send what the runner wrote since the last piece; the end of the log comes with the result."""
        if self._runner is None:
            return
        for attempt_id, output in self._outputs.items():
            piece = output.piece(time.monotonic()) if attempt_id in self._open else None
            if piece is not None:
                epoch = self._open[attempt_id].job.epoch
                self.outbox.append(
                    messages.RunnerOutput(
                        attempt_id=attempt_id, epoch=epoch, start=piece.start, text=piece.text
                    )
                )

    def _send_started(self) -> None:
        self.outbox += [
            messages.JobStarted(attempt_id=member.job.attempt_id, epoch=member.job.epoch)
            for member in self._open.values()
        ]

    @property
    def _group(self) -> str:
        """The exclusion group that all members need."""
        groups = (member.device.exclusion_group for member in self._members)
        return joint_group(groups) or self.device.exclusion_group

    def _phase_now(self) -> str:
        if self._end is not None:
            return NO_ROOM_TEXT
        if self.waits_for_device:
            return WAITING_TEXT + holders(self.config.leases, self._group)
        if not self.arms:
            return files.read_progress(self.folder) or "starting"
        phases = (
            (member.job.delegate, files.read_progress(self._folder(member))) for member in self._members
        )
        # One arm runs at a time; the others say that they wait, or nothing yet.
        return next(
            (f"{who}: {phase}" for who, phase in phases if phase not in ("", files.TURN_TEXT)), "starting"
        )


def log_gone(
    config: AgentConfig, job: messages.JobSpec, device: messages.Device | None, left: set[int]
) -> None:
    """Log which processes of an attempt ran, and that every one is dead, unless some are `left`."""
    group = "" if device is None else device.exclusion_group
    own = config.folder(job.attempt_id) / runlog.FILE
    try:
        runlog.take(config.runs_log, own, job.attempt_id, group, job.carrier)
        if not left:
            runlog.append(config.runs_log, "gone", job.attempt_id, group, "attempt")
    except OSError as error:
        log.warning("attempt %s: its processes are not logged: %s", job.attempt_id, error)


def _with(reason: messages.Reason, unkillable: set[int]) -> messages.Reason:
    if not unkillable:
        return reason
    text = f"{reason.text}; processes {sorted(unkillable)} could not be killed and still hold the device"
    return messages.Reason(code=messages.ReasonCode.DEVICE_LOST, text=text)
