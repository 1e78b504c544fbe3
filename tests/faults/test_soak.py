"""A soak of seconds: random faults happen, the lab heals, and the report says what was done."""

from __future__ import annotations

from tests.faults import soak

MINUTES = 0.1
"""Chosen: one fault or two at `MEAN_PAUSE_S`. More take longer and are for `make soak`."""


def test_random_faults_break_no_invariant(fault_lab):
    happened, broken = soak.soak(fault_lab, MINUTES)
    assert broken == []
    assert sum(happened.values()) >= 1
    assert "**Violations: 0**" in soak.report(fault_lab, MINUTES, happened, broken)
