"""Writes what a model file is, as `farm model info` says it, for the model's page."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.results import format as text
from orchestrator.results.records import ModelOrigin
from orchestrator.site.pages import Facts
from runtime.model.facts import ModelFacts, Port

_NAMED_OPERATORS = 12
"""Operators that are named with their counts, the most frequent first: two lines of a page. The others are
counted, and `farm model info` names them."""


def file_facts(found: ModelFacts | None) -> Facts:
    """Return the facts of a file; none if the farm does not have it."""
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
    """Return the source of a model and its licence; nothing if the campaign does not state them."""
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
    return "\n".join(_port(port) for port in ports)


def _port(port: Port) -> str:
    shape = ", ".join("?" if size < 0 else str(size) for size in port.signature)
    grid = f", {port.quantization}" if port.quantization else ""
    return f"{text.short_name(port.name)}: {port.type} [{shape}]{grid}"
