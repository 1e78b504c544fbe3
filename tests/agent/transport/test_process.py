"""A link that hangs or ends is replaced, while the daemon goes on."""

from __future__ import annotations

import sys

from agent.transport.process import LinkProcess
from tests.agent.embedded_agent import alive, eventually

SILENT = [sys.executable, "-c", "import time; time.sleep(600)"]
ENDS = [sys.executable, "-c", "import sys; sys.exit(75)"]


def second_child(link: LinkProcess, first: int) -> bool:
    link.receive()
    link.tend()
    return link.pid not in (None, first)


def test_a_link_through_which_nothing_comes_back_is_killed_and_replaced(tmp_path):
    link = LinkProcess(SILENT, tmp_path, watchdog_s=0.3, agent_id="rack")
    assert link.tend()
    first = link.pid
    eventually(lambda: second_child(link, first), "the link was not replaced")
    assert not alive(first)
    link.close()


def test_a_link_that_ends_is_replaced(tmp_path):
    link = LinkProcess(ENDS, tmp_path, watchdog_s=600.0, agent_id="rack")
    assert link.tend()
    first = link.pid
    eventually(lambda: second_child(link, first), "the link was not replaced")
    link.close()


def test_a_link_that_cannot_be_started_is_tried_again(tmp_path, caplog):
    folder = tmp_path / "later"
    link = LinkProcess(SILENT, folder, watchdog_s=600.0, agent_id="rack")
    assert not link.tend()
    assert (link.pid, link.fileno()) == (None, -1)
    assert "the link to the broker is restarted in" in caplog.text
    assert "No such file or directory" in caplog.text
    assert not link.tend()
    folder.mkdir()
    eventually(link.tend, "the link was not started")
    link.close()
