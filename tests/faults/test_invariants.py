"""The checker itself: a sound history passes, and every invariant notices a history that breaks it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from agent.attempt import runlog
from agent.processes.descendants import ATTEMPT_VARIABLE
from agent.wire.messages import artifact_path
from tests.faults import history, invariants
from tests.faults.machines import Held


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Play four attempts; return their files and their runs."""
    folder = tmp_path_factory.mktemp("played")
    return folder, history.play(folder)


@pytest.fixture
def sound(played, tmp_path):
    """Return a copy of them that a test may break."""
    folder, runs = played
    found = history.evidence(shutil.copytree(folder, tmp_path / "history"), runs)
    assert invariants.violations(found) == []
    return found


def copied(row, **changes):
    return type(row)(**{**row.model_dump(), **changes})


def a_cell_that_hangs(found):
    found.cells["a"].state = "running"


def a_cell_without_a_reason(found):
    found.cells["c"].reason_code = None


def a_cell_without_an_end(found):
    found.cells["c"].ended_at = None


def a_result_that_is_lost(found):
    del found.results["c-1"]


def a_result_with_other_samples(found):
    found.results["c-1"].samples_sha256 = found.results["a-1"].samples_sha256


def a_cell_that_counts_twice(found):
    found.results["b-1"] = copied(found.results["b-2"], attempt_id="b-1")


def a_cell_done_by_nothing(found):
    found.results["a-1"].counted = False


def a_cell_that_shows_another_result(found):
    found.cells["a"].shown_attempt_id = "b-2"


def a_result_of_an_old_epoch(found):
    found.results["b-2"].epoch = 2


def two_runs_at_once(found):
    """`d` begins before `a`, on the same silicon, and ends after everything."""
    log = found.states[0] / "runs.log"
    first = min(line.time_ns for line in runlog.read(log)) - 1
    start = {"time_ns": first, "event": "start", "attempt_id": "d-1", "exclusion_group": history.GROUP}
    text = log.read_text()
    log.write_text(json.dumps({**start, "pid": 1, "what": "measure"}) + "\n" + text)


def four_failures(found):
    for number in (3, 4, 5, 6):
        found.attempts[f"b-{number}"] = copied(
            found.attempts["b-1"], attempt_id=f"b-{number}", attempt_no=number
        )


def an_attempt_that_never_ends(found):
    found.attempts["b-1"].state = "running"


def an_attempt_without_a_reason(found):
    found.attempts["b-1"].reason_code = None


def a_gap_between_attempts(found):
    found.attempts["b-2"].attempt_no = 3


def a_run_that_is_repeated(found):
    log = found.states[0] / "truth.jsonl"
    log.write_text(log.read_text() + log.read_text().splitlines()[0] + "\n")


def a_run_that_nobody_ordered(found):
    del found.attempts["c-1"], found.results["c-1"]


def samples_with_a_bit_turned_over(found):
    path = artifact_path(found.store, found.results["a-1"].samples_sha256)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\x5c")


def samples_that_are_gone(found):
    artifact_path(found.store, found.results["a-1"].samples_sha256).unlink()


def a_summary_of_other_samples(found):
    measurement = json.loads(found.results["a-1"].measurement)
    measurement["latency_ms"]["p50"] *= 1 + 2**-52
    found.results["a-1"].measurement = json.dumps(measurement)


def a_disturbance_that_is_hidden(found):
    """Hide a disturbance: the samples show it, the result does not; all hashes and summaries are right."""
    result, truth = found.results["a-1"], found.states[0] / "truth.jsonl"
    old = result.samples_sha256
    samples = json.loads(artifact_path(found.store, old).read_bytes())
    samples[0]["flags"] = ["throttled"]
    raw = json.dumps(samples).encode()
    new = hashlib.sha256(raw).hexdigest()
    path = artifact_path(found.store, new)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    truth.write_text(truth.read_text().replace(old, new))
    found.results["a-1"].samples_sha256 = new


def a_traceback(found):
    found.logs[0].write_text("Traceback (most recent call last):\n  File x\nKeyError: 'a'\n")


def an_older_revision(found):
    return replace(found, revision="0001")


def a_damaged_database(found):
    return replace(found, integrity="row 7 missing from index")


BREACHES = {
    "I1": (a_cell_that_hangs, a_cell_without_a_reason, a_cell_without_an_end),
    "I2": (a_result_that_is_lost, a_result_with_other_samples),
    "I3": (
        a_cell_that_counts_twice,
        a_cell_done_by_nothing,
        a_cell_that_shows_another_result,
        a_result_of_an_old_epoch,
    ),
    "I4": (two_runs_at_once,),
    "I5": (
        four_failures,
        an_attempt_that_never_ends,
        an_attempt_without_a_reason,
        a_gap_between_attempts,
        a_run_that_is_repeated,
        a_run_that_nobody_ordered,
    ),
    "I6": (samples_with_a_bit_turned_over, samples_that_are_gone, a_summary_of_other_samples),
    "I7": (a_disturbance_that_is_hidden,),
    "I8": (a_traceback,),
    "I10": (an_older_revision, a_damaged_database),
}
CASES = [(number, breach) for number, breaches in BREACHES.items() for breach in breaches]


@pytest.mark.parametrize(("number", "breach"), CASES, ids=[breach.__name__ for _, breach in CASES])
def test_the_checker_notices(sound, number, breach, record_property):
    record_property("invariant", number)
    noticed = invariants.violations(breach(sound) or sound)
    assert number in {line.partition(":")[0] for line in noticed}, noticed


def test_the_checker_notices_a_process_that_outlives_its_attempt(sound, record_property):
    record_property("invariant", "I5")
    code = "import sys, time; print(flush=True); time.sleep(600)"
    left = subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, ATTEMPT_VARIABLE: "b-1"},
        stdout=subprocess.PIPE,
    )
    try:
        left.stdout.readline()
        noticed = invariants.violations(sound)
    finally:
        left.kill()
        left.communicate()
    assert noticed == [f"I5: attempt b-1 has ended and {{{left.pid}}} live"]
    assert invariants.violations(sound) == []


def test_the_checker_notices_a_result_that_only_waits_for_its_receipt(sound):
    """It is no loss as long as its agent has it; without it, it is."""
    found = sound.results.pop("c-1")
    journal = sound.states[0] / "journal.db"
    sound.cells["c"].shown_attempt_id = None
    assert invariants.violations(sound) == ["I2: attempt c-1 completed failed and is not stored"]
    history.owe(journal, found.attempt_id)
    assert invariants.violations(sound) == []


@pytest.mark.faults
def test_the_checker_notices_what_does_not_go_on(fault_lab, record_property):
    """I1, I9: a campaign that nobody lets go on."""
    record_property("invariant", "I9")
    lab = fault_lab.start("agA", devices=1)
    campaign = lab.submit(2, gpu={"seconds": 0.1, "first_seconds": 30})
    lab.until_running()
    with pytest.raises(AssertionError, match=r"I1, I9 .*2 open after 1 s"):
        lab.finish(limit_s=1)
    lab.farm("cancel", campaign)
    assert lab.finish() == {"cancelled": 2}


def test_the_checker_notices_who_keeps_what_it_was_given(record_property):
    """I8: descriptors and memory are back at their baseline, or it is a leak."""
    record_property("invariant", "I8")
    then = Held(descriptors=20, resident_bytes=100 << 20)
    assert not Held(25, 105 << 20).is_far_above(then)
    assert Held(40, 100 << 20).is_far_above(then)
    assert Held(20, 130 << 20).is_far_above(then)


def test_every_invariant_is_broken_here():
    assert set(BREACHES) == set(invariants.CHECKS)
