"""Complete the samples of a timed process with its slices, which the deciding process has."""

from collections.abc import Mapping, Sequence

from agent.machine.counters import Window
from agent.machine.rounds import Round
from agent.wire.measurement import ProcessSamples, TimedSlice


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
