"""Builds the figures, settings and facts of a page; a missing figure has a footnote."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from orchestrator.results import format as text
from orchestrator.results import metrics
from orchestrator.results.metric import Metric
from orchestrator.results.records import CellRecord, ModelOrigin
from orchestrator.results.wording import Footnotes
from runtime.model.facts import ModelFacts, Port

Facts: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a table: its text, or a dash with the mark of the footnote that says why.

    `struck`: the number is kept as evidence, and the output it belongs to is wrong. `interval`: that of the
    figure, for the line below it, or a dash with the mark `interval_note`; empty where it never has one.
    """

    text: str
    note: str = ""
    struck: bool = False
    interval: str = ""
    interval_note: str = ""


def figure(metric: Metric, cell: CellRecord, notes: Footnotes) -> Figure:
    """Return a metric of a cell; if it is missing, a dash with the mark of the reason."""
    m = cell.measurement
    if m is None:
        return Figure(text.NOTHING)
    value = metric.read(cell)
    if value is None:
        return Figure(text.NOTHING, notes.mark(metric.why_none(m)))
    return Figure(metric.text(value), struck=metric.void_if_wrong and cell.struck_out)


def with_interval(metric: Metric, cell: CellRecord, notes: Footnotes) -> Figure:
    """Return a metric of a cell together with its interval, if the registry has one for it.

    A missing interval is a dash with its mark; below a missing figure there is none.
    """
    found = figure(metric, cell, notes)
    own = next((one for one in metrics.METRICS if one.interval_of == metric.key), None)
    if own is None or metric.read(cell) is None:
        return found
    interval = figure(own, cell, notes)
    return replace(found, interval=interval.text, interval_note=interval.note)


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> Facts:
    """Return each field that differs, with `old → new`; `absent` is one that only the other has."""
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return tuple((name, f"{old.get(name, 'absent')} → {new.get(name, 'absent')}") for name in names)


def setting_rows(settings: Mapping[str, str]) -> Facts:
    """Sorted settings; one that holds a JSON object is shown field by field."""
    rows: list[tuple[str, str]] = []
    for name, value in sorted(settings.items()):
        fields = [(f"{name}: {key}", str(entry)) for key, entry in json_object(value).items()]
        rows += fields or [(name, value)]
    return tuple(rows)


def json_object(value: str) -> dict[str, object]:
    """Parse the JSON object in a text; empty for any other text."""
    try:
        loaded = json.loads(value)
    except (ValueError, RecursionError):
        # The text is an agent's: one that nests too deep is shown as it is.
        return {}
    return loaded if isinstance(loaded, dict) else {}


_NAMED_OPERATORS = 12
"""Operators that are named with their counts, the most frequent first: two lines of a page. The others are
counted, and `farm model info` names them."""


def file_facts(found: ModelFacts | None) -> Facts:
    """Return the facts of a file; none where the farm does not have it."""
    if found is None:
        return ()
    operators = sum(one.count for one in found.operators)
    rows = (
        ("kind", found.kind),
        ("multiply-accumulates", f"{found.macs / 1e6:,.1f} million" if found.macs else ""),
        ("parameters", text.count(found.parameters)),
        ("weights", text.byte_count(found.weight_bytes)),
        ("operators", f"{text.count(operators)}: {_operators(found)}" if operators else ""),
        ("inputs", _ports(found.inputs)),
        ("outputs", _ports(found.outputs)),
        ("signatures", ", ".join(one.key for one in found.signatures)),
        ("metadata", ", ".join(found.metadata)),
        ("description", found.description),
    )
    return tuple((name, value) for name, value in rows if value)


def origin_facts(found: ModelOrigin | None) -> Facts:
    """Return the source of a model and its licence; nothing where the campaign does not say."""
    if found is None:
        return ()
    return (("source", found.source), ("licence", found.licence or "not known"))


def _operators(found: ModelFacts) -> str:
    counts: dict[str, int] = {}
    for one in found.operators:
        counts[one.name] = counts.get(one.name, 0) + one.count
    named = [f"{count} {name}" for name, count in list(counts.items())[:_NAMED_OPERATORS]]
    more = len(counts) - len(named)
    return ", ".join(named) + (f" and {more} more kinds" if more else "")


def _ports(ports: Sequence[Port]) -> str:
    return "\n".join(map(_port, ports))


def _port(port: Port) -> str:
    shape = ", ".join("?" if size < 0 else str(size) for size in port.signature)
    grid = f", {port.quantization}" if port.quantization else ""
    return f"{text.short_name(port.name)}: {port.type} [{shape}]{grid}"
