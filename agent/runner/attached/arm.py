"""One arm of an attempt at an attached device: its runs of the tool, and how it ends."""

import math
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from agent.attached.hosts import Attached
from agent.attached.listing import described
from agent.attached.remote import LateError, LostError, RefusedError, Remote
from agent.attempt.files import (
    RESULT_FILE,
    TURN_TEXT,
    AttemptFile,
    Failure,
    RunnerResult,
    is_cancelled,
    mark_left,
    write_progress,
)
from agent.processes.exit_reason import last_line
from agent.runner.attached import evaluation
from agent.runner.attached.figures import measurement_of, quality_of, why_not_counted
from agent.runner.attached.flags import ToolCall, tool_call
from agent.runner.failures import failure_of
from agent.runner.judge.accuracy import unjudged
from agent.runner.judge.blocks import added, paired_ratio, ratio_units, time_units
from agent.runner.judge.verdict import not_measured, scored
from agent.runner.turns.arm import check_conditions
from agent.runner.turns.comparison import AnyArm, CancelledError, FailedError
from agent.wire.labelled import LabelledScore
from agent.wire.measurement import Accuracy, BlockFigure, Energy
from agent.wire.messages import Device, ReasonCode, Status
from runtime.common.benchmark_log import TOOL, LogError, LoggedRun, read_log
from runtime.common.durable import write_atomically
from runtime.common.evaluation_log import INFERENCE_DIFF
from runtime.errors import FarmRuntimeError

Told = TypeVar("Told", Accuracy, LabelledScore)


@dataclass(slots=True, eq=False)
class ToolArm(AnyArm):
    """One arm. `runs`: what the tool printed, by block. `place`: the attempt's folder on the device.
    `running`: its own run of a tool goes on. `accuracy`, `labelled`: what the evaluation tools told.
    """

    remote: Remote
    call: ToolCall = field(default_factory=lambda: ToolCall({}))
    environment: dict[str, str] = field(default_factory=dict)
    place: str = ""
    runs: dict[int, LoggedRun] = field(default_factory=dict)
    took_s: float = 0.0
    running: bool = False
    accuracy: Accuracy | None = None
    labelled: LabelledScore | None = None

    @classmethod
    def read(cls, job_file: Path, *, alone: bool) -> "ToolArm":
        """Read the arm's job."""
        attempt = AttemptFile.model_validate_json(job_file.read_bytes())
        assert attempt.attached is not None
        return cls(attempt, job_file.parent, Remote(attempt.attached), alone=alone)

    @property
    def has_blocks(self) -> bool:
        """Whether it has finished a block of its own."""
        return bool(self.runs)

    def do(self, step: Callable[[], None]) -> None:
        """Take a step; a failure in it ends this arm alone, and so does a cancel."""
        if self.over or self.cancelled:
            return
        began_s = time.monotonic()
        try:
            if is_cancelled(self.folder):
                raise CancelledError
            step()
        except (CancelledError, LostError) as error:
            # The signal that ends an attempt ends the connection, too.
            if isinstance(error, LostError) and not is_cancelled(self.folder):
                raise
            self.cancelled, self.stopped = True, self.stopped or "cancelled"
        except FailedError as error:
            self.fail(error.failure)
        except RefusedError as error:
            self.fail(Failure.of(ReasonCode.RUNNER_ERROR, str(error)))
        except FarmRuntimeError as error:
            self.fail(failure_of(error, self.attempt))
        self.took_s += time.monotonic() - began_s
        if not self.alone and not self.over:
            write_progress(self.folder, TURN_TEXT)

    def prepare(self, known: dict[Attached, Device], folder: str) -> None:
        """Ask the device what it is, unless that is known of its entry, and decide how the tool is called.

        Raises `LostError`, `FailedError` and the runtime's errors.
        """
        try:
            device = known.get(self.remote.attached) or described(self.remote)
        except RefusedError as error:
            missing = Failure.of(ReasonCode.DELEGATE_MISSING, str(error), Status.UNSUPPORTED)
            raise FailedError(missing) from error
        known[self.remote.attached] = device
        self.environment, self.place = dict(device.environment), folder
        check_conditions(self.job, self.environment)
        if self.job.plan.level == "publish":
            # Not a failure of the model: `no_device` is not reused, as where a machine may not publish.
            text = "publish: nobody watches the state of an attached device"
            raise FailedError(Failure.of(ReasonCode.NO_DEVICE, text, Status.UNSUPPORTED))
        self.call = tool_call(self.attempt, int(device.environment["cpus"]))
        if self.job.plan.labelled is not None:
            evaluation.tool_of(self.job.plan.labelled, self.environment)

    def put_inputs(self) -> None:
        """Copy the inputs that are given. Raises `LostError` and `RefusedError`."""
        for number, content in enumerate(self.call.input_bytes.values()):
            with tempfile.NamedTemporaryFile(dir=self.folder) as file:
                file.write(content)
                file.flush()
                self.remote.put(Path(file.name), f"{self.place}/input-{number}")

    def run_block(self, number: int) -> None:
        """Run the tool once. Raises `LostError`, `RefusedError`, `FailedError` and `CancelledError`."""
        write_progress(self.folder, f"block {number}: {TOOL}")
        # By number, as `put_inputs` has called them: names of tensors may have slashes.
        files = {name: f"{self.place}/input-{k}" for k, name in enumerate(self.call.input_bytes)}
        tool = self.remote.attached.benchmark_model
        printed = self._printed(TOOL, self.call.words(tool, f"{self.place}/model.tflite", files))
        try:
            *_, run = read_log(printed)
        except LogError as error:
            text = f"what the device's {tool} printed is none of {TOOL}'s results: {error}"
            raise FailedError(Failure.of(ReasonCode.RUNNER_ERROR, text)) from error
        if (why := why_not_counted(run, self.job.delegate_kind)) is not None:
            raise FailedError(why)
        self.runs[number] = run

    def evaluate(self, within_s: float) -> None:
        """Have the device's evaluation tools tell how right its outputs are, each within so many seconds.
        Labelled data was asked for and has to give a score; a comparison that failed is a note.

        Raises `LostError`, `RefusedError`, `FailedError`, `CancelledError`, `DataError` and `OSError`.
        """
        asked = self.job.plan.labelled
        if asked is not None:
            tool = evaluation.tool_of(asked, self.environment)
            self.labelled = self._told(
                tool, self._put_data(tool), lambda text: evaluation.score_of(text, asked), within_s
            )
        if INFERENCE_DIFF not in self.environment:
            return
        if self.job.inputs:
            self.accuracy = unjudged(None, f"{INFERENCE_DIFF} has inputs of its own alone, not the cell's")
            return
        sets, tool = {"num_runs": self.job.plan.input_sets}, self.environment[INFERENCE_DIFF]
        try:
            told = self._told(
                INFERENCE_DIFF, sets, lambda text: evaluation.difference_of(text, tool), within_s
            )
        except FailedError as error:
            told = unjudged(None, f"{INFERENCE_DIFF}: {error.failure.reason.text}")
        self.accuracy = told

    def _told(
        self, tool: str, more: Mapping[str, object], read: Callable[[str], Told], within_s: float
    ) -> Told:
        """Run an evaluation tool and read what it printed. Raises as `evaluate` does."""
        write_progress(self.folder, tool)
        folder = str(self.remote.attached.evaluation)
        words = evaluation.evaluation_words(folder, tool, f"{self.place}/model.tflite", self.call.flags, more)
        try:
            return read(self._printed(tool, words, within_s))
        except LateError as error:
            raise FailedError(Failure.of(ReasonCode.TIMEOUT, f"{tool}: {error}")) from error
        except LogError as error:
            text = f"what the device's {tool} printed is none of its results: {error}"
            raise FailedError(Failure.of(ReasonCode.RUNNER_ERROR, text)) from error

    def _put_data(self, tool: str) -> dict[str, str]:
        """Copy the labelled pictures, unless another arm has; return the flags that name them."""
        assert self.attempt.data_path is not None
        data = f"{self.place}/data"
        if self.remote.run(f"test -d {shlex.quote(data)}").code != 0:
            write_progress(self.folder, "copies labelled data to the device")
            with tempfile.NamedTemporaryFile(dir=self.folder) as file:
                evaluation.packed(
                    tool, Path(self.attempt.data_path), Path(self.attempt.model_path), Path(file.name)
                )
                self.remote.put(Path(file.name), f"{data}.tar")
            new, old = shlex.quote(f"{data}.part"), shlex.quote(f"{data}.tar")
            # Renamed last: `test -d` above finds complete data only.
            unpack = f"mkdir {new} && tar -xf {old} -C {new} && rm {old} && mv {new} {shlex.quote(data)}"
            self.remote.need(unpack, "unpacking labelled data")
        return evaluation.data_flags(tool, data)

    def _printed(self, tool: str, words: Sequence[str], within_s: float | None = None) -> str:
        """Run a tool of the device; return what it printed. Raises as `evaluate` does, and `LateError`."""
        self.running = True
        try:
            answer = self.remote.run_guarded(words, within_s)
        finally:
            self.running = False
        # This process's stderr is the attempt's log.
        sys.stderr.write(answer.text + "\n")
        if is_cancelled(self.folder):
            raise CancelledError
        if answer.code != 0:
            said = last_line(answer.text) or "it printed nothing"
            text = f"{said} (exit code {answer.code} of {tool} on the device)"
            raise FailedError(Failure.of(ReasonCode.RUNNER_ERROR, text))
        return answer.text

    def kill_if_cancelled(self) -> None:
        """End the tool's run where the agent has cancelled the arm."""
        if self.running and is_cancelled(self.folder):
            self.remote.hang_up()

    def blocks(self, base: "ToolArm | None" = None) -> list[BlockFigure]:
        """Return the blocks of its result, earlier ones first; the new ones with their ratios over `base`."""
        theirs = {} if base is None else base.runs
        own = [_block(run, theirs.get(number)) for number, run in self.runs.items()]
        return added(self.earlier, own)

    def units(self, base: "ToolArm | None") -> tuple[Sequence[float], Sequence[float]]:
        """Return the logarithms of its times, and of its ratios over a baseline that is not itself."""
        blocks = self.blocks(None if base is self else base)
        return time_units(blocks), () if base in (None, self) else ratio_units(blocks)

    def conclude(
        self, base: "ToolArm | None", facts: Mapping[str, str], notes: Sequence[str], energy: Energy
    ) -> None:
        """Write the result of what it has finished, with its ratio over `base`."""
        if self.over:
            return
        if not self.has_blocks:
            self.over = True
            mark_left(self.folder)
            return
        blocks = self.blocks(base)
        measured = measurement_of(self.attempt, self.call, self.environment, list(self.runs.values()), blocks)
        ratio = None if base is None else paired_ratio(blocks, base.job, self.job.seed)
        quality = quality_of(len(blocks), self.stopped or "", notes)
        told: dict[str, object] = {"ratio": ratio, "quality": quality, "energy": energy}
        told |= {} if self.accuracy is None else {"accuracy": self.accuracy}
        if self.labelled is not None and self.job.plan.labelled is not None:
            tool = evaluation.tool_of(self.job.plan.labelled, self.environment)
            told["settings"] = measured.settings | {"labelled_by": f"{tool} {self.environment[tool]}"}
        measured = measured.model_copy(update=told)
        result = RunnerResult(status=Status.DONE, reason=None, measurement=measured, facts=dict(facts))
        self._end(result if self.labelled is None else scored(result, self.labelled))

    def fail(self, failure: Failure) -> None:
        """End with a failure, unless it has ended."""
        if not self.over:
            self._end(not_measured(failure))

    def _end(self, result: RunnerResult) -> None:
        self.over = True
        # Alone, it took as long as its attempt, by the agent's clock; of several arms each has its own turns.
        busy_ns = None if self.alone else int(1e9 * self.took_s)
        told = result.model_copy(update={"busy_ns": busy_ns, "environment": self.environment})
        write_atomically(self.folder / RESULT_FILE, told.model_dump_json().encode())


def _block(run: LoggedRun, base: LoggedRun | None) -> BlockFigure:
    assert run.median is not None
    log_ratio = None if base is None or base.median is None else math.log(base.median / run.median)
    return BlockFigure(p50_ns=run.median * 1e6, log_ratio=log_ratio, rounds=1)
