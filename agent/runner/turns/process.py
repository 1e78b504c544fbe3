"""One measuring process as the deciding process sees it: started, given turns, stopped between them, ended.

A turn has a deadline. A process that dies, hangs or is stopped for ever fails by itself: the others go on.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.attempt import runlog
from agent.attempt.files import AttemptFile, Failure, ProcessReport, is_cancelled, log_tail, write_progress
from agent.devices import RUNNER_COMMAND
from agent.machine.counters import Window
from agent.machine.rounds import Round
from agent.processes import cgroup
from agent.processes.exit_reason import exit_reason
from agent.processes.supervisor import Launch, start
from agent.runner.channel import Answer, Channel, ClosedError, Order, SliceTimes
from agent.runner.turns.comparison import CancelledError, Clock, FailedError, lease_descriptors
from agent.wire.measurement import ProcessSamples, TimedSlice
from agent.wire.messages import ReasonCode, Status

SLOWEST_TURN: Final = 20.0
"""How many times as long as expected a slice may take. Chosen: a neighbour on every CPU makes it a few times
as long; what takes longer hangs, and would keep the others waiting."""

SHORTEST_DEADLINE_S: Final = 60.0
"""Seconds that a slice may take at least, however fast the model is: a machine that swaps, or sleeps."""

_LOAD_S: Final = 120.0
"""Seconds in which a process must have imported its modules."""

_END_S: Final = 10.0
"""Seconds in which a cold process must end by itself once its report is sent, and one that has failed."""


@dataclass(slots=True)
class MeasuringProcess:
    """A process that measures for one arm. `index`: its number among the arm's; `who`: what messages call it;
    `folder`: the arm's, in which it writes to a folder of its own and to the log.

    Each method raises `FailedError` where the process has failed, `CancelledError` where its arm was
    cancelled.
    """

    attempt: AttemptFile
    folder: Path
    index: int
    who: str
    clock: Clock
    process: subprocess.Popen[bytes]
    channel: Channel
    environment: Mapping[str, str]
    run_ns: int = 0
    _oom_kills: int = field(default=0)
    _logged: bool = False

    @classmethod
    def start(
        cls,
        attempt: AttemptFile,
        job_file: Path,
        folder: Path,
        index: int,
        tuning: int,
        who: str,
        clock: Clock,
        environment: Mapping[str, str],
        limited: Callable[[Launch], Launch] = lambda launch: launch,
    ) -> "MeasuringProcess":
        """Start the process, which imports its modules and then waits for its first turn."""
        ours, theirs = socket.socketpair()
        numbers = [str(index), str(tuning), str(theirs.fileno())]
        command = [*attempt.runner_command(RUNNER_COMMAND), "--measure", str(job_file), str(folder), *numbers]
        inherited = (theirs.fileno(), *lease_descriptors())
        killed_before = cgroup.oom_kills()
        # A copy that stayed open here would hide the end of the process from `receive`.
        with theirs:
            process = start(limited(Launch(command, environment, folder, inherited, own_group=True)))
        return cls(
            attempt, folder, index, who, clock, process, Channel(ours), environment, _oom_kills=killed_before
        )

    @property
    def pid(self) -> int:
        """The id of the process, which is also that of its group."""
        return self.process.pid

    def wait_loaded(self) -> None:
        """Wait until its modules are imported."""
        write_progress(self.folder, f"{self.who}: start")
        self._answer(_LOAD_S, lambda answer: answer.loaded)

    def open(self) -> None:
        """Let it open the model, invoke it once and warm up; `run_ns` then says how long an invoke takes."""
        self._log("start")
        self._order(Order(do="start"))
        answer = self._answer(None, lambda answer: answer.run_ns is not None)
        self.run_ns = max(1, answer.run_ns or 0)

    def run_cold(self) -> ProcessReport:
        """Let a process that starts a tuning do all its work; return its report."""
        self._log("start")
        self._order(Order(do="start"))
        answer = self._answer(None, lambda answer: answer.report is not None)
        # A driver may write what it has compiled when its process exits, for those that follow.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        return self._ended(answer)

    def slice(self, runs: int) -> SliceTimes:
        """Let it time so many invokes; return their times."""
        expected_s = runs * self.run_ns / 1e9
        self._order(Order(do="slice", runs=runs))
        deadline_s = max(SHORTEST_DEADLINE_S, SLOWEST_TURN * expected_s)
        times = self._answer(deadline_s, lambda answer: answer.times is not None).times
        assert times is not None
        if not len(times.invoke_ns) == len(times.start_ns) == runs:
            text = f"{self.who} was asked for {runs} invokes and reported other counts"
            raise FailedError(Failure.of(ReasonCode.RUNNER_ERROR, text))
        return times

    def finish(self) -> ProcessReport:
        """Let it run what follows the last slice and end; return its report, without the timed invokes."""
        self._order(Order(do="end"))
        return self._ended(self._answer(None, lambda answer: answer.report is not None))

    def stop(self) -> None:
        """Stop all its threads until `go`: what spins or computes in the background disturbs nobody."""
        self._signal(signal.SIGSTOP)

    def go(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it and what it started, as far as that is still in its group."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """End it, whatever it is doing; it can be called again."""
        self.channel.close()
        if self.process.returncode is None:
            self.kill()
            self.process.wait()
        # A group outlives its leader: a left-over process of this arm must not run in the next one's turn.
        self.kill()
        self._log("end")

    def _ended(self, answer: Answer) -> ProcessReport:
        """Return the report, behind which nothing is left to do: the process is killed."""
        report = answer.report
        assert report is not None
        self.close()
        if report.failure is not None:
            raise FailedError(report.failure, report.environment)
        return report

    def _order(self, order: Order) -> None:
        try:
            self.channel.send(order)
        except ClosedError:
            raise self._failure() from None

    def _answer(self, deadline_s: float | None, is_wanted: Callable[[Answer], bool]) -> Answer:
        """Return the answer that ends a turn; tell each phase. `deadline_s`: None for the arm's own."""
        began_s = time.monotonic()
        left_s = self.clock.left_s
        limit_s = min((limit for limit in (deadline_s, left_s) if limit is not None), default=None)
        try:
            while True:
                rest_s = None if limit_s is None else limit_s - (time.monotonic() - began_s)
                answer = self.channel.receive(Answer, rest_s)
                if answer.phase is not None:
                    write_progress(self.folder, f"{self.who}: {answer.phase}")
                elif is_wanted(answer):
                    return answer
                elif answer.report is not None:
                    # It failed in the middle of its turn.
                    self._ended(answer)
                    raise ValueError("a report in the middle of a turn, without a failure")
        except ClosedError:
            raise self._failure() from None
        except TimeoutError:
            self.close()
            # The arm's own time was over first.
            if left_s is not None and limit_s == left_s:
                raise FailedError(self.clock.timeout()) from None
            text = f"{self.who} did not answer within {limit_s:.0f} s in its turn: it hangs, or was stopped"
            raise FailedError(Failure.of(ReasonCode.TIMEOUT, text)) from None
        except ValueError as error:
            self.close()
            text = f"{self.who} wrote what is no answer: {error}"
            raise FailedError(Failure.of(ReasonCode.RUNNER_ERROR, text)) from error
        finally:
            self.clock.used_s += time.monotonic() - began_s

    def _failure(self) -> FailedError | CancelledError:
        """Return why the process has ended although nobody asked it to."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Its end of the pair is closed a moment before its exit status is there.
            self.process.wait(_END_S)
        self.close()
        if is_cancelled(self.folder):
            return CancelledError()
        oom_killed = cgroup.oom_kills() > self._oom_kills
        tail = log_tail(self.folder)
        reason = exit_reason(self.process.returncode, self.who, tail, oom_killed=oom_killed)
        return FailedError(Failure(status=Status.FAILED, reason=reason))

    def _log(self, event: runlog.Event) -> None:
        """Log the begin or the end of the process, once each."""
        if (event == "start") == self._logged:
            return
        self._logged = event == "start"
        log, group, job = self.folder / runlog.FILE, self.attempt.device.exclusion_group, self.attempt.job
        runlog.append(log, event, job.attempt_id, group, "measure", self.pid, carrier=job.carrier)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def with_slices(
    samples: ProcessSamples,
    invoke_ns: Sequence[int],
    start_ns: Sequence[int],
    slices: Sequence[TimedSlice],
    facts: Mapping[str, str],
) -> ProcessSamples:
    """Return the samples of a process with what its slices gave and what was seen around them."""
    first_ns = start_ns[0] if start_ns else 0
    return samples.model_copy(
        update={
            "invoke_ns": tuple(invoke_ns),
            "start_ns": tuple(ns - first_ns for ns in start_ns),
            "slices": tuple(slices),
            "facts": {**samples.facts, **facts},
        }
    )


def facts_of(window: Window, rounds: Sequence[Round]) -> dict[str, str]:
    """Return the counters around the rounds of a block, as a result records them."""
    last = rounds[-1].window
    counted = {
        "watched_s": last.from_s + last.wall_s - rounds[0].window.from_s,
        "foreign_cpu_s": window.foreign_s,
        "steal_s": window.steal_s,
        "throttled_s": window.throttled_s,
        "cpu_waiting_s": window.waiting_s,
    }
    facts = {name: f"{value:.3f}" for name, value in counted.items() if value is not None}
    # On the clock of the samples, for whoever looks for what happened meanwhile.
    return {"timed_from_s": f"{rounds[0].window.from_s:.6f}", **facts}
