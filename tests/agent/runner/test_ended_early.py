"""An attempt that is cancelled or stopped in any stage keeps the blocks that it has finished."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.wire.messages import (
    CancelJob,
    Heartbeat,
    JobResult,
    JobSpec,
    ReasonCode,
    Receipt,
    Shutdown,
    Status,
)
from agent.wire.passes import ThroughputPlan
from tests.agent.embedded_agent import BRIEF, PATIENCE_S, EmbeddedAgent, job, put_model
from tests.agent.runner.test_blocks import comparison

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
    def hangs(*_):
        while True:  # the deciding process may just be telling that this one starts
            write_progress(Path(folder), "it is there")
            time.sleep(0.05)
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

BLOCKS = 2
STAGES = [
    ("cold", 0),
    ("imports", 1),
    ("slice", 1),
    ("finishing", 1),
    ("between blocks", 2),
    ("judging", BLOCKS),
    ("pass", BLOCKS),
]
RARELY = ("imports", "finishing")
"""Stages in which block 2 is cut short in the same way as in a slice."""
PLAN = BRIEF.model_copy(update={"min_blocks": BLOCKS, "max_blocks": BLOCKS, "slice_runs": 5})
LONGER = PLAN.model_copy(update={"min_blocks": 3, "max_blocks": 3})
"""Two blocks have finished before the last one: all that have are kept, not the first alone."""
WITH_PASS = PLAN.model_copy(update={"throughput": ThroughputPlan(in_flight=1, seconds=0.1)})


class Staying:
    """An agent whose attempts stay in a stage, and the model that it has."""

    def __init__(self, folder: Path, probed: list[str], model: Path) -> None:
        script = folder / "stays.py"
        script.write_text(STOPS)
        self._stage = folder / "stage"
        self.agent = EmbeddedAgent(
            folder,
            [sys.executable, "-P", str(script)],
            probe_command=probed,
            sandbox={"on": False},
            shares=True,
        )
        self.stored = put_model(self.agent.store, model)

    def begin(self, stage: str, spec: JobSpec) -> None:
        """Send a job; return once it stays in the stage."""
        self._stage.write_text(stage)
        self.agent.send(spec)
        self.agent.expect(Heartbeat, lambda beat: beat.phase.endswith("it is there"))

    def result(self) -> JobResult:
        """Return the next result, once it has its receipt."""
        found = self.agent.expect(JobResult)
        self.agent.send(Receipt(attempt_id=found.attempt_id))
        return found


@pytest.fixture(scope="module")
def cancelled(tmp_path_factory: pytest.TempPathFactory, probed: list[str], tiny: Path) -> Iterator[Staying]:
    """Start an agent that outlives its tests."""
    made = Staying(tmp_path_factory.mktemp("staying"), probed, tiny)
    yield made
    made.agent.close()


@pytest.fixture
def shut_down(tmp_path: Path, probed: list[str], tiny: Path) -> Iterator[Staying]:
    """Start an agent that ends with its test."""
    made = Staying(tmp_path, probed, tiny)
    yield made
    made.agent.close()


@pytest.mark.parametrize(
    ("how", "stage", "blocks"),
    [
        pytest.param(how, *case, marks=pytest.mark.exhaustive if case[0] in rarely else [])
        for how, rarely in (("cancelled", RARELY), ("shut_down", {name for name, _ in STAGES} - {"slice"}))
        for case in STAGES
    ],
)
def test_the_finished_blocks_are_the_result_of_an_attempt_that_is_ended_early(
    request: pytest.FixtureRequest, how: str, stage: str, blocks: int
) -> None:
    staying: Staying = request.getfixturevalue(how)
    plan = {"pass": WITH_PASS, "between blocks": LONGER}.get(stage, PLAN)
    spec = job(staying.stored, plan=plan)
    staying.begin(stage, spec)
    staying.agent.send(CancelJob(attempt_id=spec.attempt_id) if how == "cancelled" else Shutdown())
    result = staying.result()
    if how == "shut_down":
        assert staying.agent.process.wait(PATIENCE_S) == 0
    if not blocks:
        ended = {"cancelled": ReasonCode.CANCELLED, "shut_down": ReasonCode.INTERRUPTED}
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
        said = f"ended early by a cancel, after {blocks} of at most {plan.max_blocks} blocks"
        assert said in found.quality.facts


def test_an_arm_that_is_cancelled_keeps_its_blocks_and_ratios_and_the_others_go_on(
    cancelled: Staying,
) -> None:
    spec = comparison(cancelled.stored, {}).model_copy(update={"plan": PLAN})
    cancelled.begin("slice", spec)
    cancelled.agent.send(CancelJob(attempt_id=spec.arms[0].attempt_id))
    own, base = cancelled.result(), cancelled.result()
    assert (own.cell_id, own.status, base.cell_id, base.status) == (
        "cell-1", Status.DONE, "cell-0", Status.DONE,
    )  # fmt: skip
    assert (len(own.measurement.blocks), own.measurement.ratio.blocks) == (1, 1)
    assert len(base.measurement.blocks) == BLOCKS


def test_a_comparison_that_is_ended_keeps_the_blocks_of_every_arm(cancelled: Staying) -> None:
    spec = comparison(cancelled.stored, {}).model_copy(update={"plan": PLAN})
    cancelled.begin("slice", spec)
    for own in spec.attempts:
        cancelled.agent.send(CancelJob(attempt_id=own.attempt_id))
    found = [cancelled.result() for _ in spec.attempts]
    assert {result.status for result in found} == {Status.DONE}, found
    assert [len(result.measurement.blocks) for result in found] == [1, 1]
    (ratio,) = [result.measurement.ratio for result in found if result.measurement.ratio is not None]
    assert ratio.blocks == 1
