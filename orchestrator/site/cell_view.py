"""A cell record as a table shows it: number or reason, badges, bar."""

from __future__ import annotations

from agent.wire.messages import Delegation, Measurement
from orchestrator.results import format as text
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import counted_latency, speedup
from orchestrator.site import links
from orchestrator.site.pages import (
    Badge,
    CellView,
    DelegationView,
    Facts,
    FallbackRow,
    Figure,
    IntervalBar,
    StatusView,
)

_STATES = {
    "done": ("●", "good"),
    "failed": ("✗", "bad"),
    "unsupported": ("⊘", "warn"),
    "cancelled": (text.EN_DASH, "quiet"),
    "queued": ("…", "quiet"),
    "dispatched": ("…", "quiet"),
    "running": ("▸", "quiet"),
}
_VERDICTS = {"pass": ("✓", "pass", "good"), "fail": ("✗", "fail", "bad"), None: ("○", "not judged", "warn")}
_DELEGATION_TONES = {"full": "good", "partial": "warn", "none": "bad"}


def delegate_name(delegate: str) -> str:
    """A delegate's name, short enough for a heading."""
    return text.short_name(delegate, 40)


def device_id(device: str) -> str:
    """A device's id, short enough for a heading; `-` is no device."""
    return "no device" if device == "-" else text.short_name(device, 48)


def column_name(delegate: str, device: str) -> str:
    """`gpu @ host/opencl-0`."""
    return f"{delegate_name(delegate)} @ {device_id(device)}"


def status_view(state: str, code: str = "", reason: str = "") -> StatusView:
    """A state as sign, word and tone."""
    sign, tone = _STATES.get(state, ("?", "quiet"))
    return StatusView(sign, state, tone, code, reason)


def cell_status(cell: CellRecord) -> StatusView:
    """The state of a cell with its reason; the reason `completed` says nothing and is left out."""
    if cell.reason is None or cell.reason.code == "completed":
        return status_view(cell.status)
    return status_view(cell.status, cell.reason.code.value, cell.reason.text)


def delegation_view(delegation: Delegation | None) -> DelegationView | None:
    """The badge n/m and every fallback."""
    if delegation is None:
        return None
    return DelegationView(
        text=f"{delegation.delegated_ops}/{delegation.total_ops}",
        status=delegation.status,
        tone=_DELEGATION_TONES[delegation.status],
        partitions=delegation.partitions,
        fallbacks=tuple(FallbackRow(f.index, f.op, f.reason) for f in delegation.fallbacks),
    )


def accuracy_facts(measurement: Measurement) -> Facts:
    """Every figure of the comparison with the reference, and what the labelled data says."""
    accuracy, score = measurement.accuracy, measurement.labelled
    facts = (
        ("verdict", accuracy.verdict or "not judged"),
        ("rule", accuracy.rule),
        ("note", accuracy.note),
        ("reference", accuracy.reference or "none"),
        (f"max |y {text.MINUS} r|", text.error(accuracy.max_abs)),
        (f"‖y {text.MINUS} r‖ / ‖r‖", text.error(accuracy.rel_l2)),
        ("cosine(y, r)", text.cosine(accuracy.cosine)),
        ("labelled data", "" if score is None else text.labelled(score)),
    )
    return tuple((name, value) for name, value in facts if value)


def accuracy_badge(measurement: Measurement) -> Badge:
    """Verdict as sign and word, the figures as details. Too few right answers are a wrong output, too."""
    score = measurement.labelled
    failed = score is not None and score.verdict == "fail"
    sign, word, tone = _VERDICTS["fail" if failed else measurement.accuracy.verdict]
    return Badge(sign, word, tone, accuracy_facts(measurement))


def cell_view(cell: CellRecord, baseline: CellRecord | None, bar: IntervalBar | None = None) -> CellView:
    """What a table shows of a cell; `baseline` is the cell its speed-up is taken over."""
    m = cell.measurement
    counted = counted_latency(cell)
    p50 = None if m is None else m.latency_ms.p50
    return CellView(
        href=links.cell_page(cell.cell_id),
        column=column_name(cell.delegate, cell.device),
        delegate=delegate_name(cell.delegate),
        device=device_id(cell.device),
        status=cell_status(cell),
        p50=None if p50 is None else text.milliseconds(p50),
        unit="ms",
        interval=None if counted is None or counted.ci95 is None else text.interval(counted.ci95),
        why_no_p50="" if m is None else m.latency_ms.missing.get("p50", ""),
        struck_out=p50 is not None and counted is None,
        bar=bar,
        speedup=speedup(cell, baseline),
        is_baseline=baseline is not None and baseline.cell_id == cell.cell_id,
        delegation=None if m is None else delegation_view(m.delegation),
        accuracy=None if m is None else accuracy_badge(m),
        memory=None if cell.memory_peak_bytes is None else text.byte_count(cell.memory_peak_bytes),
        flags=() if m is None else m.warnings,
        reused=cell.reused_from is not None,
        sort_key="" if counted is None or counted.p50 is None else repr(counted.p50),
    )


class Footnotes:
    """Collects the reasons of missing numbers; equal reasons share a mark (a, b, …, z, aa, …)."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, reason: str) -> str:
        """The mark of a reason."""
        return self._marks.setdefault(reason, _letters(len(self._marks)))

    def listed(self) -> Facts:
        """(mark, reason) in order of first use."""
        return tuple((mark, reason) for reason, mark in self._marks.items())


def _letters(number: int) -> str:
    head, tail = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("a") + tail)


def latency_figure(m: Measurement | None, name: str, notes: Footnotes) -> Figure:
    """A latency field of a measurement in ms; missing, a dash with the mark of the reason."""
    if m is None:
        return Figure(text.NOTHING)
    value = getattr(m.latency_ms, name)
    if value is not None:
        return Figure(text.interval(value) if name == "ci95" else text.milliseconds(value))
    reason = m.latency_ms.missing.get(name, "not recorded")
    return Figure(text.NOTHING, notes.mark(reason))
