"""The invariants of a farm (I1-I10), checked after whatever was done to it.

The runners' own files are believed, not the database. `violations` names every breach with its number.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlmodel import select

from agent.attempt import runlog
from agent.wire.measurement import Latency, Measurement, ProcessSamples
from agent.wire.messages import artifact_path
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import HEAD, revision
from orchestrator.policy.attempt_ends import MAX_ATTEMPTS
from orchestrator.policy.lifecycle import ENDED, LIVE_ATTEMPT
from runtime.measure.samples.summary import ProcessTimes, summarise
from tests.faults import truth


@dataclass(frozen=True)
class Evidence:
    """Everything a check looks at. `hosts`: per host, the state folders of its agents."""

    cells: dict[str, tables.Cell]
    attempts: dict[str, tables.Attempt]
    results: dict[str, tables.Result]
    hosts: tuple[tuple[Path, ...], ...]
    store: Path
    logs: tuple[Path, ...]
    revision: str | None
    integrity: str

    @property
    def states(self) -> tuple[Path, ...]:
        return tuple(state for host in self.hosts for state in host)


def gather(
    database: Database, store: Path, hosts: Sequence[Sequence[Path]], logs: Iterable[Path] = ()
) -> Evidence:
    with database.read() as session:
        cells = {row.cell_id: row for row in session.exec(select(tables.Cell))}
        attempts = {row.attempt_id: row for row in session.exec(select(tables.Attempt))}
        results = {row.attempt_id: row for row in session.exec(select(tables.Result))}
        session.expunge_all()
    return Evidence(
        cells,
        attempts,
        results,
        tuple(tuple(host) for host in hosts),
        store,
        tuple(logs),
        revision(database),
        database.integrity(),
    )


def violations(evidence: Evidence) -> list[str]:
    """Every breach; none where all is well."""
    return [f"{number}: {text}" for number, check in CHECKS.items() for text in check(evidence)]


def every_cell_has_ended(found: Evidence) -> Iterator[str]:
    """I1: exactly one terminal state, with a reason and a time."""
    for cell in found.cells.values():
        if cell.state not in ENDED:
            yield f"cell {cell.cell_id} is still {cell.state}"
        elif not cell.reason_code or cell.ended_at is None:
            yield f"cell {cell.cell_id} ended {cell.state} without a reason or a time"


def no_result_is_lost(found: Evidence) -> Iterator[str]:
    """I2: what a runner completed is in the database, or its agent still owes it; a cancelled one may go."""
    owed = {attempt for state in found.states for attempt in truth.spooled(state)}
    for fact in truth.facts(found.states):
        if fact.event != "completed" or fact.attempt_id in owed:
            continue
        attempt, result = found.attempts.get(fact.attempt_id), found.results.get(fact.attempt_id)
        if attempt is not None and attempt.state == "cancelled":
            continue
        if result is None:
            yield f"attempt {fact.attempt_id} completed {fact.status} and is not stored"
        elif result.samples_sha256 != fact.samples_sha256:
            yield f"attempt {fact.attempt_id} measured {fact.samples_sha256}, stored {result.samples_sha256}"


def nothing_counts_twice(found: Evidence) -> Iterator[str]:
    """I3: one counted result for each cell that is done, and it is the one shown."""
    counted = [result for result in found.results.values() if result.counted]
    for cell_id, count in Counter(result.cell_id for result in counted).items():
        if count > 1:
            yield f"cell {cell_id} has {count} counted results"
    for result in counted:
        if found.cells[result.cell_id].shown_attempt_id != result.attempt_id:
            yield f"cell {result.cell_id} does not show its counted result"
        if result.epoch != found.attempts[result.attempt_id].epoch:
            yield f"the counted result {result.attempt_id} has another epoch than its attempt"
    own = {result.cell_id for result in counted if result.status == "done"}
    for cell in found.cells.values():
        if (cell.state == "done") != (cell.cell_id in own or bool(cell.reused_from)):
            yield f"cell {cell.cell_id} is {cell.state}, counted results: {cell.cell_id in own}"


def runs_never_overlap(found: Evidence) -> Iterator[str]:
    """I4: on one host, no two attempts of an exclusion group are ever alive together."""
    for host in found.hosts:
        for first, second in runlog.overlaps(truth.lives(host)):
            yield f"{first.attempt_id} and {second.attempt_id} ran together on {first.exclusion_group}"


def attempts_are_bounded(found: Evidence) -> Iterator[str]:
    """I5: at most three failed attempts; each has an end; nobody outlives it; nothing runs twice."""
    failures = Counter(attempt.cell_id for attempt in found.attempts.values() if attempt.state == "failed")
    for cell_id, count in failures.items():
        if count > MAX_ATTEMPTS:
            yield f"cell {cell_id} has {count} failed attempts"
    marked = truth.alive()
    for attempt in found.attempts.values():
        if attempt.state in LIVE_ATTEMPT:
            yield f"attempt {attempt.attempt_id} is still {attempt.state}"
        elif not attempt.reason_code or attempt.ended_at is None:
            yield f"attempt {attempt.attempt_id} ended without a reason or a time"
        elif attempt.attempt_id in marked:
            yield f"attempt {attempt.attempt_id} has ended and {marked[attempt.attempt_id]} live"
    numbers: dict[str, list[int]] = defaultdict(list)
    for attempt in found.attempts.values():
        numbers[attempt.cell_id].append(attempt.attempt_no)
    for cell_id, given in numbers.items():
        if sorted(given) != list(range(1, len(given) + 1)):
            yield f"cell {cell_id} has attempts {sorted(given)}"
    yield from _runs_without_attempts(found)


def _runs_without_attempts(found: Evidence) -> Iterator[str]:
    started = [fact for fact in truth.facts(found.states) if fact.event == "started"]
    for attempt_id, count in Counter(fact.attempt_id for fact in started).items():
        if count > 1:
            yield f"attempt {attempt_id} was run {count} times"
    for fact in started:
        attempt = found.attempts.get(fact.attempt_id)
        if attempt is None or (attempt.cell_id, attempt.epoch) != (fact.cell_id, fact.epoch):
            yield f"a runner ran {fact}, which the database does not know"


def samples_are_what_was_measured(found: Evidence) -> Iterator[str]:
    """I6: stored samples hash to their name, and the stored summary is theirs to the last bit."""
    for result in found.results.values():
        if result.measurement is None or result.samples_sha256 is None:
            continue
        path = artifact_path(found.store, result.samples_sha256)
        raw = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(raw).hexdigest() != result.samples_sha256:
            yield f"samples of {result.attempt_id} are {'damaged' if raw else 'missing'} in the store"
            continue
        measurement = Measurement.model_validate_json(result.measurement)
        processes = [ProcessSamples.model_validate(entry) for entry in json.loads(raw)]
        times = [
            ProcessTimes(p.cache, p.init_ns, p.first_ns, p.kept_ns, p.tuning, p.kept_runs) for p in processes
        ]
        if Latency(**asdict(summarise(times))) != measurement.latency_ms:
            yield f"the summary of {result.attempt_id} is not that of its samples"


def disturbed_measurements_say_so(found: Evidence) -> Iterator[str]:
    """I7: what a process flagged is a warning of the result. Damaged samples are I6's."""
    for result in found.results.values():
        if result.measurement is None or result.samples_sha256 is None:
            continue
        try:
            processes = json.loads(artifact_path(found.store, result.samples_sha256).read_bytes())
        except (OSError, ValueError):
            continue
        flags = [flag for process in processes for flag in process.get("flags", ())]
        if flags and not Measurement.model_validate_json(result.measurement).warnings:
            yield f"{result.attempt_id} was disturbed ({flags[0]}) and looks clean"


def nobody_saw_a_traceback(found: Evidence) -> Iterator[str]:
    """I8: the services explain themselves; a traceback is a bug."""
    for path in found.logs:
        text = path.read_text(errors="replace") if path.exists() else ""
        at = text.find("Traceback (most recent call last)")
        if at >= 0:
            yield f"{path.name}: {_shortened(text[at:])}"


def _shortened(text: str) -> str:
    lines = [line for line in text.splitlines()[:60] if line.strip()]
    last = next((line for line in lines[1:] if not re.match(r"\s", line)), lines[-1])
    return f"{lines[0]} ... {last}"


def nothing_is_half_written(found: Evidence) -> Iterator[str]:
    """I10: the database is whole and of the newest revision."""
    if found.revision != HEAD:
        yield f"the database has revision {found.revision}, not {HEAD}"
    if found.integrity != "ok":
        yield f"integrity check: {found.integrity}"


CHECKS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "I1": every_cell_has_ended,
    "I2": no_result_is_lost,
    "I3": nothing_counts_twice,
    "I4": runs_never_overlap,
    "I5": attempts_are_bounded,
    "I6": samples_are_what_was_measured,
    "I7": disturbed_measurements_say_so,
    "I8": nobody_saw_a_traceback,
    "I10": nothing_is_half_written,
}
"""I9 (work goes on within a minute of the healing) is what waiting for the campaign's end measures."""
