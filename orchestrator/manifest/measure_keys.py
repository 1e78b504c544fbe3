"""Keys of `measure:` in a `models.yaml`: how much is timed, and the passes beside it."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from agent.wire.bounded import MAX_BLOCKS, MAX_ROUNDS, MAX_SLICE_RUNS, MAX_SLICE_SECONDS
from orchestrator.manifest.campaign import LEAST_TARGET
from orchestrator.manifest.keys import LATER, Keys, key
from orchestrator.manifest.pass_keys import MOST_SECONDS, PassKeys
from orchestrator.manifest.values import Choice, JsonSchema, Number, Share, Whole

_MOST_WARMUP_RUNS: Final = 1_000_000
"""The largest count of warm-up runs. Chosen; each one's time is kept with the result."""

_BlockCount: Final = Whole(1, MAX_BLOCKS)


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

    min_runs: Annotated[int, Whole(1, MAX_SLICE_RUNS)] | None = key("Timed runs of a slice, at least.")
    seconds: Annotated[float, Number(0, MAX_SLICE_SECONDS)] | None = key(
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
    rounds: Annotated[int, Whole(1, MAX_ROUNDS)] | None = key(
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
