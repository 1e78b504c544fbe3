from __future__ import annotations

import pytest
from celery import Celery
from kombu import compression

from agent.link.broker import AgentBroker, register
from agent.wire.queue import MESSAGE_TASK


def test_an_agent_knows_one_task_json_alone_no_remote_control_and_no_compression() -> None:
    app: Celery = AgentBroker("rack-1", "redis://127.0.0.1:1/0").application()

    def on_message(envelope: str) -> None:
        raise AssertionError(envelope)

    register(app, on_message)
    assert list(app.tasks) == [MESSAGE_TASK]
    assert [app.conf[name] for name in ("accept_content", "result_accept_content")] == [["json"]] * 2
    assert app.conf.worker_enable_remote_control is False
    for kind in compression.encoders():
        with pytest.raises(ValueError, match="compressed"):
            compression.decompress(b"x", kind)
