"""An attempt that is cancelled or stopped in any stage keeps the blocks that it has finished."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.wire.messages import CancelJob, Heartbeat, JobResult, ReasonCode, Receipt, Shutdown, Status
from agent.wire.passes import ThroughputPlan
from tests.agent.embedded_agent import PATIENCE_S, EmbeddedAgent, job
from tests.agent.runner import test_blocks
from tests.agent.runner.test_blocks import BLOCKS, comparison

STOPS = """
import json, sys, time
from pathlib import Path
import agent.runner.turns.children as children
import agent.runner.turns.process as process
from agent.attempt.files import is_cancelled, write_progress
arguments = sys.argv[1:]
stage = Path(__file__).with_name("stage").read_text()

def stop(folder):
    write_progress(Path(folder), "it is there")
    while not is_cancelled(Path(folder)):
        time.sleep(0.01)

if arguments[0] == "--measure":
    job, folder, index = arguments[1], arguments[2], int(arguments[3])
    chosen = json.load(open(job))["job"]["delegate"] != "litert" or not json.load(open(job))["arms"]
    hangs = lambda *_: (write_progress(Path(folder), "it is there"), time.sleep(600))
    if chosen and (index, stage) in ((0, "cold"), (2, "imports")):
        hangs()
    if chosen and index == 2 and stage in ("slice", "finishing"):
        from runtime.measure import benchmark
        setattr(benchmark.Session, "slice" if stage == "slice" else "end", hangs)
elif arguments[:2] == ["--pass", "throughput"] and stage == "pass":
    from agent.runner.channel import Answer, Channel
    Channel.of_descriptor(int(arguments[4])).send(Answer(phase="it is there"))
    time.sleep(600)
elif arguments[0][0] != "-":
    import agent.runner.decide as decide
    run_block, concluded = decide.run_block, decide.concluded
    def block(arms, asked, *more, **named):
        if (asked.number, stage) == (3, "between blocks"):
            stop(arms[-1].folder)
        return run_block(arms, asked, *more, **named)
    def judged(attempt, reports, folder, *more):
        if stage == "judging":
            stop(folder)
        return concluded(attempt, reports, folder, *more)
    decide.run_block, decide.concluded = block, judged
from agent.runner.__main__ import main
children.RUNNER_COMMAND = process.RUNNER_COMMAND = (sys.executable, "-P", __file__)
sys.exit(main(arguments))
"""
"""A runner that stays in a stage: of the cold process, of block 2, in front of block 3, behind the last."""

STAGES = [
    ("cold", 0),
    ("imports", 1),
    ("slice", 1),
    ("finishing", 1),
    ("between blocks", 2),
    ("judging", BLOCKS),
    ("pass", BLOCKS),
]
PLAN = test_blocks.PLAN.model_copy(update={"slice_runs": 5})
WITH_PASS = PLAN.model_copy(update={"throughput": ThroughputPlan(in_flight=1, seconds=0.1)})


@pytest.fixture
def staying(start_agent: Callable[..., EmbeddedAgent], tmp_path: Path) -> Callable[[str], EmbeddedAgent]:
    def start(stage: str) -> EmbeddedAgent:
        script = tmp_path / "stays.py"
        script.write_text(STOPS)
        (tmp_path / "stage").write_text(stage)
        return start_agent(runner=[sys.executable, "-P", str(script)], sandbox={"on": False})

    return start


def is_there(agent: EmbeddedAgent) -> None:
    agent.expect(Heartbeat, lambda beat: beat.phase.endswith("it is there"))


@pytest.mark.parametrize(
    ("how", "stage", "blocks"),
    [
        pytest.param(
            how, *case, marks=[] if how == "cancel" or case[0] == "slice" else pytest.mark.exhaustive
        )
        for how in ("cancel", "shutdown")
        for case in STAGES
    ],
)
def test_the_finished_blocks_are_the_result_of_an_attempt_that_is_ended_early(
    staying: Any, stored: Any, how: str, stage: str, blocks: int
) -> None:
    agent = staying(stage)
    spec = job(stored, plan=WITH_PASS if stage == "pass" else PLAN)
    agent.send(spec)
    is_there(agent)
    agent.send(CancelJob(attempt_id=spec.attempt_id) if how == "cancel" else Shutdown())
    result = agent.expect(JobResult)
    agent.send(Receipt(attempt_id=spec.attempt_id))
    if how == "shutdown":
        assert agent.process.wait(PATIENCE_S) == 0
    if not blocks:
        ended = {"cancel": ReasonCode.CANCELLED, "shutdown": ReasonCode.INTERRUPTED}
        assert (result.reason.code, result.measurement) == (ended[how], None)
        return
    assert result.status is Status.DONE, result
    found = result.measurement
    assert (len(found.blocks), found.quality.blocks) == (blocks, blocks)
    assert found.latency_ms.p50 is not None
    assert found.accuracy.verdict == "pass"
    if stage == "judging":
        # Behind the last block nothing is cut short: why it stopped depends on the machine's noise alone.
        assert found.quality.stopped in {"blocks", "target"}
    else:
        assert found.quality.stopped == "cancelled"
        assert f"ended early by a cancel, after {blocks} of at most {BLOCKS} blocks" in found.quality.facts


def test_an_arm_that_is_cancelled_keeps_its_blocks_and_ratios_and_the_others_go_on(
    staying: Any, stored: Any
) -> None:
    agent = staying("slice")
    spec = comparison(stored, {})
    agent.send(spec)
    is_there(agent)
    agent.send(CancelJob(attempt_id=spec.arms[0].attempt_id))
    own, base = agent.expect(JobResult), agent.expect(JobResult)
    assert (own.cell_id, own.status, base.cell_id, base.status) == (
        "cell-1", Status.DONE, "cell-0", Status.DONE,
    )  # fmt: skip
    assert (len(own.measurement.blocks), own.measurement.ratio.blocks) == (1, 1)
    assert len(base.measurement.blocks) == BLOCKS


def test_a_comparison_that_is_ended_keeps_the_blocks_of_every_arm(staying: Any, stored: Any) -> None:
    agent = staying("slice")
    spec = comparison(stored, {})
    agent.send(spec)
    is_there(agent)
    for own in spec.attempts:
        agent.send(CancelJob(attempt_id=own.attempt_id))
    found = [agent.expect(JobResult) for _ in spec.attempts]
    assert {result.status for result in found} == {Status.DONE}, found
    assert [len(result.measurement.blocks) for result in found] == [1, 1]
    (ratio,) = [result.measurement.ratio for result in found if result.measurement.ratio is not None]
    assert ratio.blocks == 1
