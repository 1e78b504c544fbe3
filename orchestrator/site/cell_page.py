"""Builds a cell's page: everything behind one number."""

import json
from collections.abc import Sequence
from typing import Any

from agent.wire.measurement import Measurement, ProcessSamples
from orchestrator.results import format as text
from orchestrator.results.detail_lines import count_pair, spread_lines, stage_pairs
from orchestrator.results.metric import Metric, Section
from orchestrator.results.metrics import in_section
from orchestrator.results.passes import PASS_RESULTS, PassResult
from orchestrator.results.profiles import profile_of
from orchestrator.results.records import CampaignRecord, CellRecord, ComparedCell
from orchestrator.results.speedups import counted_latency
from orchestrator.results.wording import Footnotes
from orchestrator.site.cell_view import accuracy_facts, cell_view
from orchestrator.site.figures import Facts, Figure, figure, setting_rows
from orchestrator.site.plots import histogram, process_name, scatter, sustained_plot
from runtime.common.profile import written

Rows = tuple[tuple[str, tuple[str, ...]], ...]

_RAW_PER_ROW = 10
"""Raw samples in a row, so that the number in front of a row is that of its first sample, in tens."""

_RAW_LIMIT = 2000
"""Raw samples of a process on the page. A fast model has tens of thousands, whose table would be megabytes of
HTML; the JSON beside the page has every one."""


def cell_page(
    campaign: CampaignRecord,
    cell: CellRecord,
    baseline: CellRecord | None,
    original: ComparedCell | None,
    processes: Sequence[ProcessSamples],
    samples_note: str = "",
) -> dict[str, Any]:
    """Gather what the page of a cell shows.

    `original` is the cell that a reused result was measured for, where the site has it: the raw numbers are
    on its page only. `samples_note` says why `processes` is empty.
    """
    notes = Footnotes()
    m = cell.measurement
    counted = counted_latency(cell)
    return {
        "campaign": campaign,
        "record": cell,
        "cell": cell_view(cell, baseline),
        "original": original,
        "latencies": _figures("latency", cell, notes),
        "resources": (*_figures("resources", cell, notes), *_figures("memory", cell, notes)),
        "stages": _stages(cell, notes),
        "footnotes": notes.listed(),
        "accuracy": () if m is None else accuracy_facts(cell, m),
        "spread": () if m is None else _spread(m),
        "passes": [(one, facts) for one in PASS_RESULTS if (facts := _told(one, cell))],
        "profile": _profile(cell),
        "sustained": sustained_plot(cell),
        "scatter": scatter(processes, None if counted is None else counted.p50),
        "histogram": histogram(processes),
        "samples_note": samples_note,
        "processes": processes,
        "process_facts": _process_facts(processes),
        "raw": [_raw(p) for p in processes] if original is None else [],
        "settings": () if m is None else setting_rows(m.settings),
        "spec": _spec(cell),
    }


def _told(one: PassResult, cell: CellRecord) -> Facts:
    return tuple((name or "its parts", said) for name, said in one.told(cell))


def _profile(cell: CellRecord) -> str:
    found = profile_of(cell)
    return "" if isinstance(found, str) else "\n".join(written(found, cell.model, "text"))


def _figures(section: Section, cell: CellRecord, notes: Footnotes) -> tuple[tuple[Metric, Figure], ...]:
    if cell.measurement is None:
        return ()
    return tuple((metric, figure(metric, cell, notes)) for metric in in_section(section))


def _stages(cell: CellRecord, notes: Footnotes) -> tuple[tuple[str, str, Figure, Figure], ...]:
    """Return name, help, cold and warm figure of each stage of the init; nothing where there are none."""
    m = cell.measurement
    if m is None or (m.init.cold is None and m.init.warm is None):
        return ()
    pairs = {**stage_pairs(), "processes": count_pair()}
    return tuple(
        (name, cold.help, figure(cold, cell, notes), figure(warm, cell, notes))
        for name, (cold, warm) in pairs.items()
    )


def _spread(m: Measurement) -> Facts:
    """Return the level of p50's interval, the variation of each level, and where to repeat more."""
    found: list[tuple[str, str]] = []
    for name, said in spread_lines(m):
        # A line without a name has the choices of the tuning in the line above.
        found.append((name, said) if name else ("its choices", said.removeprefix("choices: ")))
    return tuple(found)


def _process_facts(processes: Sequence[ProcessSamples]) -> Rows:
    names = sorted({name for p in processes for name in p.facts})
    return tuple((name, tuple(p.facts.get(name, text.NOTHING) for p in processes)) for name in names)


def _raw(process: ProcessSamples) -> tuple[str, Rows, int]:
    """Return a heading, rows of (number of the first sample, samples in ms), and how many are left out."""
    shown = process.invoke_ns[:_RAW_LIMIT]
    rows = (*_raw_rows(process.warmup_ns[:_RAW_LIMIT], "warm-up "), *_raw_rows(shown, ""))
    return f"{process_name(process)}, {process.cache} caches", rows, len(process.invoke_ns) - len(shown)


def _raw_rows(samples_ns: Sequence[int], prefix: str) -> Rows:
    return tuple(
        (f"{prefix}{start}", tuple(text.sample(ns) for ns in samples_ns[start : start + _RAW_PER_ROW]))
        for start in range(0, len(samples_ns), _RAW_PER_ROW)
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
