"""A comparison as text: LiteRT's lines to the letter, then ours; as JSON, and as LiteRT's message.

The numbers of the message's fields are those of `evaluation_stages.proto` in TensorFlow.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from runtime.common.protobuf import integer, message, real32, real64
from runtime.tools.model_diff.comparing import INVOCATIONS, Difference, OutputDifference, Side, Summary


def litert_lines(found: Difference) -> Iterator[str]:
    """Yield LiteRT's own lines: six significant digits, the deviations of times cut to integers."""
    yield f"Num evaluation runs: {found.runs}"
    for title, side in (("Reference", found.reference), ("Test", found.test)):
        latency = side.latency
        yield f"{title} run latency: avg={latency.average:g}(us), std_dev={int(latency.deviation)}(us)"
    for i, one in enumerate(found.outputs):
        yield f"OutputDiff[{i}]: avg_error={one.error.average:g}, std_dev={one.error.deviation:g}"


def own_lines(found: Difference, name: str) -> Iterator[str]:
    """Yield the figures of each output and the verdict."""
    yield f"{name}: {_side(found.test)} against {_side(found.reference)}, seed {found.seed}; {found.rule}"
    for i, one in enumerate(found.outputs):
        yield f"  output {i} {one.name!r}, {one.kind}: {_verdict(one)}; {', '.join(_figures(one))}"
        if one.judgement.note:
            yield f"    {one.judgement.note}"
    verdict = found.judgement.verdict
    yield "  " + {"pass": "within the rule", "fail": "outside the rule"}.get(verdict or "", "not judged")


def document(found: Difference, file: str) -> dict[str, Any]:
    """Return all of it for JSON; a figure that is not a finite number is null."""
    described: dict[str, Any] = {
        "file": file,
        "runs": found.runs,
        "invocations_per_run": INVOCATIONS,
        "seed": found.seed,
        "rule": found.rule,
        "verdict": found.judgement.verdict,
        "reference": _side_document(found.reference),
        "test": _side_document(found.test),
        "outputs": [
            {"name": one.name, "kind": one.kind, "error": asdict(one.error), **_judgement(one)}
            for one in found.outputs
        ],
    }
    return _finite(described)  # type: ignore[no-any-return]


def _judgement(one: OutputDifference) -> dict[str, Any]:
    values = asdict(one.judgement)
    return {key: value for key, value in values.items() if key not in ("rule", "peer_rel_l2")}


def _side(side: Side) -> str:
    known = {**side.setting.options, **side.effective}
    shown = [f"{key} {known[key]}" for key in ("precision", "resolver", "threads") if key in known]
    return f"{side.setting.kind} ({', '.join(shown)})" if shown else side.setting.kind


def _side_document(side: Side) -> dict[str, Any]:
    return {
        "delegate": side.setting.kind,
        "options": dict(side.setting.options),
        "settings": dict(side.effective),
        "latency_us": asdict(side.latency),
    }


def _verdict(one: OutputDifference) -> str:
    return one.judgement.verdict or "not judged"


def _figures(one: OutputDifference) -> Iterator[str]:
    judgement = one.judgement
    named: Mapping[str, float | None] = {
        "max_abs": judgement.max_abs,
        "rel_l2": judgement.rel_l2,
        "cosine": judgement.cosine,
        "equal": judgement.equal,
        "equal_argmax": judgement.top1,
    }
    yield from (f"{key} {value:.6g}" for key, value in named.items() if value is not None)
    if judgement.matching is not None:
        counts = judgement.matching
        yield f"matched {counts.matched}, missing {counts.missing}, added {counts.added}"
        if counts.mean_iou is not None:
            yield f"mean IoU {counts.mean_iou:.4g}"
    yield f"{judgement.nonfinite} NaN or Inf"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_INFERENCE_PROFILER: Final = 5
"""Field of `ProcessMetrics` that holds the metrics of this tool."""


def evaluation_metrics(found: Difference) -> bytes:
    """Return the message's bytes."""
    profiler = message(1, latency(found.reference.latency)) + message(2, latency(found.test.latency))
    for one in found.outputs:
        profiler += message(3, _accuracy(one.error))
    return integer(1, found.runs) + message(2, message(_INFERENCE_PROFILER, profiler))


def latency(summary: Summary) -> bytes:
    """Return a `LatencyMetrics`."""
    # The fields 1 to 4 are integers: last_us, max_us, min_us and sum_us.
    whole = (summary.last, summary.largest, summary.smallest, summary.total)
    fields = b"".join(integer(number, int(value)) for number, value in enumerate(whole, 1))
    average = real64(5, summary.average)
    return fields + average + integer(6, int(summary.deviation))


def _accuracy(summary: Summary) -> bytes:
    return (
        real32(1, summary.largest)
        + real32(2, summary.smallest)
        + real64(3, summary.average)
        + real32(4, summary.deviation)
    )
