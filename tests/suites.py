"""`python -m tests.suites`: every suite in turn, as `make test-all` runs them.

`--needs SUITE` runs nothing: it says in one line what this machine lacks for a suite, and exits with 1 then.

A suite that passed on this very tree is not run again, so that a run of hours goes on where it was stopped.
What is known of each is kept in `.suites/state.json`, what it printed in `.suites/NAME.log`. Exits with 1
where a suite failed. One for which this machine lacks a tool is `missing` and says which; what may not be
absent under `CI=true` fails there, as in a test.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests import needs
from tests.deploy import machines
from tests.tree import NoGitError, Tree, fingerprint, tree

FOLDER: Final = needs.REPOSITORY / ".suites"
PATIENCE_S: Final = 60.0
"""Seconds in which an interrupted suite may stop its services. Chosen: several times what a lab takes. With
fewer, machines and databases may be left behind."""
LOOK_S: Final = 0.05
"""Seconds between two looks at a running suite. Bounds the delay at its end."""
TAIL: Final = 15
"""Lines of a failed suite's log that are printed. Chosen: they hold pytest's summary of a few failures."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite. `needs`: functions that skip or fail, as in a test, where the machine lacks something."""

    name: str
    command: tuple[str, ...]
    needs: tuple[Callable[[], object], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a suite: `passed`, `failed`, `missing` or `interrupted`.

    `content`: the hash of the tree that it ran on; None where the tree changed meanwhile.
    """

    status: str
    summary: str
    seconds: float = 0.0
    began: str = ""
    commit: str | None = None
    content: str | None = None


def made(target: str, *required: Callable[[], object]) -> Suite:
    """Return the suite of a target of the Makefile."""
    return Suite(target, ("make", "--no-print-directory", target), required)


_SERVICES: Final = (needs.redis_server, needs.postgres_binaries)
_LAB: Final = (*_SERVICES, needs.network_namespaces, needs.compiler)
SUITES: Final = (
    made("test"),
    made("test-slow"),
    made("test-site"),
    made("test-conformance", *_SERVICES),
    made("test-attack", *_SERVICES),
    made("test-faults", *_LAB),
    made("soak", *_LAB),
    made("mutate", *_SERVICES),
    made("test-deploy", machines.required),
    made("test-kernels", needs.oclgrind),
    made("fuzz"),
    made("test-exhaustive"),
    made("test-kernels-all", needs.oclgrind),
)
"""In their order: what takes minutes comes before what takes longer."""


def run_all(
    suites: Sequence[Suite], folder: Path, root: Path, interrupts: Sequence[int], again: bool = False
) -> dict[str, Outcome]:
    """Run the suites that have not passed on this tree, all with `again`, and return how each ended.

    Once there is an interrupt, the suite that runs is ended and the rest left out.
    """
    known = load(folder)
    ended: dict[str, Outcome] = {}
    for suite in suites:
        if interrupts:
            break
        former = known.get(suite.name)
        if not again and former is not None and has_passed(former, content_of(root)):
            ended[suite.name] = former
            _say(f"{suite.name}: passed on this tree before, at {former.began}")
            continue
        outcome = _lacking(suite) or _run(suite, folder, root, interrupts)
        ended[suite.name] = known[suite.name] = outcome
        save(folder, known)
        _say(f"{suite.name}: {outcome.status}, {outcome.summary}")
        if outcome.status == "failed" and outcome.seconds:
            _say("\n".join(f"  | {line}" for line in _printed(_log(folder, suite))[-TAIL:]))
    return ended


def has_passed(outcome: Outcome, content: str | None) -> bool:
    """Whether a suite passed on the tree with this content."""
    return outcome.status == "passed" and outcome.content is not None and outcome.content == content


def summary_of(printed: Sequence[str]) -> str:
    """Return the last line that a suite printed, without what `make` says of it and pytest's frame."""
    own = (line.strip("= \t") for line in reversed(printed) if not line.startswith(("make:", "make[")))
    return next(filter(None, own), "nothing was printed")


def table(ended: Mapping[str, Outcome], suites: Sequence[Suite], of: Tree) -> str:
    """Return how every suite ended, one line each, and the sum of all."""
    rows = [("suite", "status", "wall", "last line")]
    for suite in suites:
        outcome = ended.get(suite.name, Outcome("not run", ""))
        wall = f"{outcome.seconds // 60:.0f}:{outcome.seconds % 60:02.0f}" if outcome.seconds else ""
        rows.append((suite.name, outcome.status, wall, outcome.summary))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row, widths), row[3]]).rstrip() for row in rows]
    counts = Counter(row[1] for row in rows[1:])
    summed = ", ".join(f"{count} {status}" for status, count in counts.items())
    return "\n".join([*lines, f"{len(suites)} suites on {of}: {summed}"])


def exit_code(ended: Mapping[str, Outcome]) -> int:
    """Return 1 where a suite failed, else 0."""
    return int("failed" in {outcome.status for outcome in ended.values()})


def load(folder: Path) -> dict[str, Outcome]:
    """Return what is kept of former runs; nothing where it cannot be read."""
    try:
        kept = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return {name: Outcome(**outcome) for name, outcome in kept.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def save(folder: Path, known: Mapping[str, Outcome]) -> None:
    """Keep how suites ended, as a whole or not at all."""
    part = folder / "state.json.part"
    kept = {name: asdict(outcome) for name, outcome in known.items()}
    part.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    part.replace(folder / "state.json")


def content_of(root: Path) -> str | None:
    """Return the hash of a tree; None where git does not know it, and no suite counts as passed on it."""
    try:
        return fingerprint(root)
    except NoGitError:
        return None


def _lacking(suite: Suite) -> Outcome | None:
    for need in suite.needs:
        try:
            need()
        except pytest.skip.Exception as reason:
            return Outcome("missing", str(reason))
        except pytest.fail.Exception as reason:
            return Outcome("failed", str(reason))
    return None


def _needs(suite: Suite) -> int:
    """Return 1, and say why, where this machine cannot run a suite that was asked for by name; else 0."""
    lacking = _lacking(suite)
    if lacking is not None:
        sys.stderr.write(f"make {suite.name} cannot run: {lacking.summary}\n")
    return int(lacking is not None)


def _run(suite: Suite, folder: Path, root: Path, interrupts: Sequence[int]) -> Outcome:
    log, content, commit = _log(folder, suite), content_of(root), tree(root).commit
    began, start_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    _say(f"{suite.name}: runs, see {log}")
    with log.open("wb") as out:
        # In a session of its own, so that an interrupt reaches all that the suite has started, and once.
        running = subprocess.Popen(
            suite.command, cwd=root, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        while running.poll() is None and not interrupts:
            time.sleep(LOOK_S)
        if running.returncode is None:
            _interrupt(running)
            status = "interrupted"
        else:
            status = "failed" if running.returncode else "passed"
    summary = summary_of(_printed(log))
    if content_of(root) != content:
        content, summary = None, f"{summary} (the tree changed meanwhile)"
    return Outcome(status, summary, time.monotonic() - start_s, began, commit, content)


def _interrupt(running: subprocess.Popen[bytes]) -> None:
    os.killpg(running.pid, signal.SIGINT)
    try:
        running.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@contextmanager
def _interruptible() -> Iterator[Sequence[int]]:
    """Note a request to end in the list that the block gets; nothing is raised anywhere."""
    noted: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    former = {number: signal.signal(number, lambda came, _: noted.append(came)) for number in numbers}
    try:
        yield noted
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _log(folder: Path, suite: Suite) -> Path:
    return folder / f"{suite.name}.log"


def _printed(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second run of the suites out. Raises `BlockingIOError` where there is one already."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def main(
    arguments: Sequence[str] | None = None, suites: Sequence[Suite] = SUITES, folder: Path = FOLDER
) -> int:
    """Run the suites and print the table. Return the exit code."""
    first_line = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=first_line)
    names = [suite.name for suite in suites]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these suites alone")
    parser.add_argument("--again", action="store_true", help="run also what passed on this tree")
    parser.add_argument("--needs", choices=names, help="run nothing; fail where this machine lacks something")
    options = parser.parse_args(arguments)
    if options.needs is not None:
        return _needs(next(suite for suite in suites if suite.name == options.needs))
    chosen = [suite for suite in suites if suite.name in options.only]
    root = folder.parent
    try:
        with _alone(folder), _interruptible() as interrupts:
            of = tree(root)
            ended = run_all(chosen, folder, root, interrupts, options.again)
    except BlockingIOError:
        sys.stderr.write(f"the suites run already: {folder / 'lock'} is locked\n")
        return 2
    _say(table(ended, chosen, of))
    return 128 + interrupts[0] if interrupts else exit_code(ended)


if __name__ == "__main__":
    sys.exit(main())
