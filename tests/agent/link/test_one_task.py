from __future__ import annotations

from celery import Celery

from agent.link.broker import MESSAGE_TASK, Broker
from agent.link.worker import register


def test_an_agent_knows_one_task_json_alone_and_no_remote_control() -> None:
    app: Celery = Broker("rack-1", "redis://127.0.0.1:1/0").application()

    def take(envelope: str) -> None:
        raise AssertionError(envelope)

    register(app, take)
    assert list(app.tasks) == [MESSAGE_TASK]
    assert [app.conf[name] for name in ("accept_content", "result_accept_content")] == [["json"]] * 2
    assert app.conf.worker_enable_remote_control is False
