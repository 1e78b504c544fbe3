"""Log lines of both floors: text with a prefix, JSON with a traceback."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from agent.wire.logs import JsonLines

PROGRAM = """
import logging
from agent.wire.log_format import LogFormat
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
