"""A campaign keeps its promises, whatever carries its messages. One suite for every dispatcher and
database.
"""

from __future__ import annotations

import json
import threading

import pytest

from orchestrator.errors import UsageError
from tests.contract import checker
from tests.contract.fake_agent import CPU, REFERENCE_KEY
from tests.contract.lab import delegates
from tests.orchestrator.asked import asked, model_files
from tests.orchestrator.db.test_compared_cells import lightly


def outcome(cells):
    return {c.delegate: (c.status, c.reason.code.value if c.reason else None) for c in cells}


def tries(cells):
    return {c.delegate: len(c.attempts) for c in cells}


def test_a_campaign_runs_to_its_end_model_by_model(lab):
    cells, told = lab.run("a", "b", delegates={"cpu": {}, "gpu": {}, "litert": {}})
    assert {c.status for c in cells} == {"done"}
    finished = [(e.cell.model, e.cell.delegate) for e in told if e.kind == "finished"]
    assert finished == [(m, d) for m in "ab" for d in ("cpu", "gpu", "litert")]
    progress = [(e.done, e.total) for e in told if e.kind == "finished"]
    assert progress == sorted(progress), "who watches may see several ends at one look"
    assert progress[-1] == (6, 6)
    assert told[-1].eta_s == 0
    lab.until(lambda: not list((lab.home.agent / "spool").iterdir()), "every result gets its receipt")
    lab.check()


def test_every_way_to_end_is_told_apart(lab):
    cells, _ = lab.run("m", delegates=delegates(
        good="done", wrong="wrong", lacking="unsupported", poison="crash", shaky="crash-once",
        slow="timeout", big="oom", refused="refuse",
    ))  # fmt: skip
    assert outcome(cells) == {
        "good": ("done", None),
        "wrong": ("failed", "wrong_output"),
        "lacking": ("unsupported", "unsupported_operator"),
        "poison": ("failed", "crash"),
        "shaky": ("done", None),
        "slow": ("failed", "timeout"),
        "big": ("failed", "oom"),
        "refused": ("failed", "artifact"),
    }
    assert tries(cells) == {
        "good": 1, "wrong": 1, "lacking": 1, "poison": 2, "shaky": 2, "slow": 1, "big": 1, "refused": 3,
    }  # fmt: skip
    lab.check()


@pytest.mark.slow
def test_a_result_that_is_delivered_three_times_counts_once(lab):
    cells, _ = lab.run("a", "b", delegates=delegates(echo="repeat-result"))
    assert [c.status for c in cells] == ["done", "done"]
    lab.check()


def test_a_reference_is_named_to_later_attempts_where_its_maker_may_speak_for_others(lab):
    cells, _ = lab.run("m", delegates=delegates(first="refer", later="done"))
    assert [c.status for c in cells] == ["done", "done"]
    truth = (lab.home.agent / "truth.jsonl").read_text().splitlines()
    named = [told["references"] for line in truth if (told := json.loads(line))["what"] == "start"]
    assert named == [[], [REFERENCE_KEY] if lab.trusts_its_agent else []]
    lab.check()


def test_a_delegate_without_a_device_ends_at_once_with_the_agents_reason(lab):
    lab.plug(CPU)
    cells, _ = lab.run("m", delegates={"cpu": {}, "gpu": {}})
    cpu, gpu = cells
    assert cpu.status == "done"
    assert (gpu.device, gpu.status) == ("-", "unsupported")
    assert gpu.reason.text.endswith("fake: nothing here runs gpu")
    lab.check()


@pytest.mark.slow
def test_two_equal_machines_share_the_models_and_each_keeps_its_own(lab):
    lab.plug(*(CPU.model_copy(update={"device_id": f"rack-{one}.cpu"}) for one in (1, 2)))
    first, second = (lab.device_id(f"rack-{one}.cpu") for one in (1, 2))
    cells, _ = lab.run("a", "b", delegates={"cpu": {}, "litert": {}}, shared=True)
    assert {(c.model, c.device, c.status) for c in cells} == {("a", first, "done"), ("b", second, "done")}
    later, _ = lab.run("b", "c", "d", delegates={"cpu": {}, "litert": {}}, shared=True, reuse="never")
    assert {(c.model, c.device) for c in later} == {("b", second), ("c", first), ("d", first)}
    lab.check()


@pytest.mark.slow
def test_the_second_submission_measures_nothing(lab):
    first, _ = lab.run("a", "b", delegates={"cpu": {}})
    second, told = lab.run("a", "b", delegates={"cpu": {}})
    assert [c.reused_from for c in second] == [c.cell_id for c in first]
    assert [c.measurement for c in second] == [c.measurement for c in first]
    assert {e.kind for e in told} == {"reused"}
    assert sum(checker.starts(lab.home).values()) == 2
    lab.check()


@pytest.mark.slow
def test_a_failed_cell_is_tried_again_by_the_second_submission(lab):
    how = delegates(shaky="crash-once", poison="crash")
    lab.run("m", delegates=how)
    second, _ = lab.run("m", delegates=how)
    assert [(c.delegate, c.reused_from is not None) for c in second] == [("shaky", True), ("poison", False)]
    lab.check()


@pytest.mark.slow
def test_reuse_never_measures_every_cell_again(lab):
    lab.run("m", delegates={"cpu": {}}, reuse="never")
    cells, _ = lab.run("m", delegates={"cpu": {}}, reuse="never")
    assert cells[0].reused_from is None
    assert sum(checker.starts(lab.home).values()) == 2


@pytest.mark.slow
def test_the_field_that_changed_is_named_before_a_cell_runs_again(lab):
    lab.run("m", delegates={"cpu": {}})
    newer = CPU.model_copy(update={"environment": {**CPU.environment, "driver": "560.28"}})
    lab.plug(newer)
    with lab.open() as farm:
        (cell,) = farm.submission.plan(asked(("m",), {"cpu": {}}), model_files("m")).cells
    assert (cell.action, cell.why) == ("run", "driver 550.90 → 560.28")
    cells, _ = lab.run("m", delegates={"cpu": {}})
    assert cells[0].environment["driver"] == "560.28"


@pytest.mark.slow
def test_a_device_that_went_away_does_not_hold_a_campaign_up(lab):
    with lab.open() as farm:
        submitted = lab.submit(farm, "m", delegates={"cpu": {}, "gpu": {}})
    lab.plug(CPU)
    with lab.open() as farm:
        farm.running.run(submitted, lambda _: None)
        cpu, gpu = farm.reading.cells(submitted.campaign_id)
    assert cpu.status == "done"
    assert (gpu.status, gpu.reason.code) == ("unsupported", "no_device")
    assert gpu.reason.text.startswith(f"device {lab.device_id('pocl')} is ")
    assert gpu.reason.text.endswith("fake: nothing here runs gpu")
    lab.check()


def test_raw_samples_come_back_as_they_were_stored(lab):
    cells, _ = lab.run("m", delegates={"cpu": {}})
    with lab.open() as farm:
        (process,) = farm.reading.samples(cells[0])
    assert process.invoke_ns == (1, 2, 3)


def test_cells_and_campaigns_are_found_by_the_beginning_of_their_id_or_name(lab):
    cells, _ = lab.run("a", "b", delegates={"cpu": {}}, name="nightly")
    with lab.open() as farm:
        newest = farm.reading.campaign()
        assert farm.reading.campaign("nightly") == farm.reading.campaign(newest.campaign_id[:6]) == newest
        assert farm.reading.cell(cells[0].cell_id[:12]) == cells[0]
        assert farm.reading.cells("all") == farm.reading.cells() == cells
        assert farm.reading.compared("nightly") == [lightly(cell) for cell in cells]
        groups = farm.reading.groups()
        assert [(one.model, one.count) for one in groups] == [("a", 1), ("b", 1)]
        assert farm.reading.compared("nightly", "b") == [lightly(cells[1])]
        with pytest.raises(UsageError, match="no campaign 'nightli'; did you mean 'nightly'"):
            farm.reading.campaign("nightli")
        with pytest.raises(UsageError, match="no cell 'zz'"):
            farm.reading.cell("zz")
        with pytest.raises(UsageError, match="no campaign or cell 'zz'"):
            farm.steering.cancel("zz")


def test_an_ambiguous_beginning_lists_what_it_could_mean(lab):
    cells, _ = lab.run(*(f"m{i}" for i in range(17)), delegates={"npu": {}})
    first = {c.cell_id[0] for c in cells}
    twice = next(digit for digit in first if sum(c.cell_id[0] == digit for c in cells) > 1)
    with lab.open() as farm, pytest.raises(UsageError, match="begins several cell ids"):
        farm.reading.cell(twice)


def test_doctor_finds_the_fake_lab_well(lab):
    with lab.open() as farm:
        checks = {check.name: check for check in farm.doctor()}
    assert all(check.ok for check in checks.values()), checks
    found = " ".join(check.found for check in checks.values())
    assert lab.agent_is_well in found


def cancelled_while_it_runs(lab):
    """Submit a cell that runs until it is cancelled, cancel it from another thread, and return it."""

    def cancel(ref):
        with lab.open() as other:
            lab.until(lambda: other.reading.campaign(ref).counts.get("running"), "the cell runs")
            assert other.steering.cancel(ref) == 1

    with lab.open() as farm:
        submitted = lab.submit(farm, "m", delegates={"gpu": {"behave": "keep-blocks", "seconds": 600}})
        thread = threading.Thread(target=cancel, args=[submitted.campaign_id])
        thread.start()
        farm.running.run(submitted, lambda _: None)
        thread.join()
        (found,) = farm.reading.cells(submitted.campaign_id)
        return found


@pytest.mark.slow
def test_a_cancelled_cell_keeps_its_finished_blocks_and_the_next_submission_goes_on_from_them(lab):
    for blocks in (2, 4):
        cell = cancelled_while_it_runs(lab)
        assert (cell.status, len(cell.measurement.blocks)) == ("done", blocks), "what it has is a result"
        assert cell.measurement.quality.stopped == "cancelled"
    lab.check()
