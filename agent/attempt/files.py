"""The files by which an agent and the runner of one attempt exchange data, in the attempt's work folder.

job.json          AttemptFile       agent -> runner
progress          one line of text  runner -> agent: its present phase
process-<i>.json  ProcessReport     of the cold processes, for those that follow
process-<i>/      its outputs       measuring process -> runner, which has its samples over a pair of sockets
result.json       RunnerResult      runner -> agent; appears complete (atomic rename)
samples.json      the raw samples   runner -> agent, which copies them into the store
<pass>/, reference/                 what a process beside the timed ones writes; a pass sends its report
sensors           readings          process that reads the sensors -> runner
cancelled         empty             agent -> runner: this arm is to end with the blocks that it has finished
ending            empty             runner -> agent: it judges what is finished, and then ends
left              empty             runner -> agent: a cancelled arm has ended without a result
reference-<kind>.npz, references.json   references that the runner made (`agent.attempt.references`)
log               stdout and stderr of all of them
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from pydantic import Field

from agent.attached.hosts import Attached
from agent.devices import COMMIT_RUNNER_COMMAND
from agent.processes.left_files import LOG_FILE, is_left, mark, open_left
from agent.wire import messages
from agent.wire.bounded import MAX_INPUTS, MAX_KINDS, Count, Facts, Id, Integer, Key, Sha256, Text, Wire
from agent.wire.labelled import LabelledScore
from agent.wire.measurement import Delegation, Measurement, ProcessSamples
from agent.wire.profile import Advice
from runtime.common.durable import write_atomically
from runtime.common.installation import DISTRIBUTION

JOB_FILE: Final = "job.json"
RESULT_FILE: Final = "result.json"
SAMPLES_FILE: Final = "samples.json"
SENSORS_FILE: Final = "sensors"
PROGRESS_FILE: Final = "progress"
_CANCELLED_FILE: Final = "cancelled"
_ENDING_FILE: Final = "ending"
_LEFT_FILE: Final = "left"

TURN_TEXT: Final = "waits for its turn"
"""The progress of an arm while a process of another arm runs."""

CANCEL_SIGNAL: Final = signal.SIGUSR1
"""Tells a runner of several arms to look which of them are cancelled. It is ignored where nobody asks for it
(`agent.processes.supervisor.start`)."""

_LOG_TAIL_BYTES: Final = 4000
"""Bytes of a log that go into a result: about the last 50 lines, which hold a traceback."""

MAX_JOB_BYTES: Final = 2 * messages.MAX_MESSAGE_BYTES
"""Bytes of a job file that are read: it holds a message, and what the agent adds."""

_PROGRESS_BYTES: Final = 1000
"""Bytes of the progress file that are read: a phase has at most 100. The runner writes it, so it may hold
anything."""

MAX_CHOICES: Final = 1 << 20
"""Most characters of what a delegate chose by timing, some twenty for each operator that it compared: a model
of many thousands. A longer text ends the process."""

LEASE_VARIABLE: Final = "FARM_LEASE_DESCRIPTOR"
"""In the runner's environment: comma-separated numbers of the inherited descriptors that lock the device."""


ANSWERS_FILE: Final = "answers.jsonl"
"""An arm's answers to labelled data: a head, then a line of JSON for each sample."""

KEPT_ANSWERS_FILE: Final = "answers.jsonl.gz"
"""The same for the store, then a line for each answer that differs from the baseline's."""


class AttemptFile(Wire):
    """Everything that a runner needs: it has no network and no database.

    `usual`: what the device's workload took before earlier attempts, computing and copying, in ns.
    `references`: the folder of those that the agent keeps for the job's model and inputs.
    `arms`: the job files of what is measured in blocks together with this job, each in a folder of its own;
    `reported`: whether it is an attempt, and not a baseline that is measured for the ratio alone.
    `input_paths`: files with the data of inputs, by the inputs' names.
    `wheels`: folders of releases of packages, by `DISTRIBUTION@VERSION`.
    `writable`: what a measuring process may write beside its own folder; None where the sandbox is off.
    `attached`: where the device is, if it is attached to this host.
    """

    job: messages.JobSpec
    arms: tuple[str, ...] = ()
    reported: bool = True
    device: messages.Device
    model_path: str
    data_path: str | None = None
    input_paths: dict[Key, str] = Field(default_factory=dict, max_length=MAX_INPUTS)
    references: str
    wheels: dict[Id, str] = Field(default_factory=dict, max_length=MAX_KINDS)
    usual: tuple[tuple[Count, Count], ...] = ()
    writable: tuple[str, ...] | None = None
    attached: Attached | None = None

    def release_of(self, distribution: str) -> Path | None:
        """Return the folder of the release that the job asks for; None for what is installed."""
        name = messages.release_name(
            distribution, str(self.job.delegate_options.get(messages.RELEASE_OPTION))
        )
        # Without the option it is a name that no wheel has.
        return Path(self.wheels[name]) if name in self.wheels else None

    def runner_command(self, installed: Sequence[str]) -> Sequence[str]:
        """Return the command of a measuring process: `installed`, or that of the commit that the job has."""
        return installed if self.release_of(DISTRIBUTION) is None else COMMIT_RUNNER_COMMAND


class OutputFact(Wire):
    """Name and affine quantisation of an output; scale 0: not quantised."""

    name: Text
    scale: float
    zero_point: Integer


class Failure(Wire):
    """Why a process measured nothing. `delegation` and, of a delegate that plans, `advice` are set where
    operators would stay on the CPU.
    """

    status: messages.Status
    reason: messages.Reason
    delegation: Delegation | None = None
    advice: Advice | None = None

    @classmethod
    def of(
        cls, code: messages.ReasonCode, text: str, status: messages.Status = messages.Status.FAILED
    ) -> "Failure":
        """Return a failure for a reason, without a report of the delegation."""
        return cls(status=status, reason=messages.Reason(code=code, text=text))


class Seen(Wire):
    """A process's view of its machine while it timed: as `agent.machine.disturbance.Evidence`."""

    suspect: tuple[Text, ...] = ()
    invalid: tuple[Text, ...] = ()
    seen: tuple[Text, ...] = ()
    unseen: tuple[Text, ...] = ()


class Report(Wire):
    """The report of a process of an attempt: what it found, or the failure."""

    failure: Failure | None = None


class ProcessReport(Report):
    """The report of one measuring process: samples or a failure.

    Its first and its last outputs are in `outputs_path`, of the cold process those of every input set. It
    says nothing of the timed invokes, which the runner has already.
    `choices`: what the delegate chose by timing, as its option of that name takes it. `advice`: of the first
    cold one, where its delegate plans.
    `environment`: the machine and the software as the process itself found them; empty where it could not.
    `unseen`: why a stage of the start, or its memory, is not in the samples. The runner adds, of a timed one,
    `saw`, `turns`: when the slices that count began and ended, in ns on CLOCK_MONOTONIC, and `arms`: how
    many processes of its block had the part of the machine that computes for it.
    """

    samples: ProcessSamples | None = None
    delegation: Delegation | None = None
    settings: Facts = Field(default_factory=dict)
    output_facts: tuple[OutputFact, ...] = ()
    last_set: int = 0
    choices: str | None = Field(default=None, max_length=MAX_CHOICES)
    advice: Advice | None = None
    environment: Facts = Field(default_factory=dict)
    saw: Seen = Field(default_factory=Seen)
    turns: tuple[tuple[Integer, Integer], ...] = ()
    arms: Count = 1
    unseen: Facts = Field(default_factory=dict)


class PassReport(Report):
    """The report of a process that follows the timed ones.

    `name`: the pass's mode of the runner, its word in the log of runs, and its folder. `who`: what messages
    call the process.
    """

    name: ClassVar[str]
    who: ClassVar[str]

    @property
    def why(self) -> str:
        """Why there is nothing in it."""
        return "it reported nothing" if self.failure is None else self.failure.reason.text


class PossiblePassReport(PassReport):
    """The report of a pass that not every delegate and model can make; `why_not`: why these cannot."""

    why_not: Text = ""

    @property
    def why(self) -> str:
        """Why there is nothing in it."""
        return self.why_not or super().why


class LabelledReport(PassReport):
    """The report of the process that ran on labelled data."""

    name = "labelled"
    who = "the process on labelled data"
    score: LabelledScore | None = None


class RunnerResult(Wire):
    """The result of a runner. `samples_sha256` is the hash of `samples.json`.

    `environment`: that of its measuring processes; empty where none reported one. `busy_ns`: how long the
    processes of an arm ran that took turns with others.
    """

    status: messages.Status
    reason: messages.Reason | None
    measurement: Measurement | None = None
    samples_sha256: Sha256 | None = None
    facts: Facts = Field(default_factory=dict)
    environment: Facts = Field(default_factory=dict)
    busy_ns: Integer | None = None


def report_path(folder: Path, index: int) -> Path:
    """Return where the runner keeps the `ProcessReport` of measuring process `index` for later ones."""
    return folder / f"process-{index}.json"


def own_folder(folder: Path, index: int) -> Path:
    """Return the folder in which measuring process `index` of an arm may write, and no other process."""
    return folder / f"process-{index}"


def caches_folder(folder: Path, tuning: int = 0) -> Path:
    """Return the folder of the program caches of an arm's tuning."""
    return folder / ("caches" if tuning == 0 else f"caches-{tuning}")


def outputs_path(folder: Path, index: int) -> Path:
    """Return where measuring process `index` writes its outputs."""
    return own_folder(folder, index) / "outputs.npz"


def mark_cancelled(folder: Path) -> None:
    """Tell the runner that the arm of this folder is to end with what it has finished."""
    mark(folder / _CANCELLED_FILE)


def is_cancelled(folder: Path) -> bool:
    """Whether the arm of this folder is to end."""
    return is_left(folder / _CANCELLED_FILE)


def mark_ending(folder: Path) -> None:
    """Tell the agent that the runner of this folder judges what it has finished."""
    mark(folder / _ENDING_FILE)


def is_ending(folder: Path) -> bool:
    """Whether the runner of this folder judges what it has finished."""
    return is_left(folder / _ENDING_FILE)


def mark_left(folder: Path) -> None:
    """Tell the agent that the arm of this folder has ended without a result."""
    mark(folder / _LEFT_FILE)


def has_left(folder: Path) -> bool:
    """Whether the arm of this folder has ended without a result."""
    return is_left(folder / _LEFT_FILE)


def write_progress(folder: Path, phase: str) -> None:
    """Write the present phase; a reader sees the old line or the new one, and no part of one."""
    # Not synchronised: after a power cut nobody waits for this runner.
    write_atomically(folder / PROGRESS_FILE, phase.encode(), sync=False)


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
