"""The passes that follow the timed processes where a campaign asks for them: what each is asked and what it
answers. Everything that lists passes reads `PASSES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field

from agent.wire import bounded
from agent.wire.profile import Profile, ProfileDetail

PROFILE_S: Final = 10.0
"""Seconds of the runs of a profile, about: a slower model gets fewer rounds. Chosen: ten rounds of a model of
half a second, which runs twice in each."""


class ThroughputPlan(bounded.Wire):
    """A pass that keeps `in_flight` runs of a model started and not yet ended for so many `seconds`."""

    in_flight: int = Field(ge=1, le=bounded.MAX_IN_FLIGHT)
    seconds: float = Field(gt=0)


class Throughput(bounded.Wire):
    """One process that kept `in_flight` runs of the model started and not yet ended.

    `runs` ended within the `seconds` from the first start to the last end, so many `per_second`; these are
    null where `missing` says why under their names.
    """

    in_flight: bounded.Count
    seconds: bounded.Figure | None = None
    runs: bounded.Count | None = None
    per_second: bounded.Figure | None = None
    missing: bounded.Facts = Field(default_factory=dict)


class PipelinePlan(bounded.Wire):
    """A pass that pre-processes frames on the CPU while the model runs, for so many `seconds`.

    `cpu_ms`: of a processor, for each frame; None: a camera's frame is resized to the model's input.
    """

    cpu_ms: float | None = Field(default=None, gt=0, le=bounded.MAX_PREPROCESS_MS)
    seconds: float = Field(default=10.0, gt=0)


class Pipeline(bounded.Wire):
    """Frames of one process, each pre-processed as `preprocess` says and then run.

    One after another it makes `serial_per_second`, a frame of which takes `preprocess_ms` and `run_ms`; with
    the next frame pre-processed during a run, `per_second`, which is `gain` times as many. `missing` says why
    one is null.
    """

    preprocess: bounded.Text
    per_second: bounded.Figure | None = None
    serial_per_second: bounded.Figure | None = None
    gain: bounded.Figure | None = None
    preprocess_ms: bounded.Figure | None = None
    run_ms: bounded.Figure | None = None
    missing: bounded.Facts = Field(default_factory=dict)


class Steps(bounded.Wire):
    """Sequences of `count` steps of a model that keeps state, each from a fresh state on, in milliseconds.

    `first`: the first step, until its outputs are read; `step`: one of the others; medians over the
    sequences. `missing` says why they are null.
    """

    count: bounded.Count
    first: bounded.Figure | None = None
    step: bounded.Figure | None = None
    missing: bounded.Facts = Field(default_factory=dict)


class SustainedSlice(bounded.Wire):
    """A part of a sustained pass: when it began, the median of its invokes, their number, and the clock."""

    from_s: bounded.Figure
    p50_ms: bounded.Figure
    runs: bounded.Count
    clock_mhz: bounded.Figure | None = None


class Sustained(bounded.Wire):
    """One process that invoked the model without a pause for so many `seconds`.

    `end_over_start`: the median of the last slice over that of the first, null where `note` says why;
    `clock_note` says why a clock is null.
    """

    seconds: bounded.Figure
    slices: tuple[SustainedSlice, ...] = Field(default=(), max_length=bounded.MAX_SLICES)
    end_over_start: bounded.Figure | None = None
    clock_note: bounded.Text = ""
    note: bounded.Text = ""


class AskedPasses(bounded.Wire):
    """The part of a plan that asks for passes; null: not asked for.

    `sustained_s`: seconds for which a process invokes the model without a pause. `throughput`: how one keeps
    several runs in flight. `pipeline`: how one pre-processes frames beside the runs. `steps`: of each
    sequence, from a fresh state on, that one times. `profile`: what one times one by one.
    """

    sustained_s: float | None = Field(default=None, gt=0)
    throughput: ThroughputPlan | None = None
    pipeline: PipelinePlan | None = None
    steps: int | None = Field(default=None, ge=2, le=bounded.MAX_STEPS)
    profile: ProfileDetail | None = None


class PassFigures(bounded.Wire):
    """The part of a measurement that the passes fill; null: not asked for."""

    sustained: Sustained | None = None
    throughput: Throughput | None = None
    pipeline: Pipeline | None = None
    steps: Steps | None = None
    profile: Profile | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass. `name`: its field of `PassFigures`, its word in the log of runs, its folder in the attempt's,
    its key below `measure:` and its module in `agent.runner.passes`. `asked`: its field of `AskedPasses`.
    `seconds`: how long what was asked takes; None where that is not known beforehand.
    """

    name: str
    asked: str
    seconds: Callable[[Any], float] | None = None

    def of(self, plan: AskedPasses) -> Any:
        """Return what a plan asks of it, None: nothing."""
        return getattr(plan, self.asked)


PASSES: Final = (
    Pass("throughput", "throughput", lambda plan: plan.seconds),
    Pass("pipeline", "pipeline", lambda plan: plan.seconds),
    Pass("steps", "steps"),
    Pass("profile", "profile", lambda _: PROFILE_S),
    # The last one: it heats the machine.
    Pass("sustained", "sustained_s", lambda seconds: seconds),
)
"""In the order in which they run."""
