"""An evaluation as text, as JSON and as a page."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from typing import Any, Final

from runtime.measure.accuracy.intervals import Interval
from runtime.measure.accuracy.scores import Difference, Score
from runtime.tools.model_eval.variants import Found, front

_SHOWN: Final = 10
"""Changed answers that are printed. Chosen to keep the listing on a screen; the file of changes has all."""

_MIB: Final = 2**20
"""Bytes of a MiB."""

_COLUMNS: Final = ("variant", "score", "95 % interval", "median ms", "file MiB", "memory MiB", "front")


def lines(found: Sequence[Found], max_drop: float | None) -> Iterator[str]:
    """Yield the table of variants, their further scores, and the differences from the first."""
    rows = [_COLUMNS, *_rows(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for one in found:
        if len(one.scores) > 1:
            yield f"{one.variant.name}: " + ", ".join(f"{s.metric} {s.value:.4g}" for s in one.scores[1:])
        if one.why_not:
            yield f"{one.variant.name}: failed: {one.why_not}"
    for one in found:
        if one.against is not None:
            yield from _difference_lines(one, one.against, found[0].variant.name, max_drop)
    kept = [str(one.passed.answers) for one in found if one.passed is not None]
    if kept:
        yield f"answers: {', '.join(kept)}"


def document(found: Sequence[Found], max_drop: float | None) -> dict[str, Any]:
    """Return all of it for JSON."""
    best = front(found)
    return {
        "max_drop": max_drop,
        "variants": [
            {
                "name": one.variant.name,
                "file": str(one.variant.file),
                "delegate": one.variant.setting.kind,
                "options": dict(one.variant.setting.options),
                "size_bytes": one.size_bytes,
                "failed": one.why_not or None,
                "scores": [asdict(score) for score in one.scores],
                "median_us": None if one.passed is None else one.passed.median_us,
                "memory_bytes": None if one.passed is None else one.passed.memory_bytes,
                "answers": None if one.passed is None else str(one.passed.answers),
                "on_front": one in best,
                "difference": None if one.against is None else asdict(one.against),
                "changes": None if one.changes is None else str(one.changes),
                "verdict": one.verdict,
            }
            for one in found
        ],
    }


def page(found: Sequence[Found], title: str, max_drop: float | None) -> str:
    """Return one page of HTML: the table, the front drawn over time, the differences with changed answers."""
    head = "".join(f"<th>{escape(name)}</th>" for name in _COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in _rows(found))
    parts = [f"<table><tr>{head}</tr>{body}</table>", _drawing(found)]
    for one in found:
        if one.why_not:
            parts.append(f"<p>{escape(one.variant.name)} failed: {escape(one.why_not)}</p>")
        if one.against is not None:
            told = _difference_line(one, one.against, found[0].variant.name, max_drop)
            parts.append(f"<h2>{escape(one.variant.name)}</h2><p>{escape(told)}</p>")
            changed = "".join(
                f"<tr><td>{escape(c.file)}</td><td>{escape(c.before)}</td><td>{escape(c.after)}</td></tr>"
                for c in one.against.changes
            )
            if one.against.changed > len(one.against.changes):
                parts.append(f"<p>The first; all are in {escape(str(one.changes))}.</p>")
            if changed:
                parts.append(f"<table><tr><th>sample</th><th>before</th><th>after</th></tr>{changed}</table>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font:16px system-ui;margin:2em}td,th{padding:.2em 1em;text-align:left}"
        f"circle.front{{fill:#06c}}circle{{fill:#aaa}}</style><h1>{escape(title)}</h1>{''.join(parts)}</html>\n"
    )


def _rows(found: Sequence[Found]) -> list[tuple[str, ...]]:
    best = front(found)
    made: list[tuple[str, ...]] = []
    for one in found:
        score, passed = one.score, one.passed
        made.append(
            (
                one.variant.name,
                "failed" if score is None else _score(score),
                "" if score is None else _interval(score.interval),
                "-" if passed is None or passed.median_us is None else f"{passed.median_us / 1000:.3g}",
                f"{one.size_bytes / _MIB:.3g}",
                "-" if passed is None or passed.memory_bytes is None else f"{passed.memory_bytes / _MIB:.3g}",
                "yes" if one in best else "",
            )
        )
    return made


def _score(score: Score) -> str:
    right = "" if score.right is None else f" ({score.right} of {score.samples})"
    return f"{score.metric} {score.value:.4g}{right}"


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


def _difference_lines(one: Found, against: Difference, first: str, max_drop: float | None) -> Iterator[str]:
    yield _difference_line(one, against, first, max_drop)
    for change in against.changes[:_SHOWN]:
        yield f"  {change.file}: {change.before}, then {change.after}"
    if against.changed > _SHOWN:
        yield f"  and {against.changed - _SHOWN} more: {one.changes}"


def _difference_line(one: Found, against: Difference, first: str, max_drop: float | None) -> str:
    counts = "" if against.gained is None else f", {against.gained} gained and {against.lost} lost"
    interval = "" if against.interval is None else f" [{_interval(against.interval)}]"
    verdict = "" if one.verdict is None else f"; a drop of at most {max_drop:g}: {one.verdict}"
    return (
        f"{one.variant.name} minus {first}: {against.metric} {against.value:+.4g}{interval}{counts}, "
        f"{against.changed} of {against.samples} answers changed{verdict}"
    )


def _drawing(found: Sequence[Found]) -> str:
    """Return the scores over the medians of time, the front in colour; nothing without two times."""
    known = [(one, one.passed.median_us) for one in found if one.passed and one.passed.median_us]
    if len(known) < 2:
        return ""
    best = front(found)
    slowest = max(time for _, time in known)
    values = [one.scores[0].value for one, _ in known]
    # 1 where all scores are equal, so that nothing is divided by 0.
    low, span = min(values), (max(values) - min(values)) or 1.0
    marks = []
    for (one, time), value in zip(known, values, strict=True):
        x, y = 40 + 500 * time / slowest, 240 - 200 * (value - low) / span
        kind = ' class="front"' if one in best else ""
        label = escape(f"{one.variant.name}: {value:.4g} in {time / 1000:.3g} ms")
        marks.append(f'<circle{kind} cx="{x:.0f}" cy="{y:.0f}" r="5"/>')
        marks.append(f'<text x="{x + 9:.0f}" y="{y + 5:.0f}">{label}</text>')
    return f'<svg width="900" height="280" role="img" aria-label="score over time">{"".join(marks)}</svg>'
