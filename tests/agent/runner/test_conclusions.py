"""Figures that are not used: those over a wrong baseline, and those of a process scheduled otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from agent.runner.decide import _Blocks
from agent.runner.turns.block import _Block
from agent.wire.messages import Status


@pytest.mark.parametrize("status", list(Status))
def test_a_baseline_is_one_once_its_outputs_were_right(status):
    base = SimpleNamespace(result=SimpleNamespace(status=status), over=True)
    judged = _Blocks.judged_baseline(SimpleNamespace(baseline=base), SimpleNamespace())
    assert judged is (base if status is Status.DONE else None)


@pytest.mark.parametrize("changed", [None, "it was scheduled otherwise in the end: nice 0 → 5"])
def test_a_process_that_is_scheduled_otherwise_in_the_end_cannot_be(changed):
    part = SimpleNamespace(changed=changed, ran_stopped_s=0.0, times=[], arm=None)
    found = _Block._impossible(SimpleNamespace(rounds=[], _clean=()), part)
    assert found == (() if changed is None else (changed,))
