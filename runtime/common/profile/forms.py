"""The forms of a profile: text of at most 100 columns, LiteRT's three tables, and a flame graph.

The tables are as parsers of `benchmark_model`'s output read them, as text and as CSV. Node types, names and
columns are LiteRT's (its `stats_calculator`): run order, the ten slowest, and the sums by type; one block for
the start, one for the runs, one for a delegate's kernels. A frame of the flame graph is the run, a step, a
kernel or an operator; its page is `flame.html`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate, groupby
from textwrap import wrap
from typing import Any, Final

from runtime.common.litert_statistics import Statistics
from runtime.common.profile.beside import LiteRtTimes
from runtime.common.profile.model import ModelProfile, OperatorTime, ProfileRow

WIDTH: Final = 100
"""Columns of the text, as of the plan's. Wider breaks in a window of half a screen."""

_LISTED: Final = 10
"""Operators that are listed, the slowest first, as many as LiteRT's tables list; `--json` has all."""

_ROW = "{:>4}  {:<22} {:<24} {:>10} {:>6} {:>8} {:>4} {:>7} {:>4}"
"""A row: step, operator, kernel, microseconds, percent, GFLOP/s and GB/s, each with its share of the peak."""


def text_lines(profile: ModelProfile, heading: str, litert: LiteRtTimes | str = "") -> Iterator[str]:
    """Yield the whole text, line by line."""
    yield from wrap(f"{heading}; medians of {profile.rounds} rounds", WIDTH)
    yield from wrap(profile.caution, WIDTH)
    yield from wrap(_peaks_text(profile), WIDTH)
    if profile.rows:
        yield ""
        yield _ROW.format("step", "operator", "kernel", "us", "%", "GFLOP/s", "peak", "GB/s", "peak")
        for row in profile.rows:
            yield _row_text(profile, row)
    yield from _operators(profile, None if isinstance(litert, str) else litert)
    yield from wrap(_litert_text(profile, litert), WIDTH)
    yield ""
    yield f"{'type':<40} {'count':>6} {'us':>12} {'%':>7}"
    for one in profile.types:
        yield f"{_cut(one.name, 40):<40} {one.count:>6} {one.time_ns / 1e3:>12.1f} {100 * one.share:>7.2f}"


def _peaks_text(profile: ModelProfile) -> str:
    if profile.peaks is None:
        return f"The device's peaks are not known: {profile.no_peaks}."
    return (
        f"Measured peaks of the device with these threads: {profile.peaks.gflops:.1f} GFLOP/s in fp32, "
        f"{profile.peaks.gigabytes:.1f} GB/s from and to memory; what caches serve is beyond that."
    )


def _row_text(profile: ModelProfile, row: ProfileRow) -> str:
    peaks = profile.peaks
    # A slice, as a kernel may be of no operator.
    first = next((one for one in profile.operators if row.operators[:1] == (one.index,)), None)
    name = "" if first is None else f"{first.index} {first.name}"
    more = f"+{len(row.operators) - 1}" if len(row.operators) > 1 else ""
    kernel = {"kernel": row.name, "cpu": "(on the CPU)", "partition": "(tells no kernels)"}
    return _ROW.format(
        row.step,
        _cut(name, 22 - len(more)) + more,
        _cut(kernel[row.place], 24),
        f"{row.time_ns / 1e3:.1f}",
        f"{100 * row.share:.2f}",
        f"{row.gflops:.2f}" if row.flops else "-",
        _of_peak(row.gflops, None if peaks is None else peaks.gflops),
        f"{row.gigabytes:.2f}" if row.bytes else "-",
        _of_peak(row.gigabytes, None if peaks is None else peaks.gigabytes),
    )


def _of_peak(rate: float, peak: float | None) -> str:
    return f"{100 * rate / peak:.0f}%" if rate and peak else "-"


def _litert_text(profile: ModelProfile, litert: LiteRtTimes | str) -> str:
    if isinstance(litert, str):
        return f"LiteRT's own times are missing: {litert}." if litert else ""
    known = len(litert.by_operator(profile.operators))
    threads = f"{litert.threads} thread{'' if litert.threads == 1 else 's'}"
    return (
        f"LiteRT {litert.version} with XNNPACK, {threads}, by its own profiler: a run takes "
        f"{litert.run_ns / 1e6:.3f} ms. Its {len(litert.nodes)} nodes tell the time of {known} operators; of "
        "the others (-), XNNPACK fused or added some of the same kind."
    )


def _operators(profile: ModelProfile, litert: LiteRtTimes | None) -> Iterator[str]:
    slowest = sorted(profile.operators, key=lambda one: -one.time_ns)[:_LISTED]
    yield ""
    theirs = {} if litert is None else litert.by_operator(profile.operators)
    head = "" if litert is None else f" {'LiteRT us':>12}"
    yield f"{'operator':<40} {'where':>9} {'us':>12} {'%':>7}{head}"
    for one in slowest:
        name = f"{one.index} {one.name}{' ~' if one.is_divided else ''}"
        known = theirs.get(one.index)
        more = head and f" {'-' if known is None else f'{known / 1e3:.1f}':>12}"
        yield f"{_cut(name, 40):<40} {one.place:>9} {one.time_ns / 1e3:>12.1f} {100 * one.share:>7.2f}{more}"
    if any(one.is_divided for one in slowest):
        yield "~ the time of a kernel of several operators is divided by their estimated work"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


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
    # What LiteRT prints where nothing was counted; parsers look for the line.
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


def flame_page(profile: ModelProfile, title: str) -> str:
    """Return the page."""
    text = files("runtime.common.profile").joinpath("flame.html").read_text(encoding="utf-8")
    # No name in a model may end the element that holds the data.
    data = json.dumps({"title": title, "root": frames(profile)}).replace("<", "\\u003c")
    return text.replace("FRAMES", data)


def frames(profile: ModelProfile) -> dict[str, Any]:
    """Return the outermost frame; a frame holds the frames of its parts and is as long as all of these."""
    operators = {one.index: one for one in profile.operators}
    if profile.rows:
        steps = groupby(profile.rows, key=lambda row: row.step)
        inner = [_step(number, list(rows), operators) for number, rows in steps]
    else:
        timed = [one for one in profile.operators if one.place != "none"]
        inner = [
            _frame("on the CPU" if place == "cpu" else "delegated", "", map(_operator, ones))
            for place, ones in groupby(timed, key=lambda one: one.place)
        ]
    return _frame("one run", profile.caution, inner)


def _step(number: int, rows: list[ProfileRow], operators: Mapping[int, OperatorTime]) -> dict[str, Any]:
    inner = [_row(row, operators) for row in rows]
    return inner[0] if rows[0].place == "cpu" else _frame(f"step {number}: delegated", "", inner)


def _row(row: ProfileRow, operators: Mapping[int, OperatorTime]) -> dict[str, Any]:
    speed = ", ".join(
        f"{figure:.2f} {unit}"
        for figure, unit in ((row.gflops, "GFLOP/s"), (row.gigabytes, "GB/s"))
        if figure
    )
    about = "; ".join(filter(None, (row.label, speed)))
    ones = [operators[index] for index in row.operators if index in operators]
    whole = sum(one.time_ns for one in ones)
    if row.place == "cpu" or not whole:
        name = f"{ones[0].index} {ones[0].name}" if row.place == "cpu" and ones else row.name
        return {"name": name, "ns": row.time_ns, "about": about, "frames": []}
    # Of an operator of several kernels, the part that is this kernel's.
    inner = [_operator(one) | {"ns": row.time_ns * one.time_ns / whole} for one in ones]
    return _frame(row.name, about, inner)


def _operator(one: OperatorTime) -> dict[str, Any]:
    return {"name": f"{one.index} {one.name}", "ns": one.time_ns, "about": one.tensors, "frames": []}


def _frame(name: str, about: str, inner: Iterable[dict[str, Any]]) -> dict[str, Any]:
    held = list(inner)
    return {"name": name, "ns": sum(one["ns"] for one in held), "about": about, "frames": held}
