"""`python -m tests.mutants`: take every protection away, one at a time, and see which test notices.

Exits with 1 where a mutant survives, a named test fails without any mutant, or the catalogue is stale.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from tests.mutants.catalogue import Mutant, StaleError, mutants
from tests.mutants.report import report
from tests.mutants.workplace import Outcome, Workplace
from tests.reports import write_report
from tests.tree import tree

Job = TypeVar("Job")


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants and print one line for each; with `--out`, write the table. Returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        chosen = [mutant for mutant in mutants() if any(word in mutant.name for word in given.only)]
    except StaleError as error:
        print(f"stale: {error}", file=sys.stderr)
        return 1
    if given.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    began, of = time.monotonic(), tree()
    run = [mutant for mutant in chosen if mutant.equivalent is None]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")))
        folder.chmod(0o755)  # tests run agents of an ordinary user from it
        places = [stack.enter_context(Workplace(folder / str(number))) for number in range(given.workers)]
        unchanged = _all(places, _named(run), Workplace.test_unchanged)
        fails = [tests for tests, outcome in unchanged if outcome.verdict != "survived"]
        if fails:
            print("fails without any mutant:", *(" ".join(tests) for tests in fails), sep="\n  ")
            return 1
        outcomes = dict(_all(places, run, Workplace.test))
    bad = [mutant for mutant in run if not is_noticed(mutant, outcomes[mutant])]
    minutes = (time.monotonic() - began) / 60
    print(f"{len(run) - len(bad)} of {len(run)} mutants are noticed, in {minutes:.1f} minutes")
    for mutant in bad:
        print(f"{outcomes[mutant].verdict}: {mutant.name}\n{outcomes[mutant].output}")
    if given.out is not None:
        counts = Counter(outcomes[mutant].verdict for mutant in run)
        write_report(given.out, report(chosen, outcomes, len(bad)), of, 1 if bad else 0, counts)
    return 1 if bad else 0


def is_noticed(mutant: Mutant, outcome: Outcome) -> bool:
    """Whether a test failed. A picked mutant with which nothing can even be imported tests nothing."""
    return outcome.verdict == "noticed" or (outcome.verdict == "broken" and mutant.is_generated)


def _named(run: Iterable[Mutant]) -> list[tuple[str, ...]]:
    """Return the tests that the mutants name, without repetition, by file."""
    names = sorted({name for mutant in run for name in mutant.tests})
    return [tuple(group) for _, group in groupby(names, key=lambda name: name.partition("::")[0])]


def _all(
    places: list[Workplace], jobs: list[Job], act: Callable[[Workplace, Job], Outcome]
) -> list[tuple[Job, Outcome]]:
    """Do every job in whichever place is free. Results are in the order of the jobs."""
    free: SimpleQueue[Workplace] = SimpleQueue()
    for place in places:
        free.put(place)
    printing = threading.Lock()

    def one(job: Job) -> tuple[Job, Outcome]:
        place = free.get()
        began = time.monotonic()
        try:
            outcome = act(place, job)
        finally:
            free.put(place)
        with printing:
            name = job.name if isinstance(job, Mutant) else f"unchanged: {job[0]}"  # type: ignore[index]
            print(f"{outcome.verdict:9}{time.monotonic() - began:6.1f} s  {name}  {outcome.by}", flush=True)
        return job, outcome

    with ThreadPoolExecutor(len(places)) as threads:
        return list(threads.map(one, jobs))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the table")
    parser.add_argument("--workers", type=int, default=2, help="copies of the tree that are tested at a time")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names; default: every mutant")
    parser.add_argument("--list", action="store_true", help="print the names and test nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
