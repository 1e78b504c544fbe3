"""Checks every kernel for GPUs where there is none: registers, stack, spills and occupancy.

    make check-gpu-static        (python -m benchmarks.gpu_static [--models …] [--targets …])
    make check-gpu-static-all    (… --all)

All networks are planned. A kernel of the record (`benchmarks.gpu_record`: the same text, the same compilers)
is not compiled again; what is new is, and a draw from the record. Where that tells something else of a drawn
kernel, the check fails; `--all` compiles every kernel anew.

The kernels are those that the networks of the zoo need on a GPU, in every precision; they are compiled for
NVIDIA, AMD and Intel (`benchmarks.gpu_compilers`), those for matrix units for NVIDIA from sm_80 on. Intel's
GPUs get smaller tiles in places, which are compiled for these alone. Nothing is run or timed. A kernel that
has memory of its own beside its registers (stack, scratch, spills), or more registers than leave room for two
work-groups of 256, fails the check, unless `EXCEPTIONS` gives the reason.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Final

from benchmarks.gpu_compilers import AMD, INTEL, MATRIX_UNITS, NVIDIA, TARGETS, Tools, digest_of, in_matrices
from benchmarks.gpu_machine_code import ToolError
from benchmarks.gpu_plans import FOR_INTEL, PRECISIONS, functions_of
from benchmarks.gpu_record import RESULT, Record, as_json, drawn
from benchmarks.gpu_rows import EXCEPTIONS, Row, Run
from runtime.common.system import usable_cpus
from runtime.delegates.gpu.backends.cuda.ptx import bounds
from runtime.delegates.gpu.layout.source import Kernel, assemble_functions
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.tools.priming import networks
from tests.reports import write_report
from tests.tree import tree

_COMPILES_ALL: Final = "make check-gpu-static-all"

_NOTHING: Final = Record()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kernel to be compiled: its row, yet without figures, and the targets that it is for."""

    row: Row
    kernel: Kernel
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """The rows of a run. `differing`: what is wrong in the record, of what was drawn from it."""

    rows: Sequence[Row]
    run: Run
    drawn: int
    differing: Sequence[str]

    @property
    def status(self) -> int:
        """The command's exit status."""
        return int(bool(self.differing) or any(row.unexcused() for row in self.rows))


def main() -> int:
    """Compile, write the figures and the table; 1 where anything fails, 2 where a compiler is missing."""
    given, began = _parser().parse_args(), tree()
    # Another draw each day and for each commit, which is printed, so that anybody can repeat it.
    draw = given.draw or f"{datetime.now(UTC):%Y-%m-%d} {(began.commit or 'no commit')[:12]}"
    record = Record() if given.all else Record.read()
    try:
        found = checked(given.models or None, tuple(given.targets), record, str(began), draw)
    except ToolError as error:
        print(error, file=sys.stderr)
        return 2
    rows = found.rows
    if given.out is not None:
        # A record that was found wrong stays, until all of it is made anew.
        if not found.differing:
            given.out.write_text(as_json(rows, found.run))
        write_report(given.out.with_suffix(".md"), as_markdown(found, draw), began, found.status)
    for line in (*found.differing, *_failing(rows)):
        print(line, file=sys.stderr)
    if found.differing:
        print(f"{RESULT} is wrong: compile every kernel anew by `{_COMPILES_ALL}`", file=sys.stderr)
    excused = sum(len(row.faults()) - len(row.unexcused()) for row in rows)
    bad = sum(bool(row.unexcused()) for row in rows)
    print(_what_was_compiled(found, draw))
    print(f"{len(rows)} kernels for {', '.join(given.targets)}: {bad} fail, {excused} exceptions")
    return found.status


def checked(
    models: Sequence[str] | None,
    targets: tuple[str, ...],
    record: Record = _NOTHING,
    of: str = "",
    draw: str = "",
) -> Checked:
    """Compile the kernels of these networks of the zoo, None: of all, but what a record has and is not drawn.

    `of`: the tree of this run. `draw`: see `drawn`. Raises `ToolError`.
    """
    with tempfile.TemporaryDirectory(prefix="farm-gpu-") as name:
        tools = Tools.found(Path(name), targets)
        run = Run(
            of,
            # To the millisecond, because runs are told apart by it.
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            {one: tools.digest(one) for one in targets},
        )
        wanted = _wanted(models, targets)
        known = {one.row.name: record.believed(one.row, one.targets, run) for one in wanted}
        again = drawn(((one.row, known[one.row.name]) for one in wanted), draw)

        def row(one: Wanted) -> Row:
            name, old = one.row.name, known[one.row.name]
            asked = tuple(t for t in one.targets if t not in old or (name, t) in again)
            new = tools.compile(one.kernel, asked) if asked else {}
            made = {t: (new[t], run) if t in new else old[t] for t in one.targets}
            figures, runs = ({t: pair[i] for t, pair in made.items()} for i in range(2))
            return replace(one.row, targets=figures, runs=runs)

        # The compilers are processes of their own: threads are enough to keep all CPUs busy.
        with ThreadPoolExecutor(len(usable_cpus())) as pool:
            rows = {one.name: one for one in pool.map(row, wanted)}
    differing = [
        f"{name} on {target}: the record has {old}, it is {new}"
        for name, target in sorted(again)
        if (old := known[name][target][0]) != (new := rows[name].targets[target])
    ]
    return Checked(list(rows.values()), run, len(again), differing)


def _wanted(models: Sequence[str] | None, targets: tuple[str, ...]) -> list[Wanted]:
    """Return the kernels of networks that are for any of the targets, those with most work first."""
    flops = functions_of(models)
    source = assemble_functions(flops, ASSUMED["gpu"])
    found = []
    for function, kernel in zip(source.names, source.kernels, strict=True):
        asked, threads = flops[function].keys(), prod(kernel.group)
        if in_matrices(kernel.whole):
            fitting = tuple(one for one in targets if one in MATRIX_UNITS)
        else:
            # By whether the target is Intel's: what is planned for Intel alone is compiled for it alone.
            is_for = {True: FOR_INTEL in asked, False: asked != {FOR_INTEL}}
            fitting = tuple(one for one in targets if is_for[one in INTEL])
        digest = digest_of(kernel.whole, str(threads), bounds(kernel))
        row = Row(kernel.name, threads, flops[function], {}, digest)
        if fitting:
            found.append(Wanted(row, kernel, fitting))
    return sorted(found, key=lambda one: (-max(one.row.flops.values()), one.row.name))


def _failing(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        for target, fault in row.unexcused().items():
            yield f"{row.name} on {target}: {fault}"


def _what_was_compiled(found: Checked, draw: str) -> str:
    new, total = _compiled_in(found.rows, found.run), sum(len(row.targets) for row in found.rows)
    if new == total:
        return f"All {total} figures are of code that was compiled in this run."
    return (
        f"Of {total} figures {new} are of code that was compiled in this run: {found.drawn} drawn from the "
        f"record by `{draw}`, one of each family and for each target, and {new - found.drawn} that it lacks."
    )


def _compiled_in(rows: Iterable[Row], run: Run) -> int:
    return sum(one == run for row in rows for one in row.runs.values())


_HEAD: Final = """\
# Kernels for GPUs, compiled where there is none

{kernels} distinct kernels that the {networks} networks of the zoo need on a GPU, in {precisions}, a line for each
family: the largest share that it has of the estimated work in any precision, registers of a work-item,
work-groups that a multiprocessor holds (AMD: waves of a SIMD), bytes of stack or scratch (Intel: of a thread), and the share of
multiply-adds in the block of code with most of them (of the kernel with most work; else the worst of the family). Nothing was run: speeds are
not known. {compiled} `now`: of each family.

| kernels | of the work | registers sm_75 / 80 / 90 | groups sm_90 | FMA | stack | VGPRs gfx90a / 1100 | waves | scratch | registers dg2 | groups | scratch | now |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""  # noqa: E501


def as_markdown(found: Checked, draw: str) -> str:
    """Return the table: a line for each family of kernels, those with most work first."""
    rows = found.rows
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    lines = [
        _HEAD.format(
            kernels=len(rows),
            networks=len(networks()),
            precisions=", ".join(PRECISIONS),
            compiled=_what_was_compiled(found, draw),
        )
    ]
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
            f"{_worst(max, members, INTEL, 'stack_bytes')} | {_compiled_in(members, found.run)} |"
        )
    lines += ["", "Exceptions:", ""]
    for (name, on), why in EXCEPTIONS.items():
        count = sum(name in row.name and any(t.startswith(on) for t in row.faults()) for row in rows)
        lines.append(f"- {count} kernels `{name}` on `{on}…`: {why}.")
    lines += ["", "Figures by the runs that compiled their code, `now` the last:", ""]
    made = Counter((run.at, run.tree) for row in rows for run in row.runs.values())
    lines += [f"- {count} on {of}, {at}" for (at, of), count in sorted(made.items())]
    if found.differing:
        lines += ["", f"The record is wrong, `{_COMPILES_ALL}` makes it anew:", ""]
        lines += [f"- {line}" for line in found.differing]
    return "\n".join(lines) + "\n"


def _worst(
    choose: Callable[[list[int]], int], rows: Sequence[Row], targets: Iterable[str], field: str
) -> str:
    values = ([getattr(row.targets[t], field) for row in rows if t in row.targets] for t in targets)
    return " / ".join(str(choose(one)) if one else "-" for one in values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_static", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--models", nargs="+", help="networks of the zoo; all by default")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--all", action="store_true", help="believe nothing, compile every kernel")
    parser.add_argument("--draw", help="draw from the record as a run that printed this")
    parser.add_argument("--out", type=Path, help="where to write the figures; the table goes beside them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
