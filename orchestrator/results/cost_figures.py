"""Figures of what a run costs besides its time: resources, init and memory by stage, copies, caches."""

from collections.abc import Mapping
from typing import Any

from agent.wire.measurement import Measurement
from orchestrator.results import format as text
from orchestrator.results.metric import Better, Metric, measured, part_of, time_of
from orchestrator.results.records import CellRecord


def _transfer(name: str, label: str, meaning: str, better: Better = "lower") -> Metric:
    """Return a time of the wire's `Transfer`."""
    return time_of(f"transfer.{name}", ("transfer", name), label, "memory", meaning, better=better)


def _bytes(part: str, name: str, label: str, meaning: str) -> Metric:
    """Return a count of bytes in a part of the wire's `Measurement`: by stage, or copied in a direction."""
    key, path = f"{'memory_bytes' if part == 'memory' else part}.{name}", (part, name)
    return part_of(key, path, label, "bytes", "memory", meaning, text.byte_count)


def _power(cell: CellRecord) -> float | None:
    found = cell.measurement
    if found is None or found.energy.invoke_mj is None or not found.latency_ms.mean:
        return None
    # mJ over ms is W.
    return found.energy.invoke_mj / found.latency_ms.mean


def _init_saved(cell: CellRecord) -> float | None:
    m = cell.measurement
    if m is None or m.cache_bytes == 0 or m.latency_ms.init is None or m.latency_ms.init_warm is None:
        return None
    return m.latency_ms.init - m.latency_ms.init_warm


def _why_none_saved(m: Measurement) -> str:
    if m.cache_bytes == 0:
        return "left nothing in program caches"
    return m.latency_ms.missing.get("init_warm", "not recorded")


def _init_stages(cache: str, whose: str, meanings: Mapping[str, str]) -> tuple[Metric, ...]:
    """Return the stages of an init, and how many there were."""
    stages = (
        time_of(f"init_ms.{cache}.{stage}", ("init", cache, stage), f"{stage}, {cache}", "init", meaning)
        for stage, meaning in meanings.items()
    )
    counted = Metric(
        f"init_ms.{cache}.n",
        f"inits, {cache}",
        "1",
        "none",
        "init",
        f"Inits of {whose}, of which the stages are those of the lower median.",
        measured("init", cache, "n"),
        text.count,
        own_line=False,
    )
    return (*stages, counted)


INIT_STAGES = {
    "parse": "Part of the init: reading and checking the file.",
    "partition": "Part of the init: inferring shapes, folding constants, assigning operators to delegates.",
    "compile": "Part of the init: making what runs the operators: kernels of the CPU path, or the delegate's "
    "graph and its program, compiled or found in a cache.",
    "tune": "Part of the init: timing alternatives, or recalling what was chosen by timing before.",
    "upload": "Part of the init: allocating memory on the device, and packing and copying constants there.",
    "other": "What remains of the init: opening the device, making the delegate, and whatever no stage "
    "tells. With the stages it adds up to the init.",
}
"""Stages of an init, in their order, with what they are."""

PEAK_MEMORY = Metric(
    "memory_bytes.peak",
    "peak memory",
    "bytes",
    "lower",
    "resources",
    "Growth of the process's peak resident memory (VmHWM) from just before the model is loaded: the "
    "model, its tensors and the delegate, without the interpreter of the language. The largest of the timed "
    "processes. Memory of a discrete GPU is not in it.",
    read=lambda cell: cell.memory_peak_bytes,
    text=text.byte_count,
    why_none=lambda _: "nothing was run",
    chip=True,
)

PEAK_MEMORY_COLD = Metric(
    "memory_bytes.peak_cold",
    "peak memory, cold",
    "bytes",
    "lower",
    "resources",
    "The same of the process that finds empty caches, and compiles what the others find.",
    read=lambda cell: cell.memory_peak_cold_bytes,
    text=text.byte_count,
    why_none=lambda _: "not recorded",
)

_DIGITS = "{:.4g}".format


def _energy(key: str, label: str, unit: str, better: Better, meaning: str, **more: Any) -> Metric:
    """Return a figure of the wire's `Energy`, by default one that is missing where its counter is."""
    usual: dict[str, Any] = {
        "section": "memory",
        "help": meaning,
        "unit_in_heading": True,
        "void_if_wrong": True,
        "read": measured("energy", key),
        "text": _DIGITS,
        "why_none": lambda m: m.energy.note or "not recorded",
    }
    return Metric(f"energy.{key}", label, unit, better, **usual | more)


def _ends(of: str) -> dict[str, Any]:
    return {
        "text": lambda ends: " - ".join(map(_DIGITS, ends)), "parts": ("low", "high"), "interval_of": of,
        "why_none": lambda m: m.energy.note or "too few blocks, or an older result",
    }  # fmt: skip


def _why_no_ratio(m: Measurement) -> str:
    return m.energy.note or "no baseline in its blocks whose energy the same counter tells by turns"


ENERGY = _energy(
    "invoke_mj",
    "energy",
    "mJ",
    "lower",
    "Energy of one timed invoke, from the counter of the processors (RAPL) or of the GPU: its mean power "
    "while a process is timed, for the time of an invoke; the mean over the processes. The processors' is "
    "read at both ends of each turn. Nothing is subtracted, so that it holds what the part uses when idle.",
    section="resources",
)

ENERGIES = (
    ENERGY,
    _energy(
        "ci95",
        "95 % interval of energy",
        "mJ",
        "lower",
        "The 95 % interval of this energy, low and high, over the logarithms of the processes' energies, "
        "like that of p50.",
        **_ends(ENERGY.key),
    ),
    _energy(
        "ratio",
        "energy ratio",
        "1",
        "higher",
        "The energy of the baseline's invoke over this one's, the geometric mean over the blocks in which "
        "both were measured: above 1 is less energy. Empty where arms compute on different parts of the "
        "machine, or on a GPU, whose counter is too slow for turns.",
        why_none=_why_no_ratio,
    ),
    _energy(
        "ratio_ci95",
        "95 % interval of energy ratio",
        "1",
        "higher",
        "The 95 % interval of this ratio, low and high, over the logarithms of the blocks' ratios.",
        **_ends("energy.ratio"),
    ),
    _energy(
        "power_w",
        "mean power",
        "W",
        "none",
        "This energy over the mean time of an invoke: what the part draws while it is timed.",
        read=_power,
    ),
    _energy(
        "rise_c",
        "temperature rise",
        "°C",
        "lower",
        "By how much the part that computes got hotter: the highest temperature while processes are timed "
        "less the first one; of an attached device, the hottest zone after the last block less before the "
        "first.",
        why_none=lambda m: m.energy.rise_note or "not recorded",
    ),
)
"""Energy and heat of a run, where the machine tells them."""

INSTALLED = Metric(
    "installed.bytes",
    "installed bytes",
    "bytes",
    "lower",
    "resources",
    "Files of the delegate on the agent: those of the runtime that it executes, and all of the packages that "
    "it loads or comes from. Python, numpy and drivers are not among them.",
    read=lambda cell: None if cell.measurement is None else cell.measurement.installed.bytes,
    text=text.byte_count,
    why_none=lambda m: m.installed.note or "not recorded",
)

COSTS = (
    PEAK_MEMORY,
    PEAK_MEMORY_COLD,
    *ENERGIES,
    INSTALLED,
    *_init_stages("cold", "the cold process", INIT_STAGES),
    *_init_stages(
        "warm",
        "a process that finds filled caches",
        {s: f"The same as {s}, cold, of a process that finds filled caches." for s in INIT_STAGES},
    ),
    _bytes(
        "memory",
        "load",
        "memory, loaded",
        "Growth of the process's resident memory (VmRSS) from just before the model is loaded until its file "
        "is read and checked. The largest of the timed processes, like the following.",
    ),
    _bytes("memory", "ready", "memory, ready", "The same until the model is ready to invoke."),
    _bytes(
        "memory",
        "steady",
        "memory, steady",
        "The same until the last timed slice has ended, without the bytes of the input sets.",
    ),
    _bytes(
        "memory",
        "device",
        "memory, device",
        "Bytes of every buffer that the delegate has allocated on its device: activations, constants and "
        "tables, also on a discrete GPU. Where the device computes in the host's memory, they lie there.",
    ),
    _transfer(
        "in_ms",
        "copies in",
        "How long the host spends on copying an invoke's inputs to where the delegate computes, of all "
        "partitions together, until they are there; on WebGPU with a word read back, which tells that. "
        "From further invokes after the timed ones, like the following; the mean over the processes of each "
        "one's median.",
    ),
    _transfer("out_ms", "copies out", "The same of the outputs, once all kernels have ended."),
    _bytes(
        "transfer",
        "in_bytes",
        "bytes in",
        "Bytes of these inputs: what crosses the border of CPU and device.",
    ),
    _bytes("transfer", "out_bytes", "bytes out", "The same of the outputs."),
    _transfer(
        "p50_bound_ms",
        "p50, bound buffers",
        "Median of invokes on buffers that hold the inputs already and keep the outputs, from start to end. "
        "What the device cannot reach there, it copies itself.",
    ),
    _transfer(
        "saved_ms",
        "saved by bound buffers",
        "The median of invokes end to end that take turns with these, less theirs: what zero copy saves.",
        better="higher",
    ),
    Metric(
        "caches.bytes",
        "bytes in caches",
        "bytes",
        "lower",
        "memory",
        "Files that the starts of the first tuning left in program caches that were empty: kernels, packed "
        "constants, recordings and choices of the delegate, and whatever drivers keep.",
        read=measured("cache_bytes"),
        text=text.byte_count,
        why_none=lambda _: "not recorded, or not all of it could be counted",
    ),
    Metric(
        "caches.init_saved_ms",
        "init saved by caches",
        "ms",
        "higher",
        "memory",
        "The init that finds the caches empty less the median of those that find them filled; none where the "
        "starts left nothing in caches.",
        read=_init_saved,
        text=text.milliseconds,
        why_none=_why_none_saved,
        unit_in_heading=True,
        void_if_wrong=True,
    ),
)
"""These figures, in the order in which tables and pages show them."""
