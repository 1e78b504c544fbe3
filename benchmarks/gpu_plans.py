"""Plans the zoo's networks for GPUs that are not there: the functions that one runs, and their work."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Final

from runtime.common.system import usable_cpus
from runtime.delegates.gpu.alternatives import behind_passes, with_candidates
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.layout.source import Function, function_of
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.delegates.gpu.planning.planner import GpuPlanner
from runtime.delegates.gpu.settings.options import parse_options
from runtime.delegates.gpu.settings.precision import STORED, knowing_products
from runtime.tools.priming import networks, partitions_of

PRECISIONS: Final = ("fp32", "tf32", "fp16", "bf16")

MATRICES: Final[Mapping[str, str]] = {"tf32": "TF32", "fp16": "F16", "bf16": "BF16"}
"""Precisions that are planned once more, for a GPU whose matrix units multiply this type."""

FOR_INTEL: Final = "fp32, Intel"
"""The work that is planned for Intel's GPUs, in one precision: their compiler is slow, and others differ in
their loads alone."""


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
                        # A launch without arithmetic is one that a GPU runs, too: with 0 it would drop out.
                        counted[function_of(launch)] += max(launch.flops, 1)
    return work


def _devices(precision: str) -> dict[str, Capabilities]:
    """Return the devices for which a precision is planned, by the names of the work."""
    device = knowing_products(ASSUMED["gpu"], precision, lambda: STORED)
    if precision not in MATRICES:
        return {precision: device, FOR_INTEL: replace(device, vendor="Intel(R) Corporation")}
    in_matrices = {f"{precision}, matrices": replace(device, matrix_type=MATRICES[precision])}
    # Without matrix units there is no TF32.
    return in_matrices if precision == "tf32" else {precision: device} | in_matrices
