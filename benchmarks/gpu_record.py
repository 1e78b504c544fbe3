"""The record of what compilers made of the kernels for GPUs: which of its figures are believed.

A figure is believed where the same text was compiled for work-groups of the same size and the same target, by
compilers of the same files that were called and read in the same way (`Tools.digest`). A draw is compiled
again: it shows in time whether somebody has changed figures, or a compiler has a further input.
"""

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_machine_code import Compiled
from benchmarks.gpu_rows import Row, Run

RESULT: Final = Path(__file__).with_name("results") / "gpu_static.json"

_FIGURES: Final = [one.name for one in fields(Compiled)]
"""Names of a target's figures, which stand behind the number of its run."""

Known = Mapping[str, tuple[Compiled, Run]]
"""What was compiled, and in which run, by target."""


@dataclass(frozen=True, slots=True)
class Record:
    """Rows of earlier runs by their names, those with most work first."""

    rows: Mapping[str, Row] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = RESULT) -> "Record":
        """Read a record. One with other figures, or none where there should be one, is empty."""
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if content.get("figures") != _FIGURES:
            return cls()
        runs = [Run(**run) for run in content["runs"]]
        return cls({line["name"]: _row(line, runs) for line in content["kernels"]})

    def believed(self, wanted: Row, targets: Iterable[str], now: Run) -> Known:
        """Return what need not be compiled again, of a kernel for targets, by the compilers of a run."""
        row = self.rows.get(wanted.name, Row("", 0, {}, {}))
        return {
            target: (row.targets[target], row.runs[target])
            for target in targets
            if row.digest == wanted.digest
            and target in row.runs
            and row.runs[target].compilers.get(target) == now.compilers[target]
        }


def drawn(rows: Iterable[tuple[Row, Collection[str]]], draw: str) -> set[tuple[str, str]]:
    """Draw from rows and their targets one of each family and one for each target: names of row and target.

    The same text draws the same.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for row, targets in rows:
        for target in targets:
            for group in (row.family, target):
                groups.setdefault(group, []).append((row.name, target))
    chance = random.Random(draw)  # noqa: S311  # a draw, no secret
    return {chance.choice(sorted(groups[group])) for group in sorted(groups)}


def as_json(rows: Sequence[Row], now: Run) -> str:
    """Return the record, a line for each run and kernel. The run that writes it is the last one."""
    found = {run.at: run for row in rows for run in row.runs.values()} | {now.at: now}
    numbers = {at: number for number, at in enumerate(sorted(found))}
    runs = [{"tree": run.tree, "at": at, "compilers": run.compilers} for at, run in sorted(found.items())]
    kernels = [
        {
            "name": row.name,
            "digest": row.digest,
            "threads": row.threads,
            "flops": row.flops,
            "targets": {
                target: [numbers[row.runs[target].at], *astuple(one)] for target, one in row.targets.items()
            },
        }
        for row in rows
    ]
    return f'{{"figures":{_line(_FIGURES)},\n"runs":{_lines(runs)},\n"kernels":{_lines(kernels)}}}\n'


def _row(line: Mapping[str, Any], runs: Sequence[Run]) -> Row:
    # Of each target there is the number of its run in `runs`, then its figures.
    targets = {target: Compiled(*figures) for target, (_, *figures) in line["targets"].items()}
    made_in = {target: runs[number] for target, (number, *_) in line["targets"].items()}
    return Row(line["name"], line["threads"], line["flops"], targets, line.get("digest", ""), made_in)


def _lines(content: Iterable[object]) -> str:
    return "[\n" + ",\n".join(map(_line, content)) + "\n]"


def _line(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))
