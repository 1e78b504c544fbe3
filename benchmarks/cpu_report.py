"""The measurements of `cpu_runtime.py` as a table, and against the marks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, TypeAlias

from benchmarks.output import environment_lines, table
from runtime.common.statistics import geometric_mean

OURS: Final = "cpu"
REFERENCE, BUILTIN, XNNPACK = PEERS = ("litert-reference", "litert-builtin", "litert-xnnpack")
LOADED: Final = ("load_small", "load_large")
"""Models that are there for their loading alone."""

MARK_MS: Final = 5.0
"""Milliseconds of the reference kernels from which on a model counts for the marks of speed."""

OVERHEAD_MARK_US: Final = 8.0
MEMORY_FACTOR, MEMORY_SLACK_MIB = 2.0, 32.0
LOAD_FACTOR, LOAD_MIB = 3.0, 8.0
MIB: Final = 1 << 20

Row: TypeAlias = Mapping[str, Any]
"""`model`, `kind`, `operators`, and by delegate the `cells`, rows of `benchmarks.campaign`."""


def ms(row: Row, name: str) -> float | None:
    """Milliseconds of one call; None where it has none."""
    milliseconds: float | None = row["cells"].get(name, {}).get("p50_ms")
    return milliseconds


def speed(row: Row, peer: str) -> float | None:
    """Return how many times as fast as a peer ours, the baseline, is; None without a counted ratio."""
    # The farm tells the peer's speed over that of the baseline, which is ours.
    ratio = row["cells"].get(peer, {}).get("ratio")
    return None if ratio is None or ratio["verdict"] == "void" else 1.0 / ratio["median"]


def mib(row: Row, name: str, figure: str = "peak_bytes") -> float | None:
    """MiB by which the memory grows; None where it is not known."""
    size = row["cells"].get(name, {}).get(figure)
    return None if size is None else size / MIB


def overhead_us(row: Row, peer: str = REFERENCE) -> float:
    """Microseconds per operator by which ours takes longer than LiteRT's kernels; 0 where it does not."""
    fast = speed(row, peer)
    # `fast` is the peer's time over ours: so this is our time less the peer's, but from the ratio, in which
    # the state of the machine cancels, and not from two times of different moments.
    more = 0.0 if fast is None else (ms(row, OURS) or 0.0) * (1.0 - fast)
    return 1000 * max(0.0, more) / max(1, row["operators"])


def marks(rows: Sequence[Row]) -> list[str]:
    """Return a line for each mark."""
    own = [row for row in rows if row["model"] not in LOADED and ms(row, OURS) is not None]
    large = [row for row in own if (ms(row, REFERENCE) or 0.0) >= MARK_MS]
    small = [row for row in own if 0.0 < (ms(row, REFERENCE) or 0.0) < MARK_MS]
    kinds = {"float": (("float32", "fp16 weights"), "mark 5"), "integer": (("integer",), "mark 2")}
    counted = {kind for names, _ in kinds.values() for kind in names}
    kinds |= {kind: ((kind,), "no mark") for kind in sorted({row["kind"] for row in large} - counted)}
    lines = []
    for name, (of_kind, mark) in kinds.items():
        lines += _speed_marks(name, [row for row in large if row["kind"] in of_kind], mark)
    for peer in (REFERENCE, BUILTIN) if small else ():
        each_us = {row["model"]: overhead_us(row, peer) for row in small}
        lines.append(
            f"overhead per operator over {peer}, {len(small)} models below {MARK_MS:g} ms: median "
            f"{median(each_us.values()):.1f} us (mark {OVERHEAD_MARK_US:g}); above it: "
            f"{_named(each_us, (name for name in each_us if each_us[name] > OVERHEAD_MARK_US))}"
        )
    peaks = {row["model"]: mib(row, OURS) or 0.0 for row in own}
    over = [row["model"] for row in own if peaks[row["model"]] > memory_limit(row)]
    lines.append(f"peak memory beyond max(2 x LiteRT's, + 32 MiB), of {len(own)}: {_named(peaks, over)}")
    lines += _load_marks({row["model"]: row for row in rows})
    missing = [row["model"] for row in rows if ms(row, OURS) is None]
    return lines + ([f"not measured: {', '.join(missing)}"] if missing else [])


def memory_limit(row: Row) -> float:
    """MiB that ours may take, from what LiteRT's builtin kernels (else XNNPACK) take; infinite without."""
    peers = [peak for name in (BUILTIN, XNNPACK) if (peak := mib(row, name)) is not None]
    peer = peers[0] if peers else math.inf
    return max(MEMORY_FACTOR * peer, peer + MEMORY_SLACK_MIB)


def _speed_marks(name: str, rows: Sequence[Row], mark: str) -> list[str]:
    lines = []
    for peer, least in ((REFERENCE, 1.0), (BUILTIN, 1 / 1.5)):
        speeds = {row["model"]: fast for row in rows if (fast := speed(row, peer)) is not None}
        if speeds:
            said = (
                f"{name}: {geometric_mean(speeds.values()):.2f} x {peer} in geometric mean of {len(speeds)}"
            )
            below = _named(speeds, (model for model in speeds if speeds[model] < least))
            goal = mark if peer == REFERENCE else "no mark"
            lines.append(f"{said} ({goal}); below {least:.2g} x: {below}")
    return lines


def _load_marks(rows: Mapping[str, Row]) -> list[str]:
    cells = [rows[name]["cells"][OURS] for name in LOADED if name in rows]
    if len(cells) < len(LOADED) or any(cell["p50_ms"] is None for cell in cells):
        return []
    factor = cells[1]["init_warm_ms"] / cells[0]["init_warm_ms"]
    grown = mib(rows[LOADED[1]], OURS, "ready_bytes") or 0.0
    line = f"loading 250 MB: {factor:.2f} x the time of 2.5 MB (mark {LOAD_FACTOR:g}), resident memory "
    return [line + f"+{grown:.1f} MiB (mark {LOAD_MIB:g})"]


def _named(figures: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {figures[name]:.2f}" for name in names) or "none"


def page(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of the page `results/cpu_runtime.md`."""
    heads = ["model", "kind", "operators", "ours ms", "grade"]
    heads += [f"over {peer.removeprefix('litert-')}" for peer in PEERS]
    heads += ["µs per operator", *(f"MiB {name}" for name in (OURS, BUILTIN, XNNPACK))]
    return [
        "# The CPU path beside LiteRT, one thread",
        "",
        "Speed over LiteRT's kernels (above 1: ours is faster) with its 95 % interval over blocks of fresh",
        "processes. Memory: growth of the peak of resident memory from just before loading. Overhead: what",
        "an operator costs us beyond the same arithmetic done plainly: beyond the reference kernels.",
        "Written by `python -m benchmarks.cpu_runtime`.",
        "",
        *(f"- {line}" for line in marks(report["rows"])),
        "",
        *table(heads, (_cells(row) for row in report["rows"] if row["model"] not in LOADED)),
        *environment_lines(report),
    ]


def _cells(row: Row) -> list[str]:
    own = row["cells"].get(OURS, {})
    if own.get("p50_ms") is None:
        return [row["model"], row["kind"], own.get("reason") or "not measured"]
    cells = [row["model"], row["kind"], str(row["operators"]), f"{own['p50_ms']:.2f}", str(own["grade"])]
    cells += [*(_over(row, peer) for peer in PEERS), f"{overhead_us(row):.1f}"]
    peaks = (mib(row, name) for name in (OURS, BUILTIN, XNNPACK))
    return [*cells, *("-" if peak is None else f"{peak:.0f}" for peak in peaks)]


def _over(row: Row, peer: str) -> str:
    fast = speed(row, peer)
    if fast is None:
        return "-"
    # The farm's ratio is the peer's speed over ours: inverted, the ends of its interval change places.
    interval = row["cells"][peer]["ratio"]["ci95"]
    said = (
        "no interval" if interval is None else "{1:.3g} to {0:.3g}".format(*(1.0 / end for end in interval))
    )
    return f"{fast:.3g} ({said})"
