"""The command line that the fuzzers share."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.limited import Case, Limits, run_cases
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import Seed, operator_seeds, seeds, shared_files, zoo_files

CORPUS = Path(__file__).with_name("corpus")
_SLICE = 5000


def fuzz(
    name: str,
    make: Callable[[list[Seed]], Case],
    limits: Limits,
    default_cases: int,
    suits: Callable[[Seed], bool] = lambda _seed: True,
    start: Callable[[], list[Seed]] = lambda: [
        *seeds(shared_files() + zoo_files(), CORPUS),
        *operator_seeds(),
    ],
) -> None:
    """Parse the arguments, run the cases on the seeds that suit, keep bad files; exit code 1 for findings.

    `start`: the files to mutate, by default models.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz.{name}")
    parser.add_argument("--cases", type=int, default=default_cases)
    parser.add_argument("--seed", type=int, default=1, help="of the first case; case i has seed + i")
    parser.add_argument("--findings", type=Path, default=Path(f"fuzz-{name}"), help="folder for bad files")
    options = parser.parse_args()
    chosen = [seed for seed in start() if suits(seed)]
    print(f"{name}: {options.cases} cases from {len(chosen)} files, first seed {options.seed}", flush=True)
    begun, done, bad = time.monotonic(), 0, 0
    while done < options.cases:
        numbers = range(options.seed + done, options.seed + min(done + _SLICE, options.cases))
        ran, findings = run_cases(lambda: make(chosen), numbers, limits, float("inf"))
        done, bad = done + ran, bad + len(findings)
        for finding in findings:
            options.findings.mkdir(exist_ok=True)
            with mutated(chosen, finding.number) as (what, view):
                (options.findings / f"{finding.number}.bin").write_bytes(view)
            print(f"{what}: {finding.what}", flush=True)
        print(f"{name}: {done} cases, {bad} findings, {time.monotonic() - begun:.0f} s", flush=True)
    sys.exit(1 if bad else 0)
