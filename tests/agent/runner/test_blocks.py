"""Arms of one comparison through a real agent: interleaved blocks, ratios, and ends that stay one arm's."""

from __future__ import annotations

import json
import math
import sys
from statistics import mean, median
from typing import Any

import pytest

from agent.attempt import runlog
from agent.attempt.files import ProcessReport
from agent.runner.judge.blocks import (
    added,
    allowance_of,
    block_figures,
    block_p50,
    drawn_order,
    order_of_round,
    paired_ratio,
    rounds_by_tuning,
    slice_medians,
)
from agent.wire.exclusion import joint_group
from agent.wire.measurement import BlockFigure, ProcessSamples, TimedSlice, baseline_id
from agent.wire.messages import (
    Arm,
    CancelJob,
    Heartbeat,
    JobResult,
    JobSpec,
    JobStarted,
    ReasonCode,
    Receipt,
    Status,
    artifact_path,
)
from tests.agent.embedded_agent import BRIEF, job
from tests.services import known

SEED = 7
BLOCKS = 3
PLAN = BRIEF.model_copy(update={"min_blocks": BLOCKS, "max_blocks": BLOCKS, "slice_runs": 2})

DYING = """
import os, sys
import agent.runner.turns.children as children
import agent.runner.turns.process as process
from agent.runner.__main__ import main
arguments = sys.argv[1:]
if arguments[0] == "--measure":
    import json
    job = json.load(open(arguments[1]))["job"]
    if (job["delegate"], arguments[3]) == ("dies", "2"):
        os.kill(os.getpid(), 11)
    if job["delegate"] == "hangs" and arguments[3] == "1":
        import time
        time.sleep(600)
children.RUNNER_COMMAND = process.RUNNER_COMMAND = (sys.executable, "-P", __file__)
sys.exit(main(arguments))
"""
"""A runner whose process of a delegate called `dies` crashes in block 2, and of one called `hangs` in block 1
does not end."""


MID_ROUND = """
import json, os, signal, sys, time
import agent.runner.turns.children as children
import agent.runner.turns.process as process
from agent.runner.__main__ import main
from runtime.measure import benchmark
arguments = sys.argv[1:]
process.SHORTEST_DEADLINE_S = 3.0
name = json.load(open(arguments[1]))["job"]["delegate"] if arguments[0] == "--measure" else ""
if (name, arguments[3:4]) == ("dies", ["2"]):
    os.kill(os.getpid(), signal.SIGSEGV)
if name and arguments[3] == "1":
    slice, timed = benchmark.Session.slice, []
    def faulty(self, runs):
        timed.append(runs)
        if len(timed) == 2 and name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if len(timed) == 2 and name == "hung":
            time.sleep(600)
        if len(timed) == 2 and name == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if len(timed) == 2 and name == "reports":
            os.write(int(arguments[5]), b'{"report": {}}\\n')
            time.sleep(600)
        return slice(self, runs)
    benchmark.Session.slice = faulty
children.RUNNER_COMMAND = process.RUNNER_COMMAND = (sys.executable, "-P", __file__)
sys.exit(main(arguments))
"""
"""A runner whose processes of four delegates fail in the second round of block 1, each in its own way; one
called `dies` crashes in block 2."""


def comparison(stored: tuple[str, int], *contenders: dict[str, Any], **fields: Any) -> JobSpec:
    """Build a job of the baseline `litert` that carries the contenders as arms."""
    first = job(stored, "litert", plan=PLAN, cell_id="cell-0", **fields)
    arms = []
    for number, given in enumerate(contenders, 1):
        kind = given.get("delegate_kind", "cpu")
        values = {
            "attempt_id": f"{first.attempt_id}-{number}", "attempt_no": 1, "cell_id": f"cell-{number}",
            "epoch": first.epoch, "device_id": "host-cpu", "delegate": kind, "delegate_kind": kind,
            "delegate_options": {},
        }  # fmt: skip
        arms.append(Arm(**{**values, **given}))
    return first.model_copy(update={"arms": tuple(arms), "baseline": first.attempt_id, "seed": SEED})


def results_of(agent: Any, spec: JobSpec, count: int | None = None) -> dict[str, JobResult]:
    """Return the results of all attempts of a job by their cells, each with its receipt given."""
    found = {}
    for _ in range(len(spec.attempts) if count is None else count):
        result = agent.expect(JobResult)
        agent.send(Receipt(attempt_id=result.attempt_id))
        found[result.cell_id] = result
    return found


def timed(agent: Any, result: JobResult) -> list[ProcessSamples]:
    path = artifact_path(agent.store, result.measurement.samples_sha256)
    return [ProcessSamples.model_validate(entry) for entry in json.loads(path.read_bytes())][1:]


def kept(agent: Any, result: JobResult) -> list[ProcessSamples]:
    return [samples for samples in timed(agent, result) if samples.kept_ns]


@pytest.mark.exhaustive
def test_two_delegates_are_compared_with_one_baseline_by_interleaved_blocks(start_agent, stored, monkeypatch):
    monkeypatch.setenv(known.VARIABLE, "")
    agent = start_agent()
    one_thread = {"delegate_kind": "litert", "delegate": "litert-t1", "delegate_options": {"threads": 1}}
    spec = comparison(stored, {}, one_thread)
    agent.send(spec)
    assert {agent.expect(JobStarted).attempt_id for _ in range(3)} == {
        own.attempt_id for own in spec.attempts
    }
    found = results_of(agent, spec)
    assert {result.status for result in found.values()} == {Status.DONE}, found
    assert found["cell-0"].measurement.ratio is None, "a baseline has no ratio over itself"
    base = kept(agent, found["cell-0"])
    for name in ("cell-1", "cell-2"):
        ratio = found[name].measurement.ratio
        pairs = zip(base, kept(agent, found[name]), strict=True)
        logs = [
            median(math.log(slice_medians(one)[k] / ns) for k, ns in slice_medians(other).items())
            for one, other in pairs
        ]
        assert found[name].measurement.quality.alternating
        assert (ratio.blocks, ratio.seed) == (BLOCKS, SEED)
        assert ratio.median == pytest.approx(math.exp(mean(logs)))
        low, high = ratio.ci95
        assert low < ratio.median < high
        assert (ratio.baseline_id, ratio.device_id) == (baseline_id("litert", {}), "host-cpu")
    assert found["cell-1"].measurement.ratio.against.startswith("litert@host-cpu")
    unlike = (
        found["cell-2"].measurement.settings["threads"] != found["cell-0"].measurement.settings["threads"]
    )
    assert ("threads" in found["cell-2"].measurement.ratio.against) == unlike

    lives = runlog.intervals(runlog.read(agent.state / "runs.log"))
    assert runlog.overlaps(lives) == []
    order = [life.attempt_id for life in lives if life.what == "measure"]
    named = {f"{own.delegate}@{own.device_id}": own.attempt_id for own in spec.attempts}
    blocks: list[int] = []
    for one in timed(agent, found["cell-0"]):
        blocks.append(one.index if one.index <= BLOCKS else blocks[-1])  # once more
    wanted = [named[name] for block in blocks for name in drawn_order(named, SEED, block)]
    assert order == [own.attempt_id for own in spec.attempts] + wanted, "every arm once in each block"
    assert [life.what for life in lives].count("reference") == 3, "made once for all arms"


@pytest.mark.slow
def test_a_baseline_for_the_ratio_alone_reports_nothing(start_agent, stored):
    agent = start_agent()
    spec = job(stored, "cpu", plan=PLAN)
    base = Arm(
        attempt_id=f"{spec.attempt_id}-baseline", attempt_no=0, cell_id="other", epoch=0,
        device_id="host-cpu", delegate="litert", delegate_kind="litert", reported=False,
    )  # fmt: skip
    result = agent.run(spec.model_copy(update={"arms": (base,), "baseline": base.attempt_id, "seed": SEED}))
    assert result.status is Status.DONE, result
    assert result.measurement.ratio.blocks == BLOCKS
    assert agent.run(job(stored)).status is Status.DONE, "the next message is the next job's"
    assert (
        not list((agent.state / "attempts").glob("*-baseline"))
        if (agent.state / "attempts").exists()
        else True
    )


@pytest.fixture
def dying(start_agent, tmp_path):
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    return start_agent(runner=[sys.executable, "-P", str(script)], sandbox={"on": False}, shares=True)


@pytest.mark.slow
def test_an_arm_that_fails_between_blocks_or_in_a_round_ends_alone_and_the_others_finish(
    start_agent, tmp_path, stored
):
    script = tmp_path / "mid_round.py"
    script.write_text(MID_ROUND)
    agent = start_agent(runner=[sys.executable, "-P", str(script)], sandbox={"on": False}, shares=True)
    contenders = [{"delegate": name} for name in ("killed", "hung", "stopped", "dies", "reports")]
    plan = PLAN.model_copy(update={"min_blocks": 2, "max_blocks": 2})
    spec = comparison(stored, *contenders, {}).model_copy(update={"plan": plan})
    agent.send(spec)
    found = results_of(agent, spec)
    codes = [None if result.reason is None else result.reason.code for _, result in sorted(found.items())]
    failed = [
        ReasonCode.RUNNER_KILLED, ReasonCode.TIMEOUT, ReasonCode.TIMEOUT, ReasonCode.CRASH,
        ReasonCode.RUNNER_ERROR,
    ]  # fmt: skip
    assert codes == [None, *failed, None]
    assert "it hangs, or was stopped" in found["cell-2"].reason.text
    assert "block 2 of at most 2" in found["cell-4"].reason.text
    assert "a report in the middle of a turn" in found["cell-5"].reason.text
    assert (found["cell-0"].status, found["cell-6"].status) == (Status.DONE, Status.DONE)
    assert found["cell-6"].measurement.ratio.blocks == 2
    assert found["cell-6"].measurement.quality.rounds >= 2 * PLAN.rounds


@pytest.mark.slow
def test_contenders_of_a_baseline_that_dies_are_measured_without_a_ratio(dying, stored):
    spec = comparison(stored, {}, delegate_kind="litert").model_copy(update={"delegate": "dies"})
    dying.send(spec)
    found = results_of(dying, spec)
    assert found["cell-0"].reason.code is ReasonCode.CRASH
    assert found["cell-1"].status is Status.DONE
    assert found["cell-1"].measurement.ratio is None


@pytest.mark.slow
def test_a_cancelled_arm_ends_at_once_and_the_others_go_on(dying, stored):
    spec = comparison(stored, {"delegate": "hangs"}, {})
    hanging = spec.arms[0].attempt_id
    dying.send(spec)
    dying.expect(Heartbeat, lambda beat: beat.phase.startswith("hangs: block 1"))
    dying.send(CancelJob(attempt_id=hanging))
    found = results_of(dying, spec)
    assert (found["cell-1"].attempt_id, found["cell-1"].status) == (hanging, Status.CANCELLED)
    assert (found["cell-0"].status, found["cell-2"].status) == (Status.DONE, Status.DONE)
    assert found["cell-2"].measurement.ratio.blocks == BLOCKS
    assert dying.run(job(stored)).status is Status.DONE, "the device is free again"


@pytest.mark.slow
def test_a_comparison_whose_attempts_are_all_cancelled_ends(dying, stored):
    spec = comparison(stored, {"delegate": "hangs"})
    dying.send(spec)
    dying.expect(JobStarted)
    for own in spec.attempts:
        dying.send(CancelJob(attempt_id=own.attempt_id))
    assert {result.status for result in results_of(dying, spec).values()} == {Status.CANCELLED}


@pytest.mark.exhaustive
def test_an_arm_that_takes_longer_than_its_limit_fails_alone(dying, stored):
    brief = PLAN.model_copy(update={"min_blocks": 1, "max_blocks": 1})
    spec = comparison(stored, {"delegate": "hangs"}, soft_limit_s=40.0, hard_limit_s=50.0)
    spec = spec.model_copy(update={"plan": brief})
    dying.send(spec)
    found = results_of(dying, spec)
    assert (found["cell-1"].status, found["cell-1"].reason.code) == (Status.FAILED, ReasonCode.TIMEOUT)
    assert found["cell-0"].status is Status.DONE


@pytest.mark.slow
def test_attempts_of_a_killed_agent_are_reported_by_the_next_one(start_agent, dying, stored):
    spec = comparison(stored, {"delegate": "hangs"}, {})
    dying.send(spec)
    dying.expect(Heartbeat, lambda beat: beat.phase.startswith("hangs: block 1"))
    dying.kill()
    found = results_of(again := start_agent(), spec)
    assert {result.reason.code for result in found.values()} == {ReasonCode.INTERRUPTED}
    assert again.refusal(spec).reason.code is ReasonCode.RUNNER_ERROR, "it does not run a second time"


def report(
    index: int, *slices: tuple[int, ...], tuning: int = 0, dropped: int | None = None
) -> ProcessReport:
    """Build a process with these slices; the one of round `dropped` was disturbed."""
    samples = ProcessSamples(
        index=index, tuning=tuning, cache="warm" if index else "cold", init_ns=1, first_ns=1, warmup_ns=(),
        invoke_ns=tuple(ns for one in slices for ns in one), memory_peak_bytes=0, memory_before_bytes=0,
        slices=tuple(
            TimedSlice(round=k, runs=len(one), kept=k != dropped) for k, one in enumerate(slices)
        ),
    )  # fmt: skip
    return ProcessReport(samples=samples)


def test_a_ratio_is_an_interval_over_the_blocks_medians_of_their_rounds_ratios(stored):
    # The machine is twice as slow in the second round, for both alike.
    base = [report(0), *(report(k, (200,), (400,), (200, 200 + k)) for k in (1, 2, 3, 4))]
    own = [report(0), *(report(k, (100 + k,), (200 + 2 * k,), (100 + k,)) for k in (1, 2, 3, 4))]
    logs = [math.log(200 / (100 + k)) for k in (1, 2, 3, 4)]
    centre = mean(logs)
    half = 3.1824 * math.sqrt(sum((x - centre) ** 2 for x in logs) / 3 / 4)
    found = paired_ratio(block_figures(own, base), job(stored), SEED, 0.01)
    assert found.median == pytest.approx(math.exp(centre))
    assert found.ci95 == pytest.approx((math.exp(centre - half), math.exp(centre + half)), rel=1e-4)
    assert found.allowance == 0.01
    few = paired_ratio(block_figures(own[:3], base), job(stored), SEED)
    assert (few.blocks, few.ci95) == (2, None), "blocks that both have; too few for an interval"
    assert paired_ratio(block_figures(own[:1], base), job(stored), SEED) is None


def test_a_round_that_was_disturbed_is_in_no_figure():
    disturbed = report(1, (100,), (900,), (102,), dropped=1)
    assert slice_medians(disturbed.samples) == {0: 100, 2: 102}
    assert block_p50(disturbed.samples) == 101
    assert disturbed.samples.kept_ns == (100, 102)
    base = report(1, (200,), (200,), (204,), dropped=1)
    assert block_figures([disturbed], [base])[0].log_ratio == pytest.approx(math.log(2))


def test_a_block_that_was_measured_once_more_is_one_block():
    first, again, third = report(1, (900,)), report(4, (100,), (110,), (120,)), report(2, (104,))
    first = ProcessReport(samples=first.samples.without_kept())
    base = [report(1, (200,)), report(4, (220,), (220,), (220,)), report(2, (208,))]
    found = block_figures([report(0), first, again, third], base)
    assert [(block.p50_ns, block.again, block.rounds) for block in found] == [(110, True, 3), (104, False, 1)]
    assert [block.log_ratio for block in found] == pytest.approx([math.log(2)] * 2)
    ratios, times = (rounds_by_tuning([first, again, third], over) for over in (base, None))
    assert [len(rounds) for rounds in ratios[0]] == [0, 3, 1]
    assert ratios[0][1] == pytest.approx([math.log(2.2), math.log(2), math.log(220 / 120)])
    assert times[0][2] == pytest.approx([-math.log(104)])


@pytest.mark.parametrize(("before", "after"), [((0, 1), [0, 1, 2, 2]), ((0, 0), [0, 0, 0, 0])])
def test_blocks_are_added_to_earlier_ones(stored, before, after):
    earlier = [BlockFigure(p50_ns=100.0, log_ratio=0.5, allowance=0.04, rounds=3, tuning=k) for k in before]
    new = block_figures([report(1, (200,)), report(2, (210,))], [report(1, (220,))], {1: 0.01})
    pooled = added(earlier, new)
    assert [block.tuning for block in pooled] == after
    assert allowance_of(pooled) == pytest.approx((0.04 * 6 + 0.01) / 8)
    found = paired_ratio(pooled, job(stored), SEED)
    assert found.blocks == 3, "the one without a baseline is in no ratio"


def test_blocks_of_one_tuning_are_one_unit_of_a_ratio(stored):
    base = [report(0), *(report(k, (200,)) for k in (1, 2, 3, 4))]
    times = enumerate((100, 110, 120, 105), 1)
    own = [report(0), *(report(k, (ns,), tuning=(k - 1) % 3) for k, ns in times)]
    found = paired_ratio(block_figures(own, base), job(stored), SEED)
    logs = [(math.log(200 / 100) + math.log(200 / 105)) / 2, math.log(200 / 110), math.log(200 / 120)]
    assert (found.blocks, found.tunings) == (4, 3)
    assert found.median == pytest.approx(math.exp(mean(logs)))
    half = 4.3027 * math.sqrt(sum((x - mean(logs)) ** 2 for x in logs) / 2 / 3)
    assert math.log(found.ci95[1] / found.median) == pytest.approx(half, rel=1e-4)


@pytest.mark.parametrize("arms", [1, 2, 3, 5])
def test_every_arm_stands_in_every_place_of_the_rounds_and_before_every_other_one(arms):
    orders = [order_of_round(arms, number) for number in range(2 * arms)]
    for arm in range(arms):
        places = [order.index(arm) for order in orders]
        assert sorted(places) == sorted(list(range(arms)) * 2)
        for other in set(range(arms)) - {arm}:
            assert sum(order.index(arm) < order.index(other) for order in orders) == arms


def test_the_order_of_a_block_follows_from_the_seed_and_favours_nobody():
    names = ("a", "b", "c")
    orders = [tuple(drawn_order(names, SEED, block)) for block in range(600)]
    assert orders == [tuple(drawn_order(reversed(names), SEED, block)) for block in range(600)]
    firsts = [sum(order[0] == name for order in orders) for name in names]
    assert min(firsts) > 150


@pytest.mark.parametrize(
    ("groups", "joint"),
    [
        (["host"], "host"),
        (["host", "host/gpu-0"], "host"),
        (["host/gpu-0", "host/gpu-1"], "host"),
        (["host/gpu-0", "host/gpu-0"], "host/gpu-0"),
        (["host/gpu-1", "host/gpu-10"], "host"),
        (["a", "b"], None),
    ],
)
def test_several_groups_are_leased_by_the_one_that_holds_them_all(groups, joint):
    assert joint_group(groups) == joint
