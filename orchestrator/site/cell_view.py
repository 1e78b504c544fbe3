"""Turns a cell record into its view in a table: number or reason, badges, bar.

A `tone` is a word for the style sheet (bad, quiet, the tones of a speed-up); no meaning depends on it alone.
"""

from dataclasses import dataclass
from types import SimpleNamespace as View

from agent.wire.measurement import Measurement
from orchestrator.results import format as text
from orchestrator.results import metrics, speedups, wording
from orchestrator.results.comparison import accuracy_text
from orchestrator.results.grading import grade_of, p50_grade
from orchestrator.results.metrics import CI95, P50, in_section, leading
from orchestrator.results.records import AttemptRecord, CellRecord, ComparedCell, void_reason
from orchestrator.site import links
from orchestrator.site.figures import Facts

_DELEGATE_CHARACTERS = 40
"""Characters of a delegate's name in a heading, as many as a column of the matrix holds on two lines."""

_DEVICE_CHARACTERS = 48
"""Characters of a device's id, which has its host's name in front; in smaller type than a delegate's."""

_REASON_CHARACTERS = 100
"""Characters of the first line of a reason that a page holds in a table. The column cuts what does not fit; a
longer line would only make the page larger."""

_STATES = {
    "done": ("●", "quiet"),
    "failed": ("✗", "bad"),
    "unsupported": ("⊘", "quiet"),
    "cancelled": (text.EN_DASH, "quiet"),
    "queued": ("…", "quiet"),
    "dispatched": ("…", "quiet"),
    "running": ("▸", "quiet"),
}
_VERDICTS = {"pass": ("✓", "quiet"), "fail": ("✗", "bad"), None: ("○", "quiet")}
_TONES: dict[speedups.Verdict, str] = {"faster": "faster", "slower": "slower", "same": "similar"}
"""The tone of a speed-up; of one without a verdict it is `unjudged`."""

_STRONG_RATIO = 1.5
"""A ratio beyond this factor, either way, gets the stronger of two tints; chosen so that a row's clear winner
stands out. The tint says no more than the number beside it."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A word with a sign, and the figures behind it."""

    sign: str
    text: str
    tone: str
    details: Facts


@dataclass(frozen=True, slots=True)
class StatusView:
    """A cell's state as sign and word, with its reason; `line` is short enough for a table."""

    sign: str
    word: str
    tone: str
    code: str
    reason: str
    line: str


_RATIO_DIGITS = 5
"""Digits of a ratio from which a mean is formed, of which two or three are shown: all 17 would be a sixth of
the home page of thousands of models."""


def delegate_name(delegate: str) -> str:
    """Return a delegate's name, short enough for a heading."""
    return text.short_name(delegate, _DELEGATE_CHARACTERS)


def device_id(device: str) -> str:
    """Return a device's id, short enough for a heading; `-` is no device."""
    return "no device" if device == "-" else text.short_name(device, _DEVICE_CHARACTERS)


def column_name(delegate: str, device: str) -> str:
    """Name a column: `gpu @ host/opencl-0`."""
    return f"{delegate_name(delegate)} @ {device_id(device)}"


def attempt_status(attempt: AttemptRecord) -> StatusView:
    """Return the state of an attempt with its reason."""
    reason = attempt.reason
    return status_view(attempt.state, *(() if reason is None else (reason.code.value, reason.text)))


def status_view(state: str, code: str = "", reason: str = "") -> StatusView:
    """Return a state as sign, word and tone."""
    sign, tone = _STATES.get(state, ("?", "quiet"))
    return StatusView(sign, state, tone, code, reason, wording.first_line(reason, _REASON_CHARACTERS))


def cell_status(cell: ComparedCell) -> StatusView:
    """Return the state of a cell with its reason; the reason `completed` adds nothing and is left out."""
    if cell.kept:
        return status_view(cell.status, reason=cell.kept)
    if cell.reason is None or cell.reason.code == "completed":
        return status_view(cell.status)
    return status_view(cell.status, cell.reason.code.value, cell.reason.text)


def accuracy_facts(cell: CellRecord, measurement: Measurement) -> Facts:
    """Return the verdict with every figure behind it, and the score on labelled data."""
    accuracy, score = measurement.accuracy, measurement.labelled
    facts = (
        ("verdict", accuracy.verdict or "not judged"),
        ("rule", accuracy.rule),
        ("note", accuracy.note),
        ("reference", accuracy.reference or "none"),
        *((metric.label, metric.short_text(cell)) for metric in in_section("output")),
        ("labelled data", "" if score is None else text.labelled(score)),
    )
    return tuple((name, value) for name, value in facts if value)


def accuracy_badge(cell: CellRecord, measurement: Measurement) -> Badge:
    """Verdict as sign and word, the figures as details. Too few right answers are a wrong output, too."""
    score = measurement.labelled
    failed = score is not None and score.verdict == "fail"
    sign, tone = _VERDICTS["fail" if failed else measurement.accuracy.verdict]
    word = "fail" if failed else accuracy_text(measurement)
    return Badge(sign, word, tone, accuracy_facts(cell, measurement))


def grade_badge(cell: CellRecord) -> Badge | None:
    """Return the grade with its one number and its evidence; None if nothing counts."""
    graded, own, m = grade_of(cell), p50_grade(cell), cell.measurement
    if graded is None or m is None:
        return None
    if cell.imported is not None:
        return Badge("", "imported", "quiet", (("not compared", graded.reason), ("file", cell.imported.file)))
    evidence = [("grade", wording.grade_text(graded)), ("measured", wording.measured_text(m))]
    if own is not None and own.grade != "void" and speedups.stored_ratio(cell) is not None:
        evidence.insert(1, ("the p50 alone", wording.grade_text(own)))
    if (quality := m.quality) is not None:
        evidence += [("void", reason) for reason in quality.void]
        evidence += [("observed", fact) for fact in quality.facts]
        evidence.append(("watched", ", ".join(quality.seen)))
        evidence += [("not watched", why) for why in quality.unseen]
    tone = "bad" if graded.grade == "void" else "quiet"
    return Badge(
        "", wording.short_grade(graded), tone, tuple((name, said) for name, said in evidence if said)
    )


def _speedup_view(found: speedups.SpeedUp | None) -> View | None:
    """Return a speed-up: `word` says what the colour says; `interval` and `blocks` are empty for one that is
    not paired; from `value` the script forms the mean of the rows that are shown.
    """
    if found is None or found.verdict == "void":
        return None
    strong = found.verdict in ("faster", "slower") and max(found.ratio, 1 / found.ratio) >= _STRONG_RATIO
    tone = _TONES.get(found.verdict, "unjudged")
    word = wording.WORDS[found.verdict]
    return View(
        text=wording.ratio_text(found).replace("x", text.TIMES, 1),
        word=f"{word}; {more}" if (more := wording.decides(found)) else word,
        sign=wording.SIGNS[found.verdict],
        tone=f"{tone}-much" if strong else tone,
        against=text.short_name(found.against),
        interval="" if found.ci95 is None else text.ratio_interval(found.ci95),
        blocks=text.counted(found.blocks, "block") if found.paired else "",
        value=f"{found.ratio:.{_RATIO_DIGITS}g}",
    )


def brief_view(cell: ComparedCell, baseline: ComparedCell | None, href: str) -> View:
    """Return the view of a cell in a list: by what comparisons read of it, with the names of `cell_view`.

    `outputs`: sign and word of the verdict on its outputs, empty where it has none to judge.
    """
    m = cell.measurement
    p50 = None if m is None else m.latency_ms.p50
    interval = None if m is None or cell.struck_out else m.latency_ms.ci95
    verdict = "fail" if cell.struck_out else None if m is None else m.accuracy.verdict
    counted = speedups.counted_times(cell) is not None
    return View(
        record=cell,
        href=href,
        column=column_name(cell.delegate, cell.device),
        delegate=delegate_name(cell.delegate),
        device=device_id(cell.device),
        status=cell_status(cell),
        p50=None if p50 is None else P50.text(p50),
        interval=None if interval is None else CI95.text(interval),
        struck_out=p50 is not None and not counted,
        speedup=_speedup_view(speedups.speedup(cell, baseline)),
        is_baseline=baseline is not None and baseline.cell_id == cell.cell_id,
        outputs=None
        if m is None
        else (_VERDICTS[verdict][0], verdict or "not judged", _VERDICTS[verdict][1]),
        void=(void_reason(cell) or "") if counted else "",
        sort_key=repr(p50) if counted and p50 else "",
    )


def without_record(view: View) -> View:
    """Return a view without the record that it is of, as a summary keeps it."""
    return View(**vars(view) | {"record": None})


def cell_view(cell: CellRecord, baseline: ComparedCell | None, bar: View | None = None) -> View:
    """Return the view of a cell in a table; `baseline` is the cell over which its speed-up is taken.

    `p50` is None where there is no number; `void` says why the figures are never compared, or is empty.
    """
    m = cell.measurement
    counted = speedups.counted_latency(cell)
    lead = leading(cell)
    time = lead.read(cell)
    said = "" if lead is P50 else f"{lead.label} "
    return View(
        record=cell,
        href=links.cell_page(cell.cell_id),
        column=column_name(cell.delegate, cell.device),
        delegate=delegate_name(cell.delegate),
        device=device_id(cell.device),
        status=cell_status(cell),
        p50=None if time is None else said + lead.text(time),
        unit=P50.unit,
        interval=None if counted is None or counted.ci95 is None else CI95.text(counted.ci95),
        why_no_p50="" if m is None or time is not None else P50.why_none(m),
        struck_out=time is not None and counted is None,
        bar=bar,
        speedup=_speedup_view(speedups.speedup(cell, baseline)),
        is_baseline=baseline is not None and baseline.cell_id == cell.cell_id,
        delegation=None if m is None else m.delegation,
        accuracy=None if m is None else accuracy_badge(cell, m),
        chips=[m for m in metrics.METRICS if m.chip and m.read(cell) is not None],
        grade=grade_badge(cell),
        void="" if counted is None or cell.imported is not None else void_reason(cell) or "",
        reused=cell.reused_from is not None,
        repeats=False,
        # With every digit: rows that show the same three digits are sorted, too.
        sort_key="" if counted is None or counted.p50 is None else repr(counted.p50),
    )
