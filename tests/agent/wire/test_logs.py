"""Log lines of both floors: text with a prefix, JSON with a traceback."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from agent.wire.logs import JsonLines, RareLog

PROGRAM = """
import logging
from agent.wire.logs import LogFormat
from agent.wire.logs import log_to_stderr
log_to_stderr(LogFormat.{form}, prefix="farm-agent: ", loggers=("agent", "orchestrator"))
logging.getLogger("agent.link").info("one")
logging.getLogger("orchestrator").debug("two")
logging.getLogger("httpx").info("three")
logging.getLogger("httpx").warning("four")
"""


@pytest.mark.parametrize("form", ["TEXT", "JSON"])
def test_own_loggers_tell_everything_and_libraries_only_warnings(form: str) -> None:
    code = PROGRAM.format(form=form)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = ran.stderr.splitlines()
    if form == "TEXT":
        assert lines == ["farm-agent: one", "farm-agent: four"]
        return
    found = [json.loads(line) for line in lines]
    assert [(line["level"], line["logger"], line["message"]) for line in found] == [
        ("info", "agent.link", "one"),
        ("warning", "httpx", "four"),
    ]
    assert all(list(line) == ["at", "level", "logger", "message"] for line in found)


def test_a_traceback_is_the_last_field_of_a_json_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = logging.LogRecord("farm", logging.ERROR, __file__, 1, "it %s", ("failed",), sys.exc_info())
    line = json.loads(JsonLines().format(record))
    assert line["message"] == "it failed"
    assert list(line)[-1] == "traceback"
    assert line["traceback"].endswith("ValueError: broken")


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
