"""The report of a first contact: the steps, and each expectation beside its measurement."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.gpu_compilers import NVIDIA, TARGETS
from benchmarks.gpu_record import Record
from benchmarks.gpu_rows import Row
from benchmarks.output import table

ENQUEUE_US: Final = 4.0
"""Microseconds of the host for an enqueue, and between two launches on the device below: assumed for GPUs
before one was measured, of the order that others published for CUDA. Larger predicts longer runs of models
with many small launches."""

GAP_US: Final = 2.2

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it ended: `done`, `failed` or `skipped`, and why."""

    name: str
    status: str
    seconds: float = 0.0
    why: str = ""
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction of a quantity beside its measurement."""

    what: str
    unit: str
    predicted: float
    measured: float


def figures_of(steps: Sequence[Step], name: str) -> Figures:
    """Return what a step found; nothing where it was not done."""
    return next((step.figures for step in steps if step.name == name), {})


def predictions(steps: Sequence[Step]) -> Iterator[Prediction]:
    """Set what the static check and the plans' assumptions let expect beside what was measured."""
    host = figures_of(steps, "host")
    if not host:
        return
    us, peaks = host["us"], host["peaks"]
    yield Prediction("host, an enqueue", "us", ENQUEUE_US, us["enqueue of a launch"])
    yield Prediction("device, a launch in a queue", "us", GAP_US, us["a launch in a queue"])
    shares = fma_shares(Record.read().rows.values(), str(host["target"]))
    for row in figures_of(steps, "gemm").get("tiles", ()):
        share = shares.get(row.get("function", ""))
        if share is not None:
            what = f"product, {row['tile']}, {row['precision']}"
            yield Prediction(what, "GFLOP/s", round(share * peaks["gflops"], 1), row["gflops"])
    for found in (step.figures for step in steps if "rows" in step.figures):
        if found.get("backend") == "opencl":
            kernels = sum(_kernel_us(row, peaks, shares) for row in found["rows"])
            measured = sum(row["us"] for row in found["rows"])
            count = len(found["rows"])
            yield Prediction(f"{found['model']}, {count} kernels", "us", round(kernels), round(measured))
            # The host enqueues while the device computes: the slower of the two decides.
            expected = max(kernels + GAP_US * count, ENQUEUE_US * count)
            yield Prediction(f"{found['model']}, a run", "us", round(expected), found["run_us"])


def fma_shares(rows: Iterable[Row], target: str) -> dict[str, float]:
    """Return the share of multiply-adds in the inner loop by families of kernels, on the compiled target that
    is nearest: of NVIDIA's the newest that is not newer, and the newest of all for what is not known.
    """
    older = [one for one in NVIDIA if _number(one) <= _number(target)] if target.startswith("sm_") else []
    nearest = target if target in TARGETS else (older or list(NVIDIA))[-1]
    found: dict[str, float] = {}
    for row in rows:
        # Its rows are in the order of work: the first of a family has most of it.
        if nearest in row.targets:
            found.setdefault(row.family, row.targets[nearest].fma_share)
    return found


def _number(target: str) -> int:
    return int(re.sub(r"\D", "", target) or 0)


def _kernel_us(row: Figures, peaks: Figures, shares: Mapping[str, float]) -> float:
    """Return the time of a kernel at the roofline, whose roof of arithmetic the inner loop's share lowers."""
    # In us: 1e3 times GFLOP/s are operations a microsecond, and 1e3 times GB/s bytes.
    arithmetic = row["flops"] / (1e3 * peaks["gflops"] * (shares.get(row["name"]) or 1.0))
    return float(max(arithmetic, row["bytes"] / (1e3 * peaks["gigabytes"])))


def page(steps: Sequence[Step], told: Sequence[Prediction]) -> list[str]:
    """Return the report: one page."""
    host, gemm = figures_of(steps, "host"), figures_of(steps, "gemm")
    kind = (
        "a GPU" if host.get("is_gpu") else "**a processor, not a GPU**: its figures say that the steps work"
    )
    device = (
        f"{host['device']} ({host['platform']}, driver {host['driver']}), {kind}" if host else "not known"
    )
    products = [row for row in gemm.get("tiles", ()) if "gflops" in row]
    tiles = list(dict.fromkeys(row["tile"] for row in products))
    by = {(row["precision"], row["tile"]): row["gflops"] for row in products}
    models = [step for step in steps if ", " in step.name]
    return [
        "# First contact",
        "",
        f"Device: {device}.",
        *_machine(steps),
        "",
        *table(("step", "ended", "s", "why"), ((s.name, s.status, s.seconds, s.why) for s in steps)),
        "",
        *(f"- {name}: {value} us" for name, value in host.get("us", {}).items()),
        *(f"- the product by {name}: {value} GFLOP/s"
          for name, value in gemm.get("libraries", {}).items() if name != "why"),
        *(f"- sandbox, {row['model']}: with / without, init {row['init']['ratio']:.2f}, p50 "
          f"{row['p50']['ratio']:.2f}" for row in figures_of(steps, "sandbox").get("rows", ())),
        "",
        *table((f"product of {gemm.get('side', '?')}, GFLOP/s", *tiles),
               ((p, *(by.get((p, t), "") for t in tiles)) for p in dict.fromkeys(p for p, _ in by))),
        "",
        *table(("model", "interface", "first run s", "run us", "kernels", "kernels us", "error"),
               ((m.figures["model"], m.figures["backend"], m.figures["first_s"], m.figures["run_us"],
                 len(m.figures["rows"]), f"{sum(r['us'] for r in m.figures['rows']):.0f}",
                 f"{m.figures['error']:.1e}") for m in models if m.figures)),
        "",
        f"Expected by peaks, inner loops, {ENQUEUE_US} us an enqueue, {GAP_US} us a launch; and measured:",
        "",
        *table(("what", "unit", "expected", "measured", "measured / expected"),
               ((p.what, p.unit, p.predicted, p.measured, f"{p.measured / p.predicted:.2f}")
                for p in told)),
    ]  # fmt: skip


def _machine(steps: Sequence[Step]) -> Iterator[str]:
    """Yield what there is of drivers, and which devices the probe lists."""
    found = figures_of(steps, "drivers")
    if found:
        libraries = [name for name, loads in found["libraries"].items() if loads]
        packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
        yield f"Machine: {found['system']}; {packages}."
        yield f"Libraries that load: {', '.join(libraries) or 'none'}; ICD files: {found['icd'] or 'none'};"
        yield f"device nodes: {', '.join(found['nodes']) or 'none'}."
        yield from found["nvidia-smi"]
    for one in figures_of(steps, "probe").get("devices", ()):
        yield f"Probe: {one['device_id']}, {one['name']}: {', '.join(one['delegates'])}."
