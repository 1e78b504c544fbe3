"""The view of results on the passes (`agent.wire.passes`): figures, lines, and what an export adds."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.wire.measurement import Measurement
from agent.wire.passes import Pipeline, Steps, Sustained, Throughput
from orchestrator.results import format as text
from orchestrator.results.metric import Better, Metric, measured
from orchestrator.results.profiles import profile_lines
from orchestrator.results.records import CellRecord


def _sustained(
    key: str,
    label: str,
    unit: str,
    meaning: str,
    read: Callable[[Sustained], float | None],
    write: Callable[[Any], str] = text.milliseconds,
) -> Metric:
    """Return a figure of the sustained pass; `_sustained_lines` writes it if it was requested."""

    def value(cell: CellRecord) -> float | None:
        found = None if cell.measurement is None else cell.measurement.sustained
        return None if found is None or not found.slices else read(found)

    # The pass lasts as long as was asked for, which is neither good nor bad.
    better: Better = "none" if unit == "s" else "lower"
    return Metric(
        f"sustained.{key}", label, unit, better, "latency", meaning, value, write, own_line=False,
        why_none=lambda m: "not asked for" if m.sustained is None else m.sustained.note, void_if_wrong=True,
    )  # fmt: skip


def _field(
    of: str, name: str, label: str, unit: str, better: Better, meaning: str, write: Callable[[Any], str]
) -> Metric:
    """Return a field of what a pass found, which says in `missing` why it lacks one; the pass's lines write
    it if it was requested.
    """

    def why_none(m: Measurement) -> str:
        found = getattr(m, of)
        return "not asked for" if found is None else found.missing.get(name, "not recorded")

    return Metric(
        f"{of}.{name}", label, unit, better, "latency", meaning, measured(of, name), write, why_none=why_none,
        void_if_wrong=True, own_line=False,
    )  # fmt: skip


_PIPELINE = (
    _field(
        "pipeline", "per_second", "frames a second", "frames/s", "higher",
        "Frames per second of one further process that pre-processes each frame on the CPU while the model "
        "runs on the frame before, once all else was timed.",
        text.rate,
    ),
    _field(
        "pipeline", "serial_per_second", "frames a second, in series", "frames/s", "higher",
        "The same with each frame's pre-processing and run one after another, by turns with the former.",
        text.rate,
    ),
    _field(
        "pipeline", "gain", "gain of the overlap", "1", "higher",
        "The first rate over the second: 1 where nothing overlaps, at most 2.",
        text.share,
    ),
    _field(
        "pipeline", "preprocess_ms", "pre-processing", "ms", "none",
        "Mean time of a frame's pre-processing where it and the run follow one another.",
        text.milliseconds,
    ),
    _field(
        "pipeline", "run_ms", "run of a frame", "ms", "lower",
        "Mean time of the rest there: the run, from the inputs in host memory to all outputs read.",
        text.milliseconds,
    ),
)  # fmt: skip

_STEPS = (
    _field(
        "steps", "count", "steps", "1", "none",
        "Steps of each sequence that one further process timed, of a model that keeps state.",
        text.count,
    ),
    _field(
        "steps", "first", "first output", "ms", "lower",
        "The first step of such a sequence, from a fresh state until its outputs are read; median of five.",
        text.milliseconds,
    ),
    _field(
        "steps", "step", "further step", "ms", "lower",
        "One of the other steps of such a sequence: the median over five sequences of their medians.",
        text.milliseconds,
    ),
)  # fmt: skip

_SUSTAINED = (
    _sustained(
        "seconds",
        "sustained for",
        "s",
        "Seconds for which one further process invoked the model without a pause, once all else was timed.",
        lambda found: found.seconds,
        text.share,
    ),
    _sustained(
        "start_p50",
        "p50 at the start",
        "ms",
        "Median of the invokes of that pass in its first half minute, or first quarter where it is short.",
        lambda found: found.slices[0].p50_ms,
    ),
    _sustained(
        "end_p50",
        "p50 at the end",
        "ms",
        "The same of its last half minute, or quarter.",
        lambda found: found.slices[-1].p50_ms,
    ),
    _sustained(
        "end_over_start",
        "end over start",
        "1",
        "The median at the end of the pass over that at its start: above 1, the model becomes slower as it "
        "runs.",
        lambda found: found.end_over_start,
        text.share,
    ),
)

_THROUGHPUT = (
    _field(
        "throughput", "in_flight", "runs in flight", "1", "none",
        "Runs that one further process kept started and not yet ended, once all else was timed; 1: one after "
        "another.",
        text.count,
    ),
    _field(
        "throughput", "seconds", "throughput over", "s", "none",
        "Wall time of that process from the first start to the last end.",
        text.share,
    ),
    _field(
        "throughput", "runs", "finished runs", "1", "none",
        "Runs that were started and ended in this time.",
        text.count,
    ),
    _field(
        "throughput", "per_second", "throughput", "runs/s", "higher",
        "Finished runs per second of this wall time, the outputs of each read into host memory. Counted, not "
        "derived from a latency.",
        text.rate,
    ),
)  # fmt: skip


def _sustained_lines(_: CellRecord, found: Sustained) -> Iterator[tuple[str, str]]:
    """Yield the end over the start, the medians in order, the clocks or why none."""
    if found.end_over_start is None:
        yield "sustained", f"none: {found.note}"
    else:
        first, last = (text.milliseconds(found.slices[place].p50_ms) for place in (0, -1))
        ratio = f"end over start {text.share(found.end_over_start)}"
        yield "sustained", f"{text.share(found.seconds)} s without a pause: {ratio} ({last} over {first} ms)"
    if found.slices:
        yield "", f"p50 of each part: {', '.join(text.milliseconds(s.p50_ms) for s in found.slices)} ms"
        clocks = [s.clock_mhz for s in found.slices if s.clock_mhz is not None]
        said = f"{', '.join(f'{mhz:.0f}' for mhz in clocks)} MHz" if clocks else f"none: {found.clock_note}"
        yield "", f"clock of each part: {said}"


def _steps_lines(_: CellRecord, found: Steps) -> Iterator[tuple[str, str]]:
    if found.first is None or found.step is None:
        yield "steps", f"none: {found.missing.get('step', 'not recorded')}"
        return
    first, step = text.milliseconds(found.first), text.milliseconds(found.step)
    yield "steps", f"first output {first} ms, further steps {step} ms each ({text.count(found.count)} steps)"


def _throughput_lines(_: CellRecord, found: Throughput) -> Iterator[tuple[str, str]]:
    if found.per_second is None or found.runs is None or found.seconds is None:
        yield "throughput", f"none: {found.missing.get('per_second', 'not recorded')}"
        return
    counted = f"{text.count(found.runs)} runs in {text.share(found.seconds)} s"
    rate = f"{text.rate(found.per_second)} runs/s, {text.count(found.in_flight)} in flight ({counted})"
    yield "throughput", rate


def _pipeline_lines(_: CellRecord, found: Pipeline) -> Iterator[tuple[str, str]]:
    """Yield the rate beside the serial one, or why there is none."""
    if found.serial_per_second is None or found.preprocess_ms is None or found.run_ms is None:
        yield "pipeline", f"none: {found.missing.get('per_second', 'not recorded')}"
        return
    parts = f"{text.milliseconds(found.preprocess_ms)} + {text.milliseconds(found.run_ms)} ms"
    serial = f"{text.rate(found.serial_per_second)} frames/s in series ({found.preprocess}: {parts})"
    if found.per_second is None or found.gain is None:
        yield "pipeline", serial
        yield "", f"overlapped: none: {found.missing.get('per_second', 'not recorded')}"
        return
    yield "pipeline", f"{text.rate(found.per_second)} frames/s, {text.share(found.gain)} times {serial}"


def _sustained_words(found: Sustained, *, struck_out: bool) -> dict[str, Any]:
    return {
        "slices": [] if struck_out else [one.model_dump() for one in found.slices],
        "clock_note": found.clock_note or None,
        "note": found.note or None,
    }


def _pipeline_words(found: Pipeline, *, struck_out: bool) -> dict[str, Any]:
    return {"preprocess": found.preprocess, **_missing(found, struck_out=struck_out)}


def _missing(found: Throughput | Pipeline | Steps, *, struck_out: bool) -> dict[str, Any]:
    return {} if struck_out else {"missing": dict(found.missing)}


@dataclass(frozen=True, slots=True)
class PassResult:
    """The view of results on one pass. `title`: the heading of its section on a cell's page.

    `lines` and `words` take what the pass found: lines of a name and a text, and the fields that an export
    has besides the figures. `even_if_wrong`: a wrong output does not void it.
    """

    name: str
    title: str
    lines: Callable[[CellRecord, Any], Iterable[tuple[str, str]]]
    figures: tuple[Metric, ...] = ()
    words: Callable[..., Mapping[str, Any]] | None = None
    even_if_wrong: bool = False

    def told(self, cell: CellRecord) -> tuple[tuple[str, str], ...]:
        """Return the lines of a cell, a line without a name going on with the one before; none if the pass
        was not asked for, or the output is wrong.
        """
        found = None if cell.measurement is None else getattr(cell.measurement, self.name)
        if found is None or (cell.struck_out and not self.even_if_wrong):
            return ()
        return tuple(self.lines(cell, found))

    def exported(self, cell: CellRecord) -> dict[str, Any]:
        """Return the words by their paths in an export; none if the pass was not asked for."""
        found = None if cell.measurement is None else getattr(cell.measurement, self.name)
        if found is None or self.words is None:
            return {}
        words = self.words(found, struck_out=cell.struck_out)
        return {f"{self.name}.{name}": value for name, value in words.items()}


PASS_RESULTS: Final = (
    PassResult("sustained", "Without a pause", _sustained_lines, _SUSTAINED, _sustained_words),
    PassResult("throughput", "Throughput", _throughput_lines, _THROUGHPUT, _missing),
    PassResult("pipeline", "Pipeline", _pipeline_lines, _PIPELINE, _pipeline_words),
    PassResult("steps", "Steps", _steps_lines, _STEPS, _missing),
    PassResult("profile", "Profile", profile_lines, even_if_wrong=True),
)
"""In the order of their columns."""
