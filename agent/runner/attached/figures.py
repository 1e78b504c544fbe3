"""The figures of an attempt at an attached device, from what its tool printed in each block."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Final

from agent.attempt.files import AttemptFile, Failure
from agent.runner.attached.flags import GPU_KIND, ToolCall
from agent.runner.judge.accuracy import unjudged
from agent.runner.judge.blocks import time_units
from agent.wire.measurement import BlockFigure, Latency, Measurement, Quality
from agent.wire.messages import ReasonCode, Status
from agent.wire.passes import PASSES
from runtime.common.benchmark_log import TOOL, LoggedRun
from runtime.common.statistics import estimate

_NOT_JUDGED: Final = f"{TOOL} tells no outputs: they were compared with no reference"
_DOUBT: Final = f"timed by {TOOL} on the device itself, where nobody watched what else ran"
_OF_EACH: Final = f"{TOOL} tells no single times: a percentile of each block gives none of all"
_MISSING: Final = {
    "init_warm": f"{TOOL} starts every block alike: its starts are under init",
    "p90": _OF_EACH,
    "p95": _OF_EACH,
    "p99": _OF_EACH,
}
_UNSEEN: Final = ("the device's CPU time and neighbours: nothing of the farm runs there",)

_SHORTEST_MS: Final = 1e-6
"""Milliseconds, a thousandth of the microsecond that the tool counts in: a shorter median is no run's."""

_LONGEST_MS: Final = 1e9
"""Milliseconds, eleven days: chosen above any run. With a larger one, the interval of two blocks could be
above the largest float."""


def why_not_counted(run: LoggedRun, kind: str) -> Failure | None:
    """Return why a run is none of the delegate that was asked for, or has no median; None where it counts."""
    if run.unknown_flags:
        text = f"the device's {TOOL} does not know {run.unknown_flags}: it needs another release"
        return Failure.of(ReasonCode.DELEGATE_MISSING, text, Status.UNSUPPORTED)
    # The tool goes on with the CPU where its GPU takes nothing, and tells that in its log alone.
    if kind == GPU_KIND and run.extents.get("gpu", "not") == "not":
        text = f"the device's {TOOL} ran nothing of the model on its GPU; its log says why: farm show --logs"
        return Failure.of(ReasonCode.NOT_DELEGATED, text, Status.UNSUPPORTED)
    if run.median is None:
        text = f"the device's {TOOL} prints no median: it needs a newer release"
        return Failure.of(ReasonCode.DELEGATE_MISSING, text, Status.UNSUPPORTED)
    if not _SHORTEST_MS <= run.median <= _LONGEST_MS:
        text = f"a median of {run.median:g} ms: below the microsecond that {TOOL} counts in, or above days"
        return Failure.of(ReasonCode.IMPLAUSIBLE, text)
    return None


def measurement_of(
    attempt: AttemptFile,
    call: ToolCall,
    environment: Mapping[str, str],
    runs: Sequence[LoggedRun],
    blocks: Sequence[BlockFigure],
) -> Measurement:
    """Sum up `blocks`, which begin with earlier ones where the result is refined."""
    p50 = estimate(time_units(blocks))
    told = {
        "init": median(run.init for run in runs),
        "first": median(run.first for run in runs),
        "p50": p50.value,
        "mean": fmean(run.mean for run in runs),
        "ci95": p50.interval,
    }
    missing = dict(_MISSING) if p50.interval is not None else {**_MISSING, "ci95": "too few blocks"}
    extents = ", ".join(f"{name}: {extent}" for name, extent in runs[-1].extents.items())
    return Measurement(
        latency_ms=Latency.model_validate({**dict.fromkeys(_MISSING), **told, "missing": missing}),
        samples=sum(run.count for run in runs),
        memory_peak_bytes=max(run.memory_bytes for run in runs),
        accuracy=unjudged(None, _NOT_JUDGED),
        delegation=None,
        settings={
            "tool": TOOL,
            "tool_version": environment[TOOL],
            "flags": " ".join(f"--{name}={value}" for name, value in call.flags.items()),
            "threads": call.flags["num_threads"],
            "processes": str(len(runs)),
            "plan": attempt.job.plan.model_dump_json(),
            **({"executed_by": extents} if extents else {}),
        },
        warnings=_warnings(attempt),
        blocks=tuple(blocks),
    )


def _warnings(attempt: AttemptFile) -> tuple[str, ...]:
    asked = [one.name for one in PASSES if one.of(attempt.job.plan) is not None]
    return (f"not measured on an attached device: {', '.join(asked)}",) if asked else ()


def quality_of(blocks: int, stopped: str, facts: Sequence[str]) -> Quality:
    """Return the evidence: none of the device's own but what its sensors said."""
    told = {"blocks": blocks, "rounds": blocks, "stopped": stopped, "facts": tuple(facts)}
    return Quality.model_validate({**told, "doubts": (_DOUBT,), "unseen": _UNSEEN})
