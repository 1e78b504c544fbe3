"""Conducts an attempt at an attached device: copies the model there, runs the tool once for each block and
arm, and sums up. Nothing of the model is executed on this host.
"""

import contextlib
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from agent.attached.hosts import Attached
from agent.attached.listing import Sensed, sensed
from agent.attached.remote import LostError, RefusedError, Remote
from agent.attempt.files import AttemptFile, Failure, is_cancelled, write_progress
from agent.runner.attached.arm import ToolArm
from agent.runner.judge.blocks import drawn_order
from agent.runner.judge.stopping import ArmState, Spent
from agent.runner.turns.comparison import Comparison, ended_when_asked
from agent.wire.measurement import Energy
from agent.wire.messages import Device, ReasonCode, Status
from runtime.common.benchmark_log import TOOL

FOLDER: Final = "delegate-farm-attempt"
"""The folder on the device. What an attempt that was killed left is removed by the next one."""

WARMER_C: Final = 5.0
"""Degrees Celsius above its first reading at which a device rests before its next block."""

REST_SHARE: Final = 0.2
"""Share of an attempt's time limit that a device may rest, all blocks together."""

EVALUATION_SHARE: Final = 0.3
"""Share of it that the blocks leave to evaluation tools. Chosen: pictures are some seconds of a phone; larger
leaves fewer blocks to cells that have no such tool to run, too."""

# The second step compares whole arguments: the command line of this very shell contains the text, too.
_CLEAR: Final = """\
for f in $(grep -lF -e {graph} /proc/[0-9]*/cmdline 2>/dev/null); do
tr '\\000' '\\n' <$f 2>/dev/null | grep -qxF -e {graph} && p=${{f%/cmdline}} && kill -9 ${{p#/proc/}}
done
rm -rf {folder}"""
"""Ends the tools of an attempt, too, that outlived it, such as below a wrapper script whose end does not end
them: they would be measured as a neighbour."""

_LOOK_S: Final = 2.0
"""Seconds between two looks at a device that rests. Each connects anew, which warms the device a bit."""

_TIME_MARGIN: Final = 1.5
"""How many times as long as the longest block so far another one may take: it is begun while the attempt has
that much time."""


def run_attached(job_file: Path) -> None:
    """Run the attempt of `job_file` and its arms on their device; write `result.json` beside each job."""
    lead = AttemptFile.model_validate_json(job_file.read_bytes())
    files = [job_file, *map(Path, lead.arms)]
    arms = [ToolArm.read(file, alone=len(files) == 1) for file in files]
    session = _Session(arms, lead, time.monotonic(), arms[0].remote)
    with ended_when_asked(arms):
        try:
            with session.prepared():
                session.run()
        except LostError as error:
            # The signal that ends an attempt ends the connection, too.
            if not session.is_cancelled:
                session.fail(Status.FAILED, ReasonCode.DEVICE_LOST, f"lost while it was measured: {error}")
        except RefusedError as error:
            session.fail(Status.FAILED, ReasonCode.RUNNER_ERROR, str(error))
        session.conclude()


@dataclass(slots=True)
class _Session(Comparison[ToolArm]):
    remote: Remote
    longest_s: float = 0.0
    rested_s: float = 0.0
    before: Sensed | None = None
    after: Sensed | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for a result of more blocks."""
        return all(arm.over or is_cancelled(arm.folder) for arm in self.arms)

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Within the block the device has the model in a folder of the attempt's. Raises `LostError`, and
        `RefusedError` for a device that has no room.
        """
        folder = f"{self.remote.attached.folder.rstrip('/')}/{FOLDER}"
        known: dict[Attached, Device] = {}
        for arm in self.arms:
            arm.do(partial(arm.prepare, known, folder))
        # A context manager has to yield once; `run` then finds no arm that goes on.
        if not self.alive:
            yield
            return
        model, quoted = f"{folder}/model.tflite", shlex.quote(folder)
        clear = _CLEAR.format(graph=shlex.quote(f"--graph={model}"), folder=quoted)
        self.remote.need(f"{clear} && mkdir -m 700 {quoted}", f"making {folder}")
        try:
            write_progress(self.lead_folder, "copies the model to the device")
            self.remote.put(Path(self.lead.model_path), model)
            # Model and inputs are the same for all arms.
            self.alive[0].put_inputs()
            yield
        finally:
            with contextlib.suppress(LostError, RefusedError):
                self.remote.need(clear, f"removing {folder}")

    @property
    def lead_folder(self) -> Path:
        """The folder of the attempt that carries the others."""
        return self.arms[0].folder

    def run(self) -> None:
        """Run blocks until each arm's answer is known, then the evaluation tools; where only the best arm is
        sought these come first, so that a wrong one puts no other behind.

        Raises `LostError` and `RefusedError`.
        """
        steps = [self._run_blocks, self._evaluate]
        for step in steps if self.lead.job.plan.halving is None else reversed(steps):
            step()

    def _evaluate(self) -> None:
        arms = [arm for arm in self.alive if arm.attempt.reported]
        for done, arm in enumerate(arms):
            left_s = self._limit_s - (time.monotonic() - self.began_s)
            # In front of the blocks the tools leave these the rest; behind them, all that is left is theirs.
            share = EVALUATION_SHARE if arm.stopped is None else 1.0
            arm.do(partial(arm.evaluate, max(1.0, share * left_s / (len(arms) - done))))

    def _run_blocks(self) -> None:
        plan, earlier = self.lead.job.plan, len(self.arms[0].earlier)
        # One at least, as a `Refinement` promises, however many blocks the result has already.
        for number in range(1, max(1, plan.max_blocks - earlier) + 1):
            going = {arm.name: arm for arm in self.alive if arm.stopped is None}
            if not going:
                break
            began_s = time.monotonic()
            self._rest()
            for name in drawn_order(going, self.lead.job.seed, number):
                going[name].do(partial(going[name].run_block, number))
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
            self._stop_those_that_are_known(earlier + number)
        if self.before is not None:
            # What has been measured stands without it.
            with contextlib.suppress(LostError, RefusedError):
                self.after = sensed(self.remote)

    def _stop_those_that_are_known(self, number: int) -> None:
        base = None if self.baseline is None or self.baseline not in self.alive else self.baseline
        states = {}
        for arm in self.alive:
            times, ratios = arm.units(base)
            until_decided = arm.job.refines is None or arm.job.refines.until_decided
            figures = times if self.lead.job.plan.halving == "p50" else ()
            is_wrong = arm.labelled is not None and arm.labelled.verdict == "fail"
            # No allowance: nothing on the device tells what others took from a run.
            states[arm.name] = ArmState(times, ratios, 0.0, arm.stopped, until_decided, figures, is_wrong)
        self.stop_known(number, states, base, self._spent())

    @property
    def _limit_s(self) -> float:
        # The agent bounds the runner by the limits of all arms together, too (`agent.attempt.running`).
        return sum(arm.job.soft_limit_s for arm in self.arms)

    def _spent(self) -> Spent | None:
        limit_s = (1.0 - EVALUATION_SHARE) * self._limit_s
        return "time" if time.monotonic() - self.began_s + _TIME_MARGIN * self.longest_s > limit_s else None

    def _rest(self) -> None:
        """Wait until the device is about as cool as before its first block, or has rested long enough."""
        now = sensed(self.remote)
        self.before = self.before or now
        first, limit_s = self.before.hottest, REST_SHARE * self.lead.job.soft_limit_s
        while first is not None and now.hottest is not None and now.hottest > first + WARMER_C:
            if self.rested_s >= limit_s or self.is_cancelled:
                self.notes.append(f"a block began at {now.hottest:g} °C, the first one at {first:g}")
                return
            write_progress(self.lead_folder, f"the device cools down from {now.hottest:g} °C")
            time.sleep(_LOOK_S)
            self.rested_s += _LOOK_S
            now = sensed(self.remote)

    def conclude(self) -> None:
        """Write the results of the arms that have blocks, the baseline's first; others end without one."""
        ends = {"sensors_before": self.before, "sensors_after": self.after}
        facts = {name: str(sense) for name, sense in ends.items() if sense is not None}
        # A baseline that failed, in a later block too, is none.
        base = None if self.baseline is None or self.baseline.over else self.baseline
        for arm in sorted(self.arms, key=lambda arm: arm is not base):
            arm.conclude(None if arm is base else base, facts, self.notes, self._energy())

    def _energy(self) -> Energy:
        """Return how much hotter the device got: no tool there tells its energy."""
        ends = [None if one is None else one.hottest for one in (self.before, self.after)]
        told = f"{TOOL} tells no energy"
        if ends[0] is None or ends[1] is None:
            return Energy(note=told, rise_note="the device has no thermal zone that its shell may read")
        if len(self.arms) > 1:
            return Energy(note=told, rise_note="arms took turns on the device")
        return Energy(note=told, rise_c=ends[1] - ends[0])

    def fail(self, status: Status, code: ReasonCode, text: str) -> None:
        """End all arms that have not ended."""
        for arm in self.arms:
            arm.fail(Failure.of(code, text, status))
