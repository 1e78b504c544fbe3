"""A flood of events costs a handful of lines, and is counted."""

from __future__ import annotations

import logging

from agent.wire.rare_log import RareLog


def test_the_first_events_are_logged_in_full_and_the_others_counted(caplog) -> None:
    now_s = 0.0
    rare = RareLog(logging.getLogger("rare"), "bad messages", monotonic=lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            rare.warning(f"bad message {number}" + "x" * 1000)
        assert len(caplog.messages) == 6
        assert all(len(text) < 400 for text in caplog.messages)
        assert caplog.messages[0].startswith("bad message 0x")
        caplog.clear()
        rare.tick()
        assert caplog.messages == []
        now_s = 60.0
        rare.tick()
        rare.tick()
        assert caplog.messages == ["bad messages: 995 more in the last 60 s"]
        rare.warning("another kind")
        assert caplog.messages[-1] == "another kind"


def test_rare_events_are_all_logged(caplog) -> None:
    now_s = 0.0
    rare = RareLog(logging.getLogger("rare"), "bad messages", monotonic=lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            now_s = number * 100.0
            rare.warning(f"event {number}")
    assert caplog.messages == [f"event {number}" for number in range(10)]
