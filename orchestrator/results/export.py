"""Writes data files and `--json` output: results, campaigns, and a cell with its raw samples.

docs/results-format.md describes each of them.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from agent.wire.measurement import DeviceTime, Measurement, ProcessSamples, Transfer
from orchestrator.errors import UsageError
from orchestrator.results import format as text
from orchestrator.results import metrics
from orchestrator.results.grading import Graded, grade_of, p50_grade
from orchestrator.results.passes import PASS_RESULTS
from orchestrator.results.records import CampaignRecord, CellRecord, ManifestRecord, stated_count
from orchestrator.results.speedups import Partners, paired_speedup, stored_ratio
from runtime.common.installation import install_command


def ratio_json(cell: CellRecord, baseline: CellRecord | None) -> dict[str, Any] | None:
    """Return the stored speed-up over the baseline that the cell was measured with."""
    ratio = stored_ratio(cell)
    if ratio is None:
        return None
    found = paired_speedup(ratio, cell, baseline)
    decided = {"verdict": found.verdict, "blocks_needed": found.blocks_needed}
    return ratio.model_dump(mode="json", exclude={"baseline_id", "device_id"}) | decided


def grades_json(cell: CellRecord) -> dict[str, Any]:
    """Return the grade of the cell with the numbers behind it, and that of its median alone."""
    graded, of_median = grade_of(cell), p50_grade(cell)
    return {
        **_numbers(graded),
        "grade_reason": None if graded is None else graded.reason or None,
        "p50_grade": None if of_median is None else _numbers(of_median),
    }


def _numbers(graded: Graded | None) -> dict[str, Any]:
    if graded is None:
        return {"grade": None, "half_width": None, "allowance": None}
    return {"grade": graded.grade, "half_width": graded.half, "allowance": graded.allowance}


def variation_json(m: Measurement | None) -> dict[str, Any] | None:
    """Return what the interval is over, how much each level varies, and what each tuning chose."""
    if m is None or m.variation is None:
        return None
    outcomes = [tuning.model_dump(mode="json") for tuning in m.tunings]
    return {**m.variation.model_dump(mode="json"), "outcomes": outcomes}


FIRST_COLUMNS = (
    "campaign", "model", "delegate", "device", "level", "status", "reason.code", "reason.text",
    "delegation.status", "delegation.delegated_ops", "delegation.total_ops", "delegation.partitions",
    "latency_ms.init", "latency_ms.init_warm", "latency_ms.first", "latency_ms.p50", "latency_ms.p90",
    "latency_ms.p99", "latency_ms.mean", "latency_ms.ci95.low", "latency_ms.ci95.high", "samples",
    "memory_bytes.peak", "accuracy.reference", "accuracy.max_abs", "accuracy.rel_l2", "accuracy.cosine",
    "accuracy.verdict", "environment_id", "labelled.metric", "labelled.samples", "labelled.right",
    "labelled.share", "labelled.at_least", "labelled.verdict",
)  # fmt: skip
"""The columns of the first release in its order, which readers may count on; later metrics follow them."""


RATIO_COLUMNS = (
    "ratio.against", "ratio.median", "ratio.ci95.low", "ratio.ci95.high", "ratio.blocks", "ratio.seed",
    "ratio.tunings", "ratio.allowance", "ratio.verdict", "ratio.blocks_needed",
)  # fmt: skip
"""The columns of the paired speed-up over the baseline."""


VARIATION_COLUMNS = (
    "variation.level", "variation.given_tuning", "variation.tunings", "variation.processes",
    "variation.sample_sd", "variation.process_sd", "variation.tuning_sd",
)  # fmt: skip
"""The columns of what the interval of p50 is over."""


PROVENANCE_COLUMNS = (
    "cell_id", "campaign_id", "model_sha256", "device_name", "threads", "finished_at", "reused_from", "again",
    "flags", "conditions_id", "grade", "half_width", "allowance", "grade_reason", "p50_grade.grade",
    "p50_grade.half_width", "p50_grade.allowance", "quality.void", "quality.facts", "quality.blocks",
    "quality.rounds", "quality.repeated", "quality.repeated_blocks", "quality.alternating",
    "quality.stopped", "quality.seen", "quality.unseen", "imported.tool", "imported.file", "imported.sha256",
)  # fmt: skip
"""The last columns: where a row comes from. Lists are joined by semicolons."""


def to_json(value: Any, indent: int | None = 1) -> str:
    """Write JSON text with a trailing newline, on one line where `indent` is None.

    Raises `ValueError` for a value that is not a finite number.
    """
    separators = None if indent else (",", ":")
    return json.dumps(value, indent=indent, separators=separators, allow_nan=False, default=text.plain) + "\n"


def results_document(cells: Iterable[CellRecord]) -> str:
    """Return the array of `farm results --format json`, as text."""
    return to_json(result_objects(cells))


def results_csv(cells: Iterable[CellRecord]) -> str:
    """Write one row per cell: `flat_results`, where null is empty and formulas are defused."""
    rows = ([_csv_value(value) for value in row.values()] for row in flat_results(cells))
    return _csv([csv_columns(), *rows])


def flat_results(cells: Iterable[CellRecord]) -> list[dict[str, Any]]:
    """Return a row for each cell with every column of the CSV file, for a DataFrame: numbers, truth values,
    texts and None. Names of nested fields are joined with a point, members of lists by semicolons.
    """
    columns = csv_columns()
    flat = map(_flatten, result_objects(cells))
    return [{column: _joined(one.get(column)) for column in columns} for one in flat]


SAMPLE_COLUMNS = (
    "cell_id", "campaign", "model", "delegate", "device", "level", "process", "cache", "phase", "batch",
    "index", "ns",
)  # fmt: skip
"""The columns of raw samples in long form: a row for each."""


def samples_csv(
    cells: Iterable[CellRecord], read: Callable[[CellRecord], Sequence[ProcessSamples]]
) -> Iterator[str]:
    """Yield the raw samples of cells as CSV, cell by cell, the heading first.

    `ns`: nanoseconds of one invoke, or of `batch` in a row; `phase`: warmup, or timed; a process's samples
    are in the order of measurement.
    """
    yield _csv([SAMPLE_COLUMNS])
    for cell in cells:
        names = (cell.cell_id, cell.campaign, cell.model, cell.delegate, cell.device, cell.level)
        own = [*map(_csv_value, names)]
        yield _csv(
            [*own, process.index + 1, process.cache, phase, process.batch, index, ns]
            for process in read(cell)
            for phase, samples in (("warmup", process.warmup_ns), ("timed", process.invoke_ns))
            for index, ns in enumerate(samples)
        )


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    # The line ends of RFC 4180.
    csv.writer(buffer, lineterminator="\r\n").writerows(rows)
    return buffer.getvalue()


def csv_columns() -> tuple[str, ...]:
    """Return the heading of the CSV file."""
    measured = (column for metric in metrics.METRICS for column in metric.columns)
    return tuple(
        dict.fromkeys((*FIRST_COLUMNS, *measured, *RATIO_COLUMNS, *VARIATION_COLUMNS, *PROVENANCE_COLUMNS))
    )


def result_objects(cells: Iterable[CellRecord]) -> list[dict[str, Any]]:
    """Return the objects of several results, each with the baseline that it was measured with, if present."""
    listed = list(cells)
    partners = Partners(listed)
    return [result_json(cell, partners.of(cell)) for cell in listed]


def result_json(cell: CellRecord, baseline: CellRecord | None = None) -> dict[str, Any]:
    """Return the stable object of one result (docs/results-format.md); a wrong output's latencies are null.

    `baseline`: the cell that it was measured with, where that is at hand, as a void one voids the verdict.
    """
    m = cell.measurement
    found: dict[str, Any] = {
        "campaign": cell.campaign,
        "model": cell.model,
        "delegate": cell.delegate,
        "device": cell.device,
        "level": cell.level,
        "status": cell.status,
        "reason": None if cell.reason is None else cell.reason.model_dump(mode="json"),
        "delegation": None if m is None or m.delegation is None else m.delegation.model_dump(mode="json"),
    }
    more = {
        "ratio": ratio_json(cell, baseline),
        "environment_id": cell.environment_id,
        "variation": variation_json(m),
        "advice": None if m is None or m.advice is None else m.advice.model_dump(mode="json"),
    }
    return found | _figures(cell) | more | _provenance(cell)


def _provenance(cell: CellRecord) -> dict[str, Any]:
    """Return the fields that tell two results of one cell apart, and state the worth of their figures."""
    m = cell.measurement
    return {
        "cell_id": cell.cell_id,
        "campaign_id": cell.campaign_id,
        "model_sha256": cell.model_sha256,
        "device_name": cell.device_name,
        "threads": None if m is None else stated_count(m.settings, "threads") or None,
        "finished_at": None if cell.finished_at is None else cell.finished_at.isoformat(),
        "reused_from": cell.reused_from,
        "again": cell.again,
        "flags": [] if m is None else list(m.warnings),
        "conditions_id": cell.conditions_id,
        **grades_json(cell),
        "quality": None if cell.quality is None else cell.quality.model_dump(mode="json"),
        "imported": None if cell.imported is None else asdict(cell.imported),
    }


def _figures(cell: CellRecord) -> dict[str, Any]:
    """Every metric at its path, and the words beside it; a group in which nothing has a value is null."""
    groups: dict[str, Any] = {}
    for path, value in (_values(cell) | _words(cell)).items():
        *outer, name = path.split(".")
        group = groups
        for part in outer:
            group = group.setdefault(part, {})
        group[name] = value
    if cell.measurement is not None:
        # `_words` has made the group: of every measurement it has the verdict, if only as None.
        outputs = cell.measurement.accuracy.outputs
        groups["accuracy"]["outputs"] = [output.model_dump(mode="json") for output in outputs]
    return {group: _without_empty(entry) for group, entry in groups.items()}


def _values(cell: CellRecord) -> dict[str, Any]:
    found = {metric.key: metric.exported(cell) for metric in metrics.METRICS}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _words(cell: CellRecord) -> dict[str, Any]:
    """Return the words beside the figures: verdicts, rules, and why a figure is missing."""
    m = cell.measurement
    if m is None:
        return {}
    words: dict[str, Any] = {
        "latency_ms.missing": _missing(cell, m),
        "accuracy.reference": m.accuracy.reference,
        "accuracy.verdict": m.accuracy.verdict,
        "accuracy.rule": m.accuracy.rule,
        "accuracy.note": m.accuracy.note,
        "device_ms.missing": dict(m.device.missing) if m.device != DeviceTime() else None,
        "transfer.missing": dict(m.transfer.missing) if m.transfer != Transfer() else None,
        "energy.note": m.energy.note or None,
        "energy.rise_note": m.energy.rise_note or None,
        "init_ms.missing": dict(m.init.missing) if m.init.cold or m.init.warm else None,
        "memory_bytes.missing": dict(m.memory.missing) if m.memory.ready is not None else None,
        "installed.note": m.installed.note or None,
    }
    for one in PASS_RESULTS:
        words |= one.exported(cell)
    if m.labelled is not None:
        words |= {
            "labelled.metric": m.labelled.metric,
            "labelled.ci95": None if m.labelled.ci95 is None else list(m.labelled.ci95),
            "labelled.at_least": m.labelled.at_least,
            "labelled.verdict": m.labelled.verdict,
            "labelled.drop": None if m.labelled.drop is None else m.labelled.drop.model_dump(mode="json"),
            "labelled.answers_sha256": m.labelled.answers_sha256,
        }
    return words


def _missing(cell: CellRecord, m: Measurement) -> dict[str, str]:
    if not cell.struck_out:
        return dict(m.latency_ms.missing)
    paths = (metric.key.partition(".") for metric in metrics.METRICS if metric.void_if_wrong)
    return {name: f"struck out: {cell.struck_as}" for group, _, name in paths if group == "latency_ms"}


def _without_empty(entry: Any) -> Any:
    """Return None for a group in which nothing has a value, at any depth."""
    if not isinstance(entry, dict):
        return entry
    found = {name: _without_empty(value) for name, value in entry.items()}
    # An empty mapping is a value: a `missing` that names nothing says that nothing is missing.
    return None if found and all(value is None for value in found.values()) else found


def campaign_json(campaign: CampaignRecord) -> dict[str, Any]:
    """Return the object of a campaign (docs/results-format.md) for `farm status`, endpoint and site."""
    lists = {"models": list(campaign.models), "delegates": list(campaign.delegates)}
    return asdict(campaign) | {"submitted_at": campaign.submitted_at.isoformat()} | lists


def manifest_json(found: ManifestRecord) -> dict[str, Any]:
    """Return the object of `farm show CAMPAIGN --manifest --json` (docs/results-format.md)."""
    stored = asdict(found)
    origins = stored.pop("origins")
    return stored | {"models": [{"id": name, **origin} for name, origin in origins.items()]}


def cell_document(cell: CellRecord, processes: Sequence[ProcessSamples]) -> str:
    """One cell as JSON text: result, settings and environment, attempts, and every raw sample in ns."""
    m = cell.measurement
    return to_json(
        {
            "cell_id": cell.cell_id,
            "campaign_id": cell.campaign_id,
            "result": result_json(cell),
            "model_sha256": cell.model_sha256,
            "model_bytes": cell.model_bytes,
            "delegate_kind": cell.delegate_kind,
            "delegate_options": cell.delegate_options,
            "device_name": cell.device_name,
            "reused_from": cell.reused_from,
            "finished_at": cell.finished_at,
            "settings": {} if m is None else m.settings,
            "warnings": [] if m is None else m.warnings,
            "samples_sha256": None if m is None else m.samples_sha256,
            "environment": cell.environment,
            "facts": cell.facts,
            "profile": None if m is None else m.profile,
            "attempts": cell.attempts,
            "processes": processes,
        },
        # On one line: indented, each of its tens of thousands of samples would have a line.
        indent=None,
    )


def _flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    parts = {metric.key: metric.parts for metric in metrics.METRICS if metric.parts}
    parts["ratio.ci95"] = ("low", "high")
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        name = f"{prefix}{key}"
        if isinstance(entry, dict):
            flat |= _flatten(entry, f"{name}.")
        # A pair that is missing gets no parts; its columns are empty (`flat_results`).
        elif name in parts and entry is not None:
            flat |= {f"{name}.{part}": member for part, member in zip(parts[name], entry, strict=True)}
        else:
            flat[name] = entry
    return flat


def _joined(value: Any) -> Any:
    return "; ".join(value) if isinstance(value, list) else value


def _csv_value(value: Any) -> Any:
    return text.csv_text(value) if isinstance(value, str) else value


_TEXTS: Final = frozenset({
    "campaign", "model", "delegate", "device", "level", "status", "reason.code", "reason.text",
    "delegation.status", "accuracy.reference", "accuracy.verdict", "environment_id", "labelled.metric",
    "labelled.verdict", "ratio.against", "ratio.verdict", "variation.level", "cell_id", "campaign_id",
    "model_sha256", "device_name", "finished_at", "reused_from", "again", "flags", "conditions_id", "grade",
    "grade_reason", "p50_grade.grade", "quality.void", "quality.facts", "quality.stopped", "quality.seen",
    "quality.unseen", "imported.tool", "imported.file", "imported.sha256",
})  # fmt: skip
_TRUTHS: Final = frozenset({"variation.given_tuning", "quality.alternating"})


def results_parquet(cells: Iterable[CellRecord]) -> bytes:
    """Return the content of a Parquet file: a row for each cell, with the columns of `results_csv`.

    Every column has one type, whatever is missing: text, truth value or a float of 64 bits, any of them
    null. Raises `UsageError` where pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415  # of an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"Parquet needs pyarrow: {install_command('parquet')}") from error
    types = {name: pyarrow.float64() for name in csv_columns()}
    types |= dict.fromkeys(_TEXTS, pyarrow.string()) | dict.fromkeys(_TRUTHS, pyarrow.bool_())
    table = pyarrow.Table.from_pylist(flat_results(cells), schema=pyarrow.schema(types))
    written = io.BytesIO()
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()
