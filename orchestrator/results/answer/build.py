"""Builds the answer from cells: title, headline, columns, legend and footnotes."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.results.answer import entries, headline
from orchestrator.results.answer.entries import ON_CPU, Answer, Column, Key, Placed
from orchestrator.results.answer.headline import legend, noted, title_of
from orchestrator.results.format import visible
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import P50, leading
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import counted_latency
from orchestrator.results.wording import SIGNS, Footnotes, factor_text


def answer_of(cells: Sequence[CellRecord], baseline: str | None, metric: Metric = P50) -> Answer:
    """Build the answer of a campaign's cells, one of each model, delegate, device and level.

    A cell that the campaign's own rules exclude stays blank, as long as there are others. A delegate that no
    model of several runs on, for one reason, is named in its footnote: a column would take room from figures.
    Another `metric` than p50 has neither ratios nor a headline: those are of the median.
    """
    cells = [cell for cell in cells if not cell.excluded] or cells
    # The footnotes get their marks here, the worst reason first; the entries only look theirs up.
    placed, notes = Placed.of(cells, baseline), entries.footnotes(cells, metric)
    names = placed.names()
    built = [_column(key, placed, names[key], notes, metric) for key in placed.columns]
    columns, said = built, list(noted(notes))
    if len(placed.models) > 1:
        columns, said = _without_unsupported(columns, said)
    answer = Answer(
        title=title_of(cells),
        models=tuple(map(visible, placed.models)),
        columns=_with_unit(columns, metric),
        notes=tuple(said),
    )
    if metric is not P50:
        direction = f", {metric.direction}" if metric.direction else ""
        return replace(answer, sentences=((f"{metric.label}{direction}",),))
    return replace(
        answer, sentences=sentences(placed), further=entries.FURTHER, legend=tuple(legend(cells, placed))
    )


def sentences(placed: Placed) -> tuple[headline.Sentence, ...]:
    """Write the headline and what a first start costs."""
    names = {key: visible(name).removesuffix(ON_CPU) for key, name in placed.names().items()}
    medians: dict[str, list[float | None]] = {}
    starts: dict[str, list[tuple[float, float | None]]] = {}
    for key, own in placed.columns.items():
        counted = [counted_latency(own[model]) if model in own else None for model in placed.models]
        medians[names[key]] = [None if latency is None else latency.p50 for latency in counted]
        starts[names[key]] = [(one.init, one.init_warm) for one in counted if one is not None and one.init]
    if placed.contenders and placed.baseline is not None:
        ratios = {names[key]: placed.ratios_of(key) for key in placed.contenders}
        said = headline.verdicts(visible(placed.baseline), ratios)
    elif any(leading(cell) is not P50 for own in placed.columns.values() for cell in own.values()):
        # Means of other tools and medians are no rivals.
        said = ()
    else:
        said = headline.fastest(medians)
    return tuple(filter(None, (said, headline.first_starts(starts))))


def _column(key: Key, placed: Placed, heading: str, notes: Footnotes, metric: Metric) -> Column:
    own = placed.columns[key]
    shown = tuple(
        entries.entry(own[model], placed.ratios[own[model].cell_id], notes, metric) if model in own else None
        for model in placed.models
    )
    mean = placed.mean(key) if metric is P50 else None
    if mean is None:
        return Column(visible(heading), shown)
    over = "" if mean.count == len(placed.models) else f"of {mean.count}: "
    unpaired = "" if mean.paired else f"{SIGNS['unpaired']} "
    return Column(visible(heading), shown, f"{over}{unpaired}{factor_text(mean.ratio)}")


def _without_unsupported(columns: list[Column], notes: list[str]) -> tuple[list[Column], list[str]]:
    """Leave out the columns of nothing but one listed reason, whose footnote then names the delegates."""
    marks = {note.partition(" ")[0] for note in notes}
    names: dict[str, list[str]] = {}
    for column in columns:
        # `unsupported [a]`: what remains is the mark with which the footnote begins.
        mark = column.unsupported.removeprefix("unsupported ")
        if mark in marks:
            names.setdefault(mark, []).append(column.heading)
    left = [one for one in columns if one.unsupported.removeprefix("unsupported ") not in names]
    # Without any column there would be no table.
    if not left:
        return columns, notes
    said = []
    for note in notes:
        mark, _, why = note.partition(" ")
        said.append(f"{mark} {', '.join(names[mark])} unsupported: {why}" if mark in names else note)
    return left, said


def _with_unit(columns: Sequence[Column], metric: Metric) -> tuple[Column, ...]:
    """Return the columns, with the unit behind the figures of the first one."""
    if not columns or not metric.unit_in_heading:
        return tuple(columns)
    first = columns[0]
    shown = tuple(
        replace(one, time=f"{one.time} {metric.unit}") if one is not None and one.time else one
        for one in first.entries
    )
    return (replace(first, entries=shown), *columns[1:])
