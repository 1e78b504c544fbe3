"""Checks every kernel for GPUs where there is none: registers, stack, spills and occupancy.

    make check-gpu-static        (python -m benchmarks.gpu_static [--models …] [--targets …])

The kernels are those that the networks of the zoo need on a GPU, in every precision; they are compiled for
NVIDIA, AMD and Intel (`benchmarks.gpu_compilers`), those for matrix units for NVIDIA from sm_80 on. Intel's
GPUs get smaller tiles in places, which are compiled for these alone. Nothing is run or timed. A kernel that
has memory of its own beside its registers (stack, scratch, spills), or more registers than leave room for two
work-groups of 256, fails the check, unless `EXCEPTIONS` gives the reason.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Final

from benchmarks.gpu_compilers import AMD, INTEL, MATRIX_UNITS, NVIDIA, TARGETS, Compiled, ToolError, Tools
from runtime.common.system import usable_cpus
from runtime.delegates.gpu.alternatives import behind_passes, with_candidates
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.layout.source import Function, Kernel, assemble_functions, function_of
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.delegates.gpu.planning.planner import GpuPlanner
from runtime.delegates.gpu.settings.options import parse_options
from runtime.delegates.gpu.settings.precision import STORED, knowing_products
from runtime.tools.priming import networks, partitions_of
from tests.reports import write_report
from tests.tree import tree

RESULT: Final = Path(__file__).with_name("results") / "gpu_static.json"

PRECISIONS: Final = ("fp32", "fp16", "bf16")

MATRICES: Final[Mapping[str, str]] = {"fp16": "F16", "bf16": "BF16"}
"""Precisions that are planned once more, for a GPU whose matrix units multiply this type."""

FOR_INTEL: Final = "fp32, Intel"
"""The work that is planned for Intel's GPUs, in one precision: their compiler is slow, and others differ in
their loads alone."""

MOST_REGISTERS: Final = {
    **dict.fromkeys(NVIDIA, 128), **dict.fromkeys(AMD, 256), **dict.fromkeys(INTEL, 128),
}  # fmt: skip
"""Registers of a work-item. NVIDIA: of 65,536, 128 leave room for two groups of 256, one of which computes
while the other loads. AMD: what an instruction can name. Intel: all that a thread of 8 work-items has."""

EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    (
        "m128n128",
        "sm_",
    ): "64 sums and 24 operands each: one group on a multiprocessor; at 128 registers they spill",
    **dict.fromkeys(
        (("matrix_window_f16__m128n64", "sm_"), ("matrix_window_bf16__m128n64", "sm_")),
        "windows for matrix units: 130 registers, as the next part of K is on its way; one group fits",
    ),
    (
        "m128",
        "gfx",
    ): "beside 32 or 64 sums no registers are left for GELU's polynomial, or the places of a window",
    (
        "gemm_rows_f16__m64n64",
        "gfx90a",
    ): "GELU's polynomial between two conversions of fp16 in memory: 8 bytes of scratch beside 16 sums",
}
"""Reasons why kernels fail by parts of their names and of their targets' names."""


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel on its targets. `flops`: its share of the zoo's estimated work in each precision."""

    name: str
    family: str
    threads: int
    flops: Mapping[str, float]
    targets: Mapping[str, Compiled]

    def faults(self) -> dict[str, str]:
        """Return what fails the check, by target."""
        found = {}
        for target, one in self.targets.items():
            if one.stack_bytes or one.spill_bytes:
                found[target] = f"{one.stack_bytes} bytes of stack, {one.spill_bytes} spilled"
            elif one.registers > MOST_REGISTERS[target]:
                found[target] = f"{one.registers} registers"
        return found

    def excused(self, target: str) -> str:
        """Return why a fault of this kernel is accepted; empty where it is not."""
        reasons = (
            why for (name, on), why in EXCEPTIONS.items() if name in self.name and target.startswith(on)
        )
        return next(reasons, "")

    def unexcused(self) -> dict[str, str]:
        """Return the faults that nothing excuses, by target."""
        return {target: fault for target, fault in self.faults().items() if not self.excused(target)}


def main() -> int:
    """Compile, write the figures and the table; 1 where a kernel fails, 2 where a compiler is missing."""
    given, began = _parser().parse_args(), tree()
    try:
        rows = checked(given.models or None, tuple(given.targets))
    except ToolError as error:
        print(error, file=sys.stderr)
        return 2
    bad = {row.name: faults for row in rows if (faults := row.unexcused())}
    if given.out is not None:
        given.out.write_text(as_json(rows))
        write_report(given.out.with_suffix(".md"), as_markdown(rows), began, int(bool(bad)))
    for name, faults in bad.items():
        for target, fault in faults.items():
            print(f"{name} on {target}: {fault}", file=sys.stderr)
    excused = sum(len(row.faults()) - len(row.unexcused()) for row in rows)
    print(f"{len(rows)} kernels for {', '.join(given.targets)}: {len(bad)} fail, {excused} exceptions")
    return int(bool(bad))


def checked(models: Sequence[str] | None, targets: tuple[str, ...]) -> list[Row]:
    """Compile the kernels of these networks of the zoo, None: of all. Raises `ToolError`."""
    with tempfile.TemporaryDirectory(prefix="farm-gpu-") as name:
        tools = Tools.found(Path(name), targets)
        flops = functions_of(models)
        source = assemble_functions(flops, ASSUMED["gpu"])
        kernels = dict(zip(source.names, source.kernels, strict=True))

        def row(function: Function) -> Row:
            kernel = kernels[function]
            threads = _threads(kernel)
            if ("MATRIX", 1) in function.defines:
                fitting = tuple(one for one in targets if one in MATRIX_UNITS)
            else:
                asked = flops[function].keys()
                is_for = {True: FOR_INTEL in asked, False: asked != {FOR_INTEL}}
                fitting = tuple(one for one in targets if is_for[one in INTEL])
            found = tools.compile(kernel.name, kernel.whole, threads, fitting)
            return Row(kernel.name, function.name, threads, flops[function], found)

        # The compilers are processes of their own: threads are enough to keep all CPUs busy.
        with ThreadPoolExecutor(len(usable_cpus())) as pool:
            rows = list(pool.map(row, flops))
    compiled = [row for row in rows if row.targets]
    return sorted(compiled, key=lambda row: (-max(row.flops.values()), row.name))


def functions_of(
    models: Sequence[str] | None, precisions: tuple[str, ...] = PRECISIONS
) -> dict[Function, dict[str, float]]:
    """Return the functions that a GPU runs of the zoo's networks, and their shares of the work.

    By precision, as `fp16, matrices` with its matrix units, and as `FOR_INTEL`.
    """
    work: dict[str, Counter[Function]] = {}
    files = [file for file in networks() if models is None or file.stem in models]
    if models is not None and len(files) < len(models):
        raise SystemExit(f"the zoo has no {', '.join(set(models) - {file.stem for file in files})}")
    # The largest first, so that no process ends long behind the others.
    with ProcessPoolExecutor(min(len(usable_cpus()), len(files))) as pool:
        for found in pool.map(_work_of, reversed(files), repeat(precisions)):
            for name, counted in found.items():
                work.setdefault(name, Counter()).update(counted)
    totals = {precision: counted.total() or 1 for precision, counted in work.items()}
    functions = dict.fromkeys(function for counted in work.values() for function in counted)
    return {one: {p: round(work[p][one] / totals[p], 6) for p in work if work[p][one]} for one in functions}


def _work_of(file: Path, precisions: tuple[str, ...]) -> dict[str, Counter[Function]]:
    """Return the functions of a network and their work, as `functions_of` has them.

    A precision changes how weights are stored and which kernels are chosen; which operators the delegate
    takes, and their graph, are asked for once.
    """
    work: dict[str, Counter[Function]] = {}
    planner = GpuPlanner({"precision": precisions[0]}, "gpu")
    for partition in partitions_of(planner, (file,)):
        built = build_graph(partition, way=planner.way_of_partition(partition))
        for precision in precisions:
            options = parse_options({"precision": precision})
            graph = behind_passes(built, options)
            for name, device in _devices(precision).items():
                counted = work.setdefault(name, Counter())
                for candidates in with_candidates(graph, device, options)[1]:
                    for launch in candidates[0].launches:
                        counted[function_of(launch)] += max(launch.flops, 1)
    return work


def _devices(precision: str) -> dict[str, Capabilities]:
    """Return the devices for which a precision is planned, by the names of the work."""
    device = knowing_products(ASSUMED["gpu"], precision, lambda: STORED)
    if precision not in MATRICES:
        return {precision: device, FOR_INTEL: replace(device, vendor="Intel(R) Corporation")}
    return {precision: device, f"{precision}, matrices": replace(device, matrix_type=MATRICES[precision])}


_HEAD: Final = """\
# Kernels for GPUs, compiled where there is none

{kernels} distinct kernels that the {networks} networks of the zoo need on a GPU, in {precisions}, a line for each
family: the largest share that it has of the estimated work in any precision, registers of a work-item,
work-groups that a multiprocessor holds (AMD: waves of a SIMD), bytes of stack or scratch (Intel: of a thread), and the share of
multiply-adds in the block of code with most of them (of the kernel with most work; else the worst of the family). Nothing was run: speeds are
not known.

| kernels | of the work | registers sm_75 / 80 / 90 | groups sm_90 | FMA | stack | VGPRs gfx90a / 1100 | waves | scratch | registers dg2 | groups | scratch |
|---|---|---|---|---|---|---|---|---|---|---|---|"""  # noqa: E501


def as_json(rows: Sequence[Row]) -> str:
    """Return the figures, a line for each kernel."""
    return "[\n" + ",\n".join(json.dumps(asdict(row), separators=(",", ":")) for row in rows) + "\n]\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table: a line for each family of kernels, those with most work first."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    lines = [_HEAD.format(kernels=len(rows), networks=len(networks()), precisions=", ".join(PRECISIONS))]
    for family, members in families.items():
        share = {p: sum(row.flops.get(p, 0.0) for row in members) for one in members for p in one.flops}
        # The code of Intel's kernels is not read.
        most = next((row for row in members if row.targets.keys() - INTEL.keys()), members[0])
        lines.append(
            f"| {family} ({len(members)}) | {max(share.values()):.1%} | "
            f"{_worst(max, members, NVIDIA, 'registers')} | {_worst(min, members, ('sm_90',), 'groups')} | "
            f"{max(one.fma_share for one in most.targets.values()):.0%} | "
            f"{_worst(max, members, ('sm_90',), 'stack_bytes')} | {_worst(max, members, AMD, 'registers')} | "
            f"{_worst(min, members, ('gfx90a',), 'groups')} | "
            f"{_worst(max, members, ('gfx90a',), 'stack_bytes')} | "
            f"{_worst(max, members, INTEL, 'registers')} | {_worst(min, members, INTEL, 'groups')} | "
            f"{_worst(max, members, INTEL, 'stack_bytes')} |"
        )
    lines += ["", "Exceptions:", ""]
    for (name, on), why in EXCEPTIONS.items():
        count = sum(name in row.name and any(t.startswith(on) for t in row.faults()) for row in rows)
        lines.append(f"- {count} kernels `{name}` on `{on}…`: {why}.")
    return "\n".join(lines) + "\n"


def _worst(
    choose: Callable[[list[int]], int], rows: Sequence[Row], targets: Iterable[str], field: str
) -> str:
    values = ([getattr(row.targets[t], field) for row in rows if t in row.targets] for t in targets)
    return " / ".join(str(choose(one)) if one else "-" for one in values)


def _threads(kernel: Kernel) -> int:
    threads = 1
    for side in kernel.group:
        threads *= side
    return threads


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_static", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", help="networks of the zoo; all by default")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--out", type=Path, help="where to write the figures; the table goes beside them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
