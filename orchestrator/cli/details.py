"""Writes one cell in full, as text for `farm show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.wire.measurement import Measurement, ProcessSamples
from orchestrator.results import format as text
from orchestrator.results.fallbacks import grouped
from orchestrator.results.init_stages import init_lines
from orchestrator.results.metrics import in_section
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import MIN_BLOCKS_FOR_VERDICT, Verdict, ratio_verdict, stored_ratio
from orchestrator.results.spread import spread_lines
from orchestrator.results.sustained import sustained_lines
from orchestrator.results.throughput import throughput_line

_SHOWN_SAMPLES = 8
"""Samples of a process on its line, enough to see their scale; `farm show --json` has all of them."""

_SHOWN_LOG_LINES = 20
"""Lines of a failed attempt's log, from its end, where the cause is; `farm logs` shows all of it."""

_NO_VERDICT: dict[Verdict, str] = {
    "few": f"no verdict below {MIN_BLOCKS_FOR_VERDICT} blocks",
    "doubtful": "no verdict over a suspect or invalid result",
}
"""What is said of a ratio that has no verdict."""


def cell_text(cell: CellRecord, processes: Sequence[ProcessSamples]) -> str:
    """Write blocks of `name  value` lines; the latency of a wrong output is not shown."""
    blocks = [_head(cell)]
    if cell.measurement is not None:
        blocks += [_figures(cell), _judgement(cell, cell.measurement)]
    blocks += [_samples(processes), _attempts(cell)]
    blocks += [_pairs("conditions", cell.conditions), _pairs("versions", cell.versions)]
    blocks.append(_pairs("recorded", cell.facts))
    return "\n\n".join("\n".join(block) for block in (list(b) for b in blocks) if block)


def _head(cell: CellRecord) -> Iterator[str]:
    yield _line("cell", cell.cell_id)
    yield _line("campaign", f"{cell.campaign} ({cell.campaign_id})")
    file = (
        f"{text.byte_count(cell.model_bytes)}  sha256 {cell.model_sha256}" if cell.model_sha256 else "no file"
    )
    yield _line("model", f"{cell.model}  {file}")
    options = ", ".join(f"{key}={value}" for key, value in cell.delegate_options.items())
    yield _line("delegate", f"{cell.delegate}  kind {cell.delegate_kind}{'  ' + options if options else ''}")
    yield _line("device", f"{cell.device}  {cell.device_name}")
    yield _line("level", cell.level)
    yield _line("status", cell.status)
    if cell.reason is not None:
        yield _line("reason", f"{cell.reason.code}: {cell.reason.text}")
    if cell.reused_from is not None:
        yield _line("reused from", f"cell {cell.reused_from}")


def _figures(cell: CellRecord) -> Iterator[str]:
    metrics = in_section("latency", "resources", "memory")
    if cell.struck_out:
        yield _line("latency", "struck out: the output is wrong")
        metrics = tuple(metric for metric in metrics if not metric.void_if_wrong)
    for metric in metrics:
        yield _line(metric.label, metric.full_text(cell))
    yield from (_line(name, said) for name, said in init_lines(cell))
    if (counted := throughput_line(cell)) is not None:
        yield _line("throughput", counted)
    yield from (_line(name, said) for name, said in sustained_lines(cell))
    if cell.measurement is not None:
        yield from (_line(name, said) for name, said in spread_lines(cell.measurement))
    ratio = stored_ratio(cell)
    if ratio is not None:
        interval = "" if ratio.ci95 is None else f"  [{text.ratio_interval(ratio.ci95)}]"
        blocks = f"{ratio.blocks} block{'' if ratio.blocks == 1 else 's'}, seed {ratio.seed}"
        verdict = ratio_verdict(ratio, cell)
        said = _NO_VERDICT.get(verdict, verdict)
        yield _line("speed-up", f"{text.ratio(ratio.median)}{interval}  over {ratio.against}")
        yield _line("", f"{said}; paired, {blocks}")


def _judgement(cell: CellRecord, m: Measurement) -> Iterator[str]:
    a = m.accuracy
    margin = "" if a.verdict is None or a.margin is None else f" {a.margin:.2%}".replace("%", " %")
    yield _line("accuracy", f"{a.verdict or 'not judged'}{margin}  {a.rule or a.note}")
    if a.reference is not None:
        figures = ", ".join(f"{metric.label} {metric.short_text(cell)}" for metric in in_section("output"))
        yield _line("against", f"{a.reference}: {figures}")
    if m.labelled is not None:
        yield _line("labelled data", text.labelled(m.labelled))
    if m.delegation is not None:
        d = m.delegation
        counts = f"{d.delegated_ops} of {d.total_ops} operators in {d.partitions} partition(s)"
        yield _line("delegation", f"{d.status}: {counts}")
        for group in grouped(d.fallbacks):
            yield _line("", f"{group.named}: {group.reason}")
            if group.option:
                yield _line("", f"  another option of the delegate: {group.option}")
    if m.trust is not None:
        yield _line("trust", m.trust.verdict)
        yield from (_line("", reason) for reason in m.trust.reasons)
        yield _line("seen", ", ".join(m.trust.seen))
        yield from (_line("not seen", text) for text in m.trust.unseen)
    for key, value in m.settings.items():
        yield _line(f"set {key}", value)
    for warning in m.warnings:
        yield _line("warning", warning)


def _samples(processes: Sequence[ProcessSamples]) -> Iterator[str]:
    for process in processes:
        first = ", ".join(text.sample(value) for value in process.invoke_ns[:_SHOWN_SAMPLES])
        more = ", ..." if len(process.invoke_ns) > _SHOWN_SAMPLES else ""
        yield _line(
            f"process {process.index + 1}",
            f"{process.cache}, {len(process.invoke_ns)} samples in ms: {first}{more}",
        )


def _attempts(cell: CellRecord) -> Iterator[str]:
    for attempt in cell.attempts:
        reason = "" if attempt.reason is None else f"  {attempt.reason.code}: {attempt.reason.text}"
        yield _line(f"attempt {attempt.number}", f"{attempt.state}  {text.moment(attempt.ended_at)}{reason}")
        if attempt.log_tail and attempt.state == "failed":
            yield from (_line("", line) for line in attempt.log_tail.splitlines()[-_SHOWN_LOG_LINES:])


def _pairs(title: str, values: dict[str, str]) -> Iterator[str]:
    if values:
        yield title
        yield from (_line(f"  {key}", value) for key, value in sorted(values.items()))


def _line(name: str, value: str) -> str:
    return f"{name:<16}  {value}".rstrip()
