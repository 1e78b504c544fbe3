"""Keys of `measure:` in a `models.yaml`: how much is timed, and the passes beside it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from agent.wire import bounded
from agent.wire.passes import PASSES, AskedPasses, PipelinePlan
from orchestrator.manifest.campaign import LEAST_TARGET
from orchestrator.manifest.keys import LATER, Keys, key, required
from orchestrator.manifest.values import Choice, JsonSchema, Number, Share, Whole, mistake

MOST_SECONDS: Final = 86_400
"""The longest warm-up or sustained pass of one process, in seconds: a day. Chosen; nothing else can use the
device meanwhile."""

_SHORTEST_SUSTAINED_MIN: Final = 0.02
"""The shortest sustained pass in minutes, about a second. Chosen for trials; heat needs minutes to show."""

_LEAST_THROUGHPUT_S: Final = 0.1
"""The shortest throughput pass in seconds. Chosen for trials; a shorter one would count too few runs."""

_MOST_THROUGHPUT_S: Final = 600
"""The longest throughput pass in seconds. Chosen: what minutes of work do to a machine, `sustained` shows."""


class Sustained(Keys):
    """A pass without a pause."""

    minutes: Annotated[float, Number(_SHORTEST_SUSTAINED_MIN, MOST_SECONDS / 60)] = required(
        "How long one further process invokes the model without a pause."
    )


class Throughput(Keys):
    """A pass with several runs in flight."""

    in_flight: Annotated[int, Whole(1, bounded.MAX_IN_FLIGHT)] = required(
        "Runs that are started and not yet ended at any time; 1: one after another."
    )
    seconds: Annotated[float, Number(_LEAST_THROUGHPUT_S, _MOST_THROUGHPUT_S)] = required(
        "How long one further process keeps so many in flight."
    )


_LEAST_PREPROCESS_MS: Final = 0.01
"""The shortest pre-processing of a frame in milliseconds. Chosen: less is below what a call costs."""


class Pipeline(Keys):
    """A pass with pre-processing beside the runs."""

    preprocess: Annotated[Literal["resize"], Choice(("resize",), "pre-processing")] | None = key(
        "resize: a camera's frame of 1280 x 720 is resized to the model's input, as LiteRT's tools do."
    )
    cpu_ms: Annotated[float, Number(_LEAST_PREPROCESS_MS, bounded.MAX_PREPROCESS_MS)] | None = key(
        "Milliseconds of a processor that each frame takes, in place of a pre-processing of one's own."
    )
    seconds: Annotated[float, Number(_LEAST_THROUGHPUT_S, _MOST_THROUGHPUT_S)] | None = key(
        "How long one further process gets frames, one after another and overlapped by turns; 10."
    )

    @model_validator(mode="after")
    def _has_one_preprocessing(self) -> "Pipeline":
        if (self.preprocess is None) == (self.cpu_ms is None):
            raise mistake("a pipeline needs one of `preprocess: resize` and `cpu_ms: 3`")
        return self


class PassKeys(Keys):
    """One key for each pass."""

    steps: Annotated[int, Whole(2, bounded.MAX_STEPS)] | None = key(
        "Steps of a sequence, from a fresh state on, that one further process times of a stateful model."
    )
    sustained: Sustained | None = key(
        "A pass that shows whether the model becomes slower as the machine warms up."
    )
    throughput: Throughput | None = key(
        "A pass that counts the runs finished in a second while several are in flight."
    )
    pipeline: Pipeline | None = key(
        "A pass that counts frames a second with pre-processing on the CPU beside the model's runs."
    )
    profile: (
        Annotated[Literal["none", "ops", "kernels"], Choice(("none", "ops", "kernels"), "profile")] | None
    ) = key("A pass that times each operator by itself, or each kernel too.")


def _same(value: Any) -> Any:
    return value


def _pipeline_plan(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {name: keys[name] for name in ("cpu_ms", "seconds") if name in keys}


def _pipeline_keys(plan: PipelinePlan) -> dict[str, Any]:
    what = {"preprocess": "resize"} if plan.cpu_ms is None else {"cpu_ms": plan.cpu_ms}
    return {**what, "seconds": plan.seconds}


@dataclass(frozen=True, slots=True)
class _Form:
    """Both ways between the value of a key and the plan's. `read` raises a `KeyError` for what a mapping
    lacks, which is reported at its place in the file.
    """

    read: Callable[[Any], Any] = _same
    write: Callable[[Any], Any] = _same


_FORMS: Final[Mapping[str, _Form]] = {
    "sustained": _Form(lambda keys: 60 * keys["minutes"], lambda seconds: {"minutes": seconds / 60}),
    "throughput": _Form(
        lambda keys: {name: keys[name] for name in ("in_flight", "seconds")}, lambda plan: plan.model_dump()
    ),
    "pipeline": _Form(_pipeline_plan, _pipeline_keys),
    # `none` takes back for one model what `defaults` ask for.
    "profile": _Form(lambda detail: None if detail == "none" else detail),
}
"""Of the passes whose value is not the same in both."""


def asked_passes(measure: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan that a `measure:` block sets."""
    asked = {}
    for one in PASSES:
        if one.name in measure:
            # The mapping lacks a required key, which is noted at its place already.
            with suppress(KeyError):
                asked[one.asked] = _FORMS.get(one.name, _Form()).read(measure[one.name])
    return asked


def pass_keys(plan: AskedPasses) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a `measure:` block that ask for a plan's passes."""
    for one in PASSES:
        if (what := one.of(plan)) is not None:
            yield one.name, _FORMS.get(one.name, _Form()).write(what)


_MOST_WARMUP_RUNS: Final = 1_000_000
"""The largest count of warm-up runs. Chosen; each one's time is kept with the result."""

_BlockCount: Final = Whole(1, bounded.MAX_BLOCKS)


class BlockBounds(Keys):
    """`{min: 3, max: 6}`, or `6` for exactly so many."""

    min: Annotated[int, _BlockCount] | None = key("Blocks of each cell, at least.")
    max: Annotated[int, _BlockCount] | None = key(
        "Blocks of each cell, at most, where its target is not reached before."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_one_number(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            # For its mistake alone: below, one would be reported at `min`, a key that nobody wrote.
            _BlockCount.read(value)
            return {"min": value, "max": value}
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        bounds = handler.resolve_ref_schema(handler(core))
        del bounds["description"]
        return {"anyOf": [_BlockCount.schema(), bounds]}


class Slice(Keys):
    """The part of a round that one delegate has."""

    min_runs: Annotated[int, Whole(1, bounded.MAX_SLICE_RUNS)] | None = key(
        "Timed runs of a slice, at least."
    )
    seconds: Annotated[float, Number(0, bounded.MAX_SLICE_SECONDS)] | None = key(
        "Seconds of timed runs of a slice, about."
    )


class Warmup(Keys):
    """Runs of a process before those that are timed."""

    runs: Annotated[int, Whole(0, _MOST_WARMUP_RUNS)] | None = key(
        "Runs before the first that is timed, at least."
    )
    min_seconds: Annotated[float, Number(0, MOST_SECONDS)] | None = key("Seconds of warm-up runs, at least.")


class Measure(PassKeys):
    """Counts that replace those of the level, and passes beside it."""

    refused: ClassVar[Mapping[str, str]] = {
        "timing": LATER,
        "processes": "was replaced; write `blocks: 3`, or `blocks: {min: 3, max: 6}`: each has one process",
        "timed": "was replaced; write `rounds: 7` and `slice: {min_runs: 5, seconds: 0.1}`: delegates take "
        "turns by slices",
        "target_ci": "was replaced; write `target: 5%`",
        "batch": "does not belong here; a batch of 8 is the shape of an input, "
        "`inputs: {NAME: {shape: [8, ...]}}`; samples per second are 8 times `throughput.per_second`",
    }

    blocks: BlockBounds | None = key(
        "Fresh processes of each cell: a count, or the least and the most of them."
    )
    target: Annotated[float, Share(LEAST_TARGET, 1)] | None = key(
        "Half width of the 95 % interval, as a share, at which a cell has blocks enough."
    )
    rounds: Annotated[int, Whole(1, bounded.MAX_ROUNDS)] | None = key(
        "Rounds of a block, in each of which every delegate is timed for a slice."
    )
    halving: Annotated[Literal["p50", "p99"], Choice(("p50", "p99"), "figure")] | None = key(
        "Only the delegate with the least of this figure is sought: the others leave early, by halves."
    )
    slice: Slice | None = key("How long a delegate is timed before the next one takes its turn.")
    warmup: Warmup | None = key("How long a process runs the model before it is timed.")
    tunings: Annotated[int, _BlockCount] | None = key(
        "Tunings over which the blocks are spread, where the delegate chooses by timing."
    )
