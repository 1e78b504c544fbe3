"""Blocks that others disturb, and the rounds of those that follow, through a real agent."""

from __future__ import annotations

import sys

import pytest

from tests.agent.embedded_agent import job
from tests.agent.runner.test_measuring import THREE, measured, samples_of
from tests.sweeps import rarely

DISTURBED = """
import sys
import time
from dataclasses import replace
import agent.runner.turns.block as block
from agent.runner.__main__ import main
between, rounds = block.Window.between, []
def window(*arguments):
    rounds.append(arguments)
    clean = replace(between(*arguments), foreign_s=0.0, steal_s=0.0, throttled_s=0.0)
    return replace(clean, throttled_s=0.1) if len(rounds) in ROUNDS else clean
block.Window.between = window
opened = block._Block._open
def slowly(run, part):
    opened(run, part)
    # The agent would not see the phase, which is known from here on, of a repetition that ends at once.
    time.sleep(0.5 if run._asked.index != run._asked.number else 0)
block._Block._open = slowly
sys.exit(main(sys.argv[1:]))
"""
"""A runner that finds these rounds of its attempt disturbed, and no other."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "repeated", "kept"),
    [
        # Of the first three, the first block, two; it is measured once more, and then two blocks follow.
        ({2, 3}, 1, [False, True, True, True]),
        # The second block and its repetition: one of each is enough.
        rarely({4, 6, 7, 8, 9}, 1, [True, False, True, True]),
        # A single round is repeated within its block.
        rarely({2}, 0, [True, True, True]),
    ],
)
def test_a_disturbed_block_is_measured_once_more_and_both_are_kept(
    start_agent, stored, rounds, repeated, kept
):
    script = DISTURBED.replace("ROUNDS", str(rounds))
    agent = start_agent(runner=[sys.executable, "-c", script], sandbox={"on": False}, shares=True)
    result = measured(agent, job(stored, plan=THREE))
    found = result.measurement
    assert (found.quality.blocks, found.quality.repeated_blocks) == (3, repeated)
    assert [block.again for block in found.blocks].count(True) == repeated
    assert found.settings["processes"] == "3"
    cold, *timed = samples_of(agent, result)
    assert cold.index == 0
    assert [any(part.kept for part in p.slices) for p in timed] == kept
    assert found.samples == sum(len(p.kept_ns) for p in timed)
    if repeated:
        again = timed[kept.index(False) + 1]
        assert again.index == THREE.max_blocks + 1
        assert any("block" in phase and ", once more" in phase for phase in agent.phases())
        allowance = found.quality.allowance
        assert (allowance > 0.0) == (len(rounds) > 2), "that of the blocks that count"


@pytest.mark.exhaustive
@pytest.mark.parametrize("fixed", [False, True])
def test_later_blocks_have_chosen_rounds_unless_the_plan_fixes_them(start_agent, stored, fixed):
    script = DISTURBED.replace("ROUNDS", "()")
    agent = start_agent(runner=[sys.executable, "-c", script], sandbox={"on": False}, shares=True)
    more = {"min_blocks": 5, "max_blocks": 5, "target": 1e-6, "rounds_fixed": fixed}
    found = measured(agent, job(stored, plan=THREE.model_copy(update=more))).measurement
    sizes = [block.rounds for block in found.blocks]
    assert sizes[:3] == [THREE.rounds] * 3
    assert sizes == [THREE.rounds] * 5 if fixed else all(5 <= size <= 15 for size in sizes[3:])
    said = [fact for fact in found.quality.facts if fact.startswith("rounds of each block")]
    assert len(said) == (not fixed)
