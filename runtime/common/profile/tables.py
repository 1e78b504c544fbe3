"""LiteRT's three tables of a profile, which parsers of `benchmark_model`'s output read, as text and as CSV.

Node types, names and columns are LiteRT's (its `stats_calculator`): run order, the ten slowest, and the sums
by type; one block for the start, one for the runs, one for a delegate's kernels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from runtime.common.litert_statistics import Statistics
from runtime.common.profile.model import ModelProfile

_TOP: Final = 10
"""Rows of the table of the slowest nodes: LiteRT's limit."""

_NS_PER_MS: Final = 1e6
"""Nanoseconds of a millisecond, LiteRT's unit of columns."""

_NS_PER_US: Final = 1000
"""Nanoseconds of a microsecond, LiteRT's unit of totals."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A row of LiteRT's tables: every node is called once in a run, and tells no memory."""

    type: str
    name: str
    first_ns: float
    mean_ns: float


def table_lines(profile: ModelProfile, *, is_csv: bool) -> Iterator[str]:
    """Yield the tables. In CSV columns end with a comma and a space, and commas in names become tabs."""
    yield "Profiling Info for Benchmark Initialization:"
    start = [_Node(stage, stage, ns, ns) for stage, ns in profile.stages_ns.items()]
    yield from _block(start, [sum(profile.stages_ns.values())] if start else [], is_csv=is_csv)
    yield ""
    yield "Operator-wise Profiling Info for Regular Benchmark Runs:"
    nodes = [
        _Node(one.name, f"[{one.tensors}]:{one.index}", one.first_ns, one.mean_ns)
        for one in profile.operators
        if one.place != "none"
    ]
    yield from _block(nodes, profile.sums_ns, is_csv=is_csv)
    kernels = [row for row in profile.rows if row.place == "kernel"]
    if kernels:
        yield ""
        yield "Delegate internal:"
        inner = [
            _Node("DelegateOpInvoke", f"Delegate/{row.name}:{number}", row.first_ns, row.mean_ns)
            for number, row in enumerate(kernels)
        ]
        yield from _block(inner, [round(sum(row.mean_ns for row in kernels))], is_csv=is_csv)


def _block(nodes: Sequence[_Node], totals_ns: Sequence[int], *, is_csv: bool) -> Iterator[str]:
    yield from _nodes("Run Order", nodes, nodes, is_csv=is_csv)
    slowest = sorted(nodes, key=lambda node: -node.mean_ns)[:_TOP]
    yield from _nodes("Top by Computation Time", slowest, nodes, is_csv=is_csv)
    yield f"Number of nodes executed: {len(nodes)}"
    yield from _types(nodes, is_csv=is_csv)
    yield f"Timings (microseconds): {Statistics([ns // _NS_PER_US for ns in totals_ns]).line()}"
    yield "Memory (bytes): count=0"
    yield f"{len(nodes)} nodes observed"


def _banner(title: str) -> str:
    return f"{'=' * 30} {title} {'=' * 30}"


def _nodes(title: str, shown: Sequence[_Node], every: Sequence[_Node], *, is_csv: bool) -> Iterator[str]:
    total = sum(node.mean_ns for node in every)
    yield _banner(title)
    if is_csv:
        yield "node type, first, avg_ms, %, cdf%, mem KB, times called, name"
    else:
        titles = ("[node type]", "[first]", "[avg ms]", "[%]", "[cdf%]", "[mem KB]", "[times called]")
        yield f"{_fields(titles, (40, 9, 9, 8, 8, 10, 9))}\t[Name]"
    for node, done in zip(shown, accumulate(node.mean_ns for node in shown), strict=True):
        first, mean = node.first_ns / _NS_PER_MS, node.mean_ns / _NS_PER_MS
        share, cumulated = _percent(node.mean_ns, total), _percent(done, total)
        if is_csv:
            name = node.name.replace(",", "\t")
            yield f"{node.type}, {first:g}, {mean:g}, {share:g}%, {cumulated:g}%, 0, 1, {name}"
        else:
            figures = (f"{first:.3f}", f"{mean:.3f}", f"{share:7.3f}%", f"{cumulated:7.3f}%", "0.000", "1")
            yield f"{_fields((node.type, *figures), (40, 9, 9, 8, 8, 10, 9))}\t{node.name}"
    yield ""


def _types(nodes: Sequence[_Node], *, is_csv: bool) -> Iterator[str]:
    total = sum(node.mean_ns for node in nodes)
    times: dict[str, float] = {}
    counts: dict[str, int] = {}
    for node in nodes:
        times[node.type] = times.get(node.type, 0.0) + node.mean_ns
        counts[node.type] = counts.get(node.type, 0) + 1
    yield _banner("Summary by node type")
    if is_csv:
        yield "node type, count, avg_ms, avg %, cdf %, mem KB, times called"
    else:
        titles = ("[Node type]", "[count]", "[avg ms]", "[avg %]", "[cdf %]", "[mem KB]", "[times called]")
        yield _fields(titles, (40, 9, 10, 11, 11, 10, 10))
    ordered = sorted(times.items(), key=lambda item: -item[1])
    for (name, time), done in zip(ordered, accumulate(time for _, time in ordered), strict=True):
        count, mean = counts[name], time / _NS_PER_MS
        share, cumulated = _percent(time, total), _percent(done, total)
        if is_csv:
            yield f"{name}, {count}, {mean:g}, {share:g}%, {cumulated:g}%, 0, {count}"
        else:
            shares = (f"{share:10.3f}%", f"{cumulated:10.3f}%")
            texts = (name, str(count), f"{mean:.3f}", *shares, "0.000", str(count))
            yield _fields(texts, (40, 9, 10, 11, 11, 10, 10))
    yield ""


def _fields(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Return LiteRT's row: in front of each column a tab, the column at the right of its width."""
    return "".join(f"\t{text:>{width}}" for text, width in zip(texts, widths, strict=True))


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole else 0.0
