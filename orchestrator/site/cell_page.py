"""Builds a cell's page: everything behind one number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median_low

from agent.wire.measurement import Measurement, ProcessSamples
from orchestrator.results import format as text
from orchestrator.results.detail_lines import count_pair, spread_lines, stage_pairs, throughput_line
from orchestrator.results.metric import Section
from orchestrator.results.metrics import P50, in_section
from orchestrator.results.reasons import Footnotes
from orchestrator.results.records import AttemptRecord, CampaignRecord, CellRecord
from orchestrator.results.speedups import counted_latency
from orchestrator.site import links
from orchestrator.site.cell_view import accuracy_facts, cell_view, device_id, status_view
from orchestrator.site.figures import figure, head, setting_rows
from orchestrator.site.pages import (
    AttemptRow,
    CellPage,
    Facts,
    Figure,
    Link,
    MetricHead,
    ProcessRow,
    RawBlock,
    StageRow,
)
from orchestrator.site.plots import histogram, process_name, scatter
from orchestrator.site.sustained_plot import sustained_view

_RAW_PER_ROW = 10
"""Raw samples in a row, so that the number in front of a row is that of its first sample, in tens."""

_RAW_LIMIT = 2000
"""Raw samples of a process on the page. A fast model has tens of thousands, whose table would be megabytes of
HTML; the JSON beside the page has every one."""


def cell_page(
    campaign: CampaignRecord,
    cell: CellRecord,
    baseline: CellRecord | None,
    original: CellRecord | None,
    processes: Sequence[ProcessSamples],
    samples_note: str = "",
) -> CellPage:
    """Build the page of a cell.

    `original` is the cell that a reused result was measured for, where the site has it: the raw numbers are
    on its page only. `samples_note` says why `processes` is empty.
    """
    notes = Footnotes()
    m = cell.measurement
    counted = counted_latency(cell)
    return CellPage(
        cell=cell_view(cell, baseline),
        cell_id=cell.cell_id,
        campaign=Link(text.short_name(campaign.name), links.campaign_page(campaign.campaign_id)),
        model=Link(text.short_name(cell.model), links.model_page(campaign.campaign_id, cell.model)),
        device_name=text.short_name(cell.device_name),
        level=cell.level,
        finished=text.moment(cell.finished_at),
        original=None if original is None else Link(original.cell_id, links.cell_page(original.cell_id)),
        lead=head(P50),
        latencies=_figures("latency", cell, notes),
        resources=(*_figures("resources", cell, notes), *_figures("memory", cell, notes)),
        stages=_stages(cell, notes),
        footnotes=notes.listed(),
        sample_count=text.NOTHING if m is None else text.count(m.samples),
        accuracy=() if m is None else accuracy_facts(cell, m),
        warnings=() if m is None else m.warnings,
        spread=() if m is None else _spread(m),
        throughput=throughput_line(cell),
        sustained=sustained_view(cell),
        scatter=scatter(processes, None if counted is None else counted.p50),
        histogram=histogram(processes),
        samples_note=samples_note,
        processes=tuple(_process(p) for p in processes),
        process_facts=_process_facts(processes),
        raw=tuple(_raw(p) for p in processes) if original is None else (),
        attempts=tuple(_attempt(a) for a in cell.attempts),
        settings=() if m is None else setting_rows(m.settings),
        spec=_spec(cell),
        environment_id=cell.environment_id or "",
        conditions=tuple(sorted(cell.conditions.items())),
        versions=tuple(sorted(cell.versions.items())),
        facts=tuple(sorted(cell.facts.items())),
        data_href=links.cell_data((original or cell).cell_id),
    )


def _figures(section: Section, cell: CellRecord, notes: Footnotes) -> tuple[tuple[MetricHead, Figure], ...]:
    if cell.measurement is None:
        return ()
    return tuple((head(metric), figure(metric, cell, notes)) for metric in in_section(section))


def _stages(cell: CellRecord, notes: Footnotes) -> tuple[StageRow, ...]:
    """Return the stages of the init; none if there are none."""
    m = cell.measurement
    if m is None or (m.init.cold is None and m.init.warm is None):
        return ()
    pairs = {**stage_pairs(), "processes": count_pair()}
    return tuple(
        StageRow(name, cold.help, figure(cold, cell, notes), figure(warm, cell, notes))
        for name, (cold, warm) in pairs.items()
    )


def _spread(m: Measurement) -> Facts:
    """Return the level of p50's interval, the variation of each level, and where to repeat more."""
    found: list[tuple[str, str]] = []
    for name, said in spread_lines(m):
        found.append((name, said) if name else ("its choices", said.removeprefix("choices: ")))
    return tuple(found)


def _process(process: ProcessSamples) -> ProcessRow:
    timed = process.invoke_ns
    batch = f" batches of {process.batch}" if process.batch > 1 else ""
    return ProcessRow(
        number=process.index + 1,
        cache=process.cache,
        init=text.nanoseconds(process.init_ns),
        first=text.nanoseconds(process.first_ns),
        warmup_count=text.count(len(process.warmup_ns)),
        timed_count=text.count(len(timed)) + batch,
        least=text.nanoseconds(min(timed, default=None)),
        # The lower median is the nearest rank, by which the measuring core forms a p50, too.
        median=text.nanoseconds(median_low(timed) if timed else None),
        greatest=text.nanoseconds(max(timed, default=None)),
        memory_before=text.byte_count(process.memory_before_bytes),
        memory_peak=text.byte_count(process.memory_peak_bytes),
        flags=process.flags,
    )


def _process_facts(processes: Sequence[ProcessSamples]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    names = sorted({name for p in processes for name in p.facts})
    return tuple((name, tuple(p.facts.get(name, text.NOTHING) for p in processes)) for name in names)


def _raw(process: ProcessSamples) -> RawBlock:
    shown = process.invoke_ns[:_RAW_LIMIT]
    return RawBlock(
        label=f"{process_name(process)}, {process.cache} caches",
        rows=(*_raw_rows(process.warmup_ns[:_RAW_LIMIT], "warm-up "), *_raw_rows(shown, "")),
        left_out=len(process.invoke_ns) - len(shown),
    )


def _raw_rows(samples_ns: Sequence[int], prefix: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (f"{prefix}{start}", tuple(text.sample(ns) for ns in samples_ns[start : start + _RAW_PER_ROW]))
        for start in range(0, len(samples_ns), _RAW_PER_ROW)
    )


def _attempt(attempt: AttemptRecord) -> AttemptRow:
    reason = attempt.reason
    return AttemptRow(
        number=attempt.number,
        state=status_view(attempt.state, reason.code.value if reason else "", reason.text if reason else ""),
        device=device_id(attempt.device_id or "-"),
        started=text.moment(attempt.started_at),
        duration=text.duration(attempt.duration_ns),
        log_tail=attempt.log_tail,
    )


def _spec(cell: CellRecord) -> Facts:
    """Return the requested settings, apart from the counts that the recorded settings contain."""
    options = tuple(
        (f"option {name}", value if isinstance(value, str) else json.dumps(value))
        for name, value in sorted(cell.delegate_options.items())
    )
    samples = cell.measurement.samples_sha256 if cell.measurement else None
    return (
        ("cell", cell.cell_id),
        ("model sha256", cell.model_sha256 or "the file could not be fetched"),
        ("model size", text.byte_count(cell.model_bytes)),
        ("delegate kind", cell.delegate_kind),
        *options,
        ("level", cell.level),
        *((("samples sha256", samples),) if samples else ()),
    )
